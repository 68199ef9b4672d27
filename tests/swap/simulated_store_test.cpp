// Stores on drives in simulated time: no drive waits for another, and no read for writes or write for reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "swap/record_checksums.h"
#include "swap/record_store.h"
#include "swap/store_format.h"
#include "tests/fakes/simulated_drives.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

// Records of 1 and 5 MiB on drives in simulated time.
class StoreInSimulatedTime : public testing::Test {
 protected:
  static constexpr int64_t kChunkElements = int64_t{512} << 10;
  static constexpr int kChunks = 24;
  static constexpr int kDepth = 8;
  static constexpr double kBlock = 1 << 20;

  std::unique_ptr<RecordStore> create(std::vector<double> gb_per_s, std::vector<uint32_t> weights, int depth = 16) {
    drives_->gb_per_s = std::move(gb_per_s);
    StoreOptions options{.folder = folder_.path() / "0", .drive_weights = std::move(weights)};
    for (size_t drive = 1; drive < drives_->gb_per_s.size(); ++drive)
      options.more_folders.push_back(folder_.path() / std::to_string(drive));
    options.make_queue = simulated_drives_factory(drives_);
    options.queue.depth = depth;
    const StoreIdentity identity{.model = "simulated", .chunk_elements = kChunkElements, .chunk_count = kChunks};
    auto store = RecordStore::create(geometry_, identity, options);
    for (uint32_t chunk = 0; chunk < kChunks; ++chunk) {
      for (const Group group : {Group::kWeights, Group::kState}) sum_record(*store, {chunk, group}, buffer_.data());
    }
    return store;
  }
  int64_t record_bytes(Group group) const { return record_layout(Precision::kBf16, group, kChunkElements).bytes; }

  // Tagged with its chunk.
  void start(RecordStore& store, IoOp op, RecordId record) {
    if (op == IoOp::kRead) {
      store.read(record, buffer_.data(), record.chunk);
    } else {
      store.write(record, buffer_.data(), record.chunk);
    }
  }
  // The record that ended: its chunk.
  static uint64_t finish_one(RecordStore& store) {
    StoreCompletion done;
    EXPECT_EQ(store.poll({&done, 1}, Wait::kUntilOne), 1u);
    EXPECT_EQ(done.error, nullptr);
    return done.tag;
  }
  static void finish_all(RecordStore& store) {
    while (store.in_flight() > 0) finish_one(store);
  }
  // From its start to its end, of a request of 1 MiB in the other direction than the state of all chunks before.
  double ns_of_one_behind_many(RecordStore& store, IoOp many) {
    for (uint32_t chunk = 0; chunk < kChunks - 1; ++chunk) start(store, many, {chunk, Group::kState});
    const double begin = drives_->now_ns;
    const uint32_t one = kChunks - 1;
    start(store, many == IoOp::kRead ? IoOp::kWrite : IoOp::kRead, {one, Group::kWeights});
    while (finish_one(store) != one) {
    }
    const double ns = drives_->now_ns - begin;
    finish_all(store);
    return ns;
  }

  // Every state record once, `in_flight` at a time. Returns GB/s.
  double run(RecordStore& store, IoOp op, int in_flight) {
    const double begin = drives_->now_ns;
    uint32_t started = 0, ended = 0;
    while (ended < kChunks) {
      for (; started < kChunks && static_cast<int>(started - ended) < in_flight; ++started) {
        start(store, op, {started, Group::kState});
      }
      std::array<StoreCompletion, 8> done;
      const size_t count = store.poll(done, Wait::kUntilOne);
      for (const StoreCompletion& each : std::span(done).first(count)) EXPECT_EQ(each.error, nullptr);
      ended += static_cast<uint32_t>(count);
    }
    return static_cast<double>(kChunks * record_bytes(Group::kState)) / (drives_->now_ns - begin);
  }

  TempFolder folder_;
  std::shared_ptr<SimulatedDrives> drives_ = std::make_shared<SimulatedDrives>();
  Geometry geometry_{std::array{PartitionSpec{"all", {{"all", {kChunks * kChunkElements}}}}}, kChunkElements};
  AlignedBuffer buffer_{record_bytes(Group::kState)};
};

TEST_F(StoreInSimulatedTime, drives_of_any_speeds_give_their_sum_even_with_one_record_under_way) {
  for (const double slow : {1.0, 0.5, 0.1}) {
    SCOPED_TRACE(slow);
    const auto store = create({3, slow}, {30000, static_cast<uint32_t>(slow * 10000)});
    for (const int in_flight : {1, 2, 8}) {
      EXPECT_GE(run(*store, IoOp::kWrite, in_flight), 0.97 * (3 + slow));
      EXPECT_GE(run(*store, IoOp::kRead, in_flight), 0.97 * (3 + slow));
    }
  }
}

TEST_F(StoreInSimulatedTime, a_slow_drive_takes_no_requests_from_a_fast_one) {
  // Weights that are wrong: half of the bytes on a drive of a tenth of the speed. The fast drive's halves of all that
  // is under way end long before the first of the slow drive's.
  const auto store = create({1, 0.1}, {1, 1}, 2);
  drives_->served.clear();
  for (uint32_t chunk = 0; chunk < 8; ++chunk) store->write({chunk, Group::kState}, buffer_.data(), chunk);
  StoreCompletion done;
  ASSERT_EQ(store->poll({&done, 1}, Wait::kUntilOne), 1u);
  int64_t fast_bytes = 0;
  for (const auto& served : drives_->served) fast_bytes += served.drive == 0 ? served.bytes : 0;
  EXPECT_EQ(fast_bytes, 8 * record_bytes(Group::kState) / 2);
  for (int left = 7; left > 0; --left) ASSERT_EQ(store->poll({&done, 1}, Wait::kUntilOne), 1u);
}

TEST_F(StoreInSimulatedTime, a_read_behind_any_number_of_writes_waits_for_what_is_in_flight_and_one_request) {
  const auto store = create({1}, {1}, kDepth);
  start(*store, IoOp::kWrite, {kChunks - 1, Group::kWeights});
  finish_all(*store);
  EXPECT_LE(ns_of_one_behind_many(*store, IoOp::kWrite), kDepth * kBlock + kBlock);
}

TEST_F(StoreInSimulatedTime, a_write_behind_any_number_of_reads_waits_for_what_is_in_flight_and_one_request) {
  const auto store = create({1}, {1}, kDepth);
  run(*store, IoOp::kWrite, 8);
  EXPECT_LE(ns_of_one_behind_many(*store, IoOp::kRead), kDepth * kBlock + kBlock);
}

TEST_F(StoreInSimulatedTime, every_drive_has_as_many_requests_in_flight_as_the_queue_is_deep) {
  const auto store = create({1, 1}, {1, 1}, kDepth);
  drives_->served.clear();
  const double begin = drives_->now_ns;
  for (uint32_t chunk = 0; chunk < 20; ++chunk) store->write({chunk, Group::kState}, buffer_.data(), chunk);
  StoreCompletion done;
  while (store->in_flight() > 0) ASSERT_EQ(store->poll({&done, 1}, Wait::kUntilOne), 1u);
  std::array<int, 2> at_once{};
  for (const auto& served : drives_->served) {
    if (served.submitted_ns == begin) ++at_once[static_cast<size_t>(served.drive)];
  }
  EXPECT_THAT(at_once, testing::Each(kDepth));
}

}  // namespace
}  // namespace sluice
