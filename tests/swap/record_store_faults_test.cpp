// Failures of the drive: each row of the storage chapter that a queue can play.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <thread>
#include <vector>

#include "swap/record_store.h"
#include "tests/fakes/faulty_queue.h"
#include "tests/fakes/forbidden_call.h"
#include "tests/fakes/io_backends.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

using testing::HasSubstr;

class FaultyStore : public OnEachBackend {
 protected:
  StoreOptions options() {
    return {.folder = folder_.path(),
            .make_queue = faulty_queue_factory(faults_),
            .queue = {.backend = GetParam(), .depth = 4},
            .block_bytes = 8192,
            .log = lines_.log()};
  }
  std::unique_ptr<RecordStore> create() { return RecordStore::create(run_.geometry, run_.identity, options()); }
  std::unique_ptr<RecordStore> open() { return RecordStore::open(run_.geometry, run_.identity, options()); }

  // From now on: the requests of `op` that come next.
  void plan(Fault fault) {
    faults_->list.clear();
    const int64_t so_far = fault.op == IoOp::kRead    ? faults_->reads
                           : fault.op == IoOp::kWrite ? faults_->writes
                                                      : faults_->syncs;
    fault.nth += so_far;
    faults_->list.push_back(fault);
  }
  void write_one(RecordStore& store, RecordId record, int64_t step) {
    AlignedBuffer buffer(run_.layout(record).bytes);
    fill_content(run_, record, step, buffer.span());
    store.set_checksums(record, plane_crcs(run_, record, buffer.span()));
    write_now(store, record, buffer.data());
  }

  TempFolder folder_;
  LogLines lines_;
  TestRun run_;
  std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();
  const RecordId state_{1, Group::kState};
};

TEST_P(FaultyStore, short_transfers_are_resumed_at_the_first_missing_byte) {
  auto store = create();
  for (const int64_t bytes : {512, 1000, 4096, 5000, 8191}) {
    faults_->list = {{.op = IoOp::kWrite, .nth = faults_->writes, .times = 1000, .short_bytes = bytes},
                     {.op = IoOp::kRead, .nth = faults_->reads, .times = 1000, .short_bytes = bytes}};
    if (bytes < 4096) faults_->list[0].times = faults_->list[1].times = 3;
    write_step(*store, run_, bytes);
    expect_step(*store, run_, bytes);
  }
  faults_->list.clear();
  store.reset();
  expect_step(*open(), run_, 8191);
}

TEST_P(FaultyStore, a_transfer_that_moves_nothing_once_is_tried_again) {
  auto store = create();
  write_step(*store, run_, 0);
  plan({.op = IoOp::kRead, .short_bytes = 0});
  EXPECT_NO_THROW(read_verified(*store, run_, state_));
  plan({.op = IoOp::kRead, .short_bytes = 300});  // less than a sector is nothing
  EXPECT_NO_THROW(read_verified(*store, run_, state_));
}

TEST_P(FaultyStore, no_progress_twice_is_an_error_that_names_the_place) {
  auto store = create();
  write_step(*store, run_, 0);
  for (const int64_t bytes : {0, 300}) {
    plan({.op = IoOp::kRead, .nth = 1, .times = 1000, .short_bytes = bytes});
    const auto [details, message] = failure_of([&] { read_verified(*store, run_, state_); });
    EXPECT_EQ(details.action, "read");
    EXPECT_EQ(details.path, store->path().string());
    EXPECT_EQ(details.error_number, 0);
    EXPECT_EQ(details.offset % 4096, 0);
    EXPECT_GT(details.offset, 0);
    EXPECT_THAT(details.bytes, testing::AnyOf(8192, 4096));  // a block, the record's last one
    EXPECT_THAT(message, HasSubstr("it moved nothing twice in a row"));
  }
  faults_->list.clear();
  expect_step(*store, run_, 0);  // a read that failed costs nothing else
}

TEST_P(FaultyStore, a_file_that_was_cut_short_under_it_is_an_error_not_data) {
  auto store = create();
  write_step(*store, run_, 0);
  std::filesystem::resize_file(store->path(), 20 * kStoreBlockBytes);
  EXPECT_THROW(read_verified(*store, run_, {2, Group::kState}), IoError);
}

TEST_P(FaultyStore, interrupted_requests_are_tried_again) {
  auto store = create();
  for (const int error_number : {EINTR, EAGAIN}) {
    for (const IoOp op : {IoOp::kRead, IoOp::kWrite, IoOp::kSync}) {
      plan({.op = op, .times = 2, .error_number = error_number});
      write_step(*store, run_, error_number);
      expect_step(*store, run_, error_number);
    }
  }
}

TEST_P(FaultyStore, a_request_that_is_turned_away_every_time_is_an_error_that_names_it) {
  auto store = create();
  write_step(*store, run_, 0);
  for (const IoOp op : {IoOp::kRead, IoOp::kWrite}) {
    plan({.op = op, .times = INT64_MAX / 2, .error_number = EAGAIN});
    const auto [details, message] = failure_of([&] {
      if (op == IoOp::kRead) read_verified(*store, run_, state_);
      if (op == IoOp::kWrite) write_one(*store, state_, 1);
    });
    EXPECT_EQ(details.error_number, EAGAIN);
    EXPECT_EQ(details.action, op == IoOp::kRead ? "read" : "write");
    EXPECT_THAT(message, testing::AllOf(HasSubstr("turned the request away"), HasSubstr("open the store again")));
    EXPECT_EQ(store->in_flight(), 0);
  }
  store.reset();
  faults_->list.clear();
  expect_step(*open(), run_, 0);
}

TEST_P(FaultyStore, a_failed_read_names_path_offset_bytes_and_errno) {
  auto store = create();
  write_step(*store, run_, 3);
  plan({.op = IoOp::kRead, .error_number = EIO});
  const auto [details, message] = failure_of([&] { read_verified(*store, run_, state_); });
  EXPECT_EQ(details.action, "read");
  EXPECT_EQ(details.path, (folder_.path() / "sluice-0.swap").string());
  EXPECT_EQ(details.error_number, EIO);
  EXPECT_EQ(details.bytes, 8192);
  EXPECT_GT(details.offset, 0);
  EXPECT_THAT(message, HasSubstr("open the store again"));
  expect_step(*store, run_, 3);
}

TEST_P(FaultyStore, after_a_failed_write_nothing_is_committed_and_the_last_step_opens) {
  for (const int error_number : {EIO, ENOSPC}) {
    auto store = create();
    write_step(*store, run_, 0);
    write_step(*store, run_, 1);
    plan({.op = IoOp::kWrite, .nth = 2, .error_number = error_number});
    const auto [details, message] = failure_of([&] { write_one(*store, state_, 2); });
    EXPECT_EQ(details.action, "write");
    EXPECT_EQ(details.error_number, error_number);
    const int64_t writes = faults_->writes;
    EXPECT_EQ(failure_of([&] { commit_now(*store, run_.state(2)); }).details.error_number, error_number);
    EXPECT_EQ(failure_of([&] { write_one(*store, state_, 2); }).details.error_number, error_number);
    EXPECT_EQ(faults_->writes, writes);
    EXPECT_EQ(store->in_flight(), 0);
    store.reset();
    expect_step(*open(), run_, 1);
  }
}

TEST_P(FaultyStore, a_rehearsed_write_counts_as_written_and_after_a_failure_nothing_is_rehearsed) {
  const AlignedBuffer buffer(run_.layout(state_).bytes);
  const auto rehearse = [&](RecordStore& store) {
    store.rehearse_write(state_, buffer.data(), 0);
    StoreCompletion done;
    while (store.poll({&done, 1}, Wait::kUntilOne) == 0) {
    }
    if (done.error) std::rethrow_exception(done.error);
  };
  for (const bool rehearsal_fails : {true, false}) {
    auto store = create();
    write_step(*store, run_, 1);
    const int64_t before = store->written_bytes();
    rehearse(*store);
    EXPECT_EQ(store->written_bytes() - before, run_.layout(state_).bytes);
    plan({.op = IoOp::kWrite, .error_number = EIO});
    EXPECT_EQ(failure_of([&] {
                rehearsal_fails ? rehearse(*store) : write_one(*store, {0, Group::kState}, 2);
              }).details.error_number,
              EIO);
    const int64_t writes = faults_->writes, bytes = store->written_bytes();
    EXPECT_EQ(failure_of([&] { rehearse(*store); }).details.error_number, EIO);
    EXPECT_EQ(failure_of([&] { write_one(*store, {0, Group::kState}, 2); }).details.error_number, EIO);
    EXPECT_EQ(failure_of([&] { commit_now(*store, run_.state(2)); }).details.error_number, EIO);
    EXPECT_EQ(faults_->writes, writes);
    EXPECT_EQ(store->written_bytes(), bytes);
    store.reset();
    expect_step(*open(), run_, 1);
  }
}

TEST_P(FaultyStore, a_drive_that_has_become_read_only_is_to_be_made_writable) {
  for (const int error_number : {EROFS, EACCES}) {
    auto store = create();
    write_step(*store, run_, 0);
    plan({.op = IoOp::kWrite, .error_number = error_number});
    const auto [details, message] = failure_of([&] { write_one(*store, state_, 1); });
    EXPECT_EQ(details.error_number, error_number);
    EXPECT_THAT(message, testing::AllOf(HasSubstr("read-only"), HasSubstr("make it writable"),
                                        HasSubstr("open the store again"), testing::Not(HasSubstr("health"))));
  }
}

TEST_P(FaultyStore, a_machine_that_is_at_its_limits_is_no_fault_of_the_drives) {
  auto store = create();
  write_step(*store, run_, 0);
  for (const auto& [error_number, advice] :
       {std::pair(ENOMEM, "out of memory"), {EFBIG, "ulimit -f"}, {EDQUOT, "quota"}}) {
    plan({.op = IoOp::kRead, .error_number = error_number});
    EXPECT_THAT(
        failure_of([&] { read_verified(*store, run_, state_); }).message,
        testing::AllOf(HasSubstr(advice), HasSubstr("open the store again"), testing::Not(HasSubstr("health"))));
  }
}

// The commit's four requests: table, fdatasync, superblock, fdatasync.
TEST_P(FaultyStore, a_commit_that_fails_at_any_point_leaves_a_step_that_opens) {
  const Fault points[] = {{.op = IoOp::kWrite, .nth = 0},
                          {.op = IoOp::kSync, .nth = 0},
                          {.op = IoOp::kWrite, .nth = 1},
                          {.op = IoOp::kSync, .nth = 1}};
  for (Fault point : points) {
    auto store = create();
    write_step(*store, run_, 0);
    write_step(*store, run_, 1);
    write_records(*store, run_, 2);
    point.error_number = EIO;
    plan(point);
    const auto [details, message] = failure_of([&] { commit_now(*store, run_.state(2)); });
    EXPECT_EQ(details.action, point.op == IoOp::kSync ? "fdatasync" : "write");
    EXPECT_EQ(store->committed().step, 1);
    EXPECT_THROW(commit_now(*store, run_.state(2)), IoError);  // a second fdatasync would prove nothing
    store.reset();
    const bool superblock_written = point.op == IoOp::kSync && point.nth == 1;
    expect_step(*open(), run_, superblock_written ? 2 : 1);
  }
}

TEST_P(FaultyStore, completions_that_come_late_and_in_any_order_are_all_told_once) {
  for (const Order order : {Order::kReversed, Order::kShuffled}) {
    faults_->order = order;
    auto store = create();
    for (int64_t step = 0; step < 4; ++step) {
      std::vector<AlignedBuffer> buffers;
      std::vector<uint64_t> tags, told;
      for (RecordId record : run_.records()) {
        AlignedBuffer& buffer = buffers.emplace_back(run_.layout(record).bytes);
        fill_content(run_, record, step, buffer.span());
        store->set_checksums(record, plane_crcs(run_, record, buffer.span()));
        tags.push_back(buffers.size());
        store->write(record, buffer.data(), tags.back());
      }
      StoreCompletion done[3];
      while (store->in_flight() > 0) {
        const size_t count = store->poll(done, Wait::kUntilOne);
        for (size_t i = 0; i < count; ++i) {
          EXPECT_EQ(done[i].error, nullptr);
          told.push_back(done[i].tag);
        }
      }
      EXPECT_THAT(told, testing::UnorderedElementsAreArray(tags));
      commit_now(*store, run_.state(step));
      expect_step(*store, run_, step);
    }
  }
}

TEST_P(FaultyStore, of_many_transfers_only_those_that_failed_have_errors) {
  auto store = create();
  write_step(*store, run_, 0);
  std::vector<AlignedBuffer> buffers;
  // Each state record takes several blocks: two of them fail, in one record or in two.
  faults_->list = {{.op = IoOp::kRead, .nth = faults_->reads + 1, .times = 2, .error_number = EIO}};
  for (RecordId record : run_.records()) {
    const AlignedBuffer& buffer = buffers.emplace_back(run_.layout(record).bytes);
    store->read(record, buffer.data(), buffers.size() - 1);
  }
  size_t failed = 0, told = 0;
  StoreCompletion done[4];
  while (store->in_flight() > 0) {
    const size_t count = store->poll(done, Wait::kUntilOne);
    for (size_t i = 0; i < count; ++i, ++told) {
      if (done[i].error) {
        ++failed;
        continue;
      }
      const RecordId record = run_.records()[done[i].tag];
      EXPECT_TRUE(std::ranges::equal(plane_crcs(run_, record, buffers[done[i].tag].span()), store->checksums(record)));
    }
  }
  EXPECT_EQ(told, run_.records().size());
  EXPECT_GE(failed, 1u);
  EXPECT_LE(failed, 2u);
}

// Of three blocks of a record two are in flight.
TEST_P(FaultyStore, the_first_error_of_a_transfer_is_told_and_nothing_more_of_it_is_requested) {
  StoreOptions two_at_once = options();
  two_at_once.queue.depth = 2;
  auto store = RecordStore::create(run_.geometry, run_.identity, two_at_once);
  write_step(*store, run_, 0);
  const int64_t reads = faults_->reads;
  faults_->list = {{.op = IoOp::kRead, .nth = reads, .error_number = EIO},
                   {.op = IoOp::kRead, .nth = reads + 1, .error_number = ENOSPC}};
  EXPECT_EQ(failure_of([&] { read_verified(*store, run_, state_); }).details.error_number, EIO);
  EXPECT_EQ(faults_->reads - reads, 2);
  EXPECT_EQ(store->in_flight(), 0);
  read_verified(*store, run_, state_);
  EXPECT_EQ(faults_->reads - reads, 2 + 3);
}

TEST_P(FaultyStore, a_request_is_made_twice_where_it_moves_nothing_and_17_times_where_it_is_turned_away) {
  auto store = create();
  write_step(*store, run_, 0);
  const RecordId weights{1, Group::kWeights};
  ASSERT_EQ(run_.layout(weights).bytes, 4096) << "one request";
  for (const auto& [fault, requests] :
       {std::pair(Fault{.op = IoOp::kRead, .times = INT64_MAX / 2, .short_bytes = 0}, 2),
        {Fault{.op = IoOp::kRead, .times = INT64_MAX / 2, .error_number = EAGAIN}, 17}}) {
    const int64_t before = faults_->reads;
    plan(fault);
    EXPECT_THROW(read_verified(*store, run_, weights), IoError);
    EXPECT_EQ(faults_->reads - before, requests);
  }
}

TEST_P(FaultyStore, what_has_ended_is_told_before_the_error_of_the_queue_that_came_after_it) {
  auto store = create();
  write_step(*store, run_, 0);
  const RecordId weights{1, Group::kWeights};
  const AlignedBuffer buffer(run_.layout(weights).bytes);
  store->read(weights, buffer.data(), 7);
  faults_->poll_that_throws = faults_->polls + 1;
  StoreCompletion done[4];
  ASSERT_EQ(store->poll(done, Wait::kUntilOne), 1u);
  EXPECT_EQ(done[0].tag, 7u);
  EXPECT_EQ(done[0].error, nullptr);
  EXPECT_EQ(failure_of([&] { store->poll(done, Wait::kNo); }).details.error_number, ENOMEM);
  EXPECT_EQ(store->poll(done, Wait::kNo), 0u) << "it is told once";
  expect_step(*store, run_, 0);
}

TEST_P(FaultyStore, a_kernel_that_takes_no_request_is_told_of_every_time_and_forgotten_when_it_does_again) {
  if (GetParam() == IoBackend::kThreads) GTEST_SKIP() << "threads ask the kernel otherwise";
  auto store = create();
  write_step(*store, run_, 0);
  store.reset();
  store = open();
  std::thread([&] {
    forbid({.number = SYS_io_uring_enter, .error_number = ENOMEM});
    for (int again = 0; again < 2; ++again) {
      const IoFailure failure = failure_of([&] { store->verify(0); });
      EXPECT_EQ(failure.details.error_number, ENOMEM);
      EXPECT_THAT(failure.message, HasSubstr("sluice-0.swap"));
      EXPECT_EQ(store->in_flight(), 0);
    }
  }).join();
  store->verify(0);
}

INSTANTIATE_TEST_SUITE_P(backends, FaultyStore, testing::Values(IoBackend::kUring, IoBackend::kThreads),
                         name_of_backend);

}  // namespace
}  // namespace sluice
