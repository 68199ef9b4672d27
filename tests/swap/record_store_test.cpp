#include "swap/record_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/io_backends.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Store : public OnEachBackend {
 protected:
  StoreOptions options() {
    return {.folder = folder_.path() / "store",
            .queue = {.backend = GetParam(), .depth = 4},
            .block_bytes = 4096,
            .log = lines_.log()};
  }
  std::unique_ptr<RecordStore> create() { return RecordStore::create(run_.geometry, run_.identity, options()); }
  std::unique_ptr<RecordStore> open() { return RecordStore::open(run_.geometry, run_.identity, options()); }

  TempFolder folder_;
  LogLines lines_;
  TestRun run_;
};

TEST_P(Store, opens_at_the_last_committed_step_with_every_byte_of_it) {
  {
    auto store = create();
    for (int64_t step : {0, 1, 2, 5}) write_step(*store, run_, step);
    expect_step(*store, run_, 5);
    EXPECT_THAT(store->openable_steps(), ElementsAre(5, 2));
  }
  auto store = open();
  ASSERT_NE(store, nullptr);
  expect_step(*store, run_, 5);
  EXPECT_THAT(store->openable_steps(), ElementsAre(5, 2));
  EXPECT_EQ(lines_.text(), "");
}

TEST_P(Store, goes_on_from_where_it_was_opened) {
  write_step(*create(), run_, 0);
  for (int64_t step = 1; step < 6; ++step) {
    auto store = open();
    ASSERT_NE(store, nullptr);
    expect_step(*store, run_, step - 1);
    write_step(*store, run_, step);
  }
  expect_step(*open(), run_, 5);
}

TEST_P(Store, a_file_that_was_deleted_is_committed_to_where_its_owner_did_it) {
  for (const FileNames names : {FileNames::kStay, FileNames::kTakenAway}) {
    StoreOptions with = options();
    with.names = names;
    auto store = RecordStore::create(run_.geometry, run_.identity, with);
    write_step(*store, run_, 0);
    std::filesystem::remove(store->path());
    write_records(*store, run_, 1);
    if (names == FileNames::kTakenAway) {
      commit_now(*store, run_.state(1));
      EXPECT_EQ(store->committed().step, 1);
    } else {
      const auto [details, message] = failure_of([&] { commit_now(*store, run_.state(1)); });
      EXPECT_EQ(details.path, store->path().string());
      EXPECT_THAT(message, HasSubstr("deleted while it was in use"));
      EXPECT_EQ(store->committed().step, 0);
    }
  }
}

TEST_P(Store, a_file_that_was_moved_away_is_not_committed_to_whatever_lies_in_its_place) {
  auto store = create();
  write_step(*store, run_, 0);
  const std::filesystem::path path = store->path();
  std::filesystem::path away = path;
  away += ".away";
  std::filesystem::rename(path, away);
  std::filesystem::copy_file(away, path);
  write_records(*store, run_, 1);
  const auto [details, message] = failure_of([&] { commit_now(*store, run_.state(1)); });
  EXPECT_EQ(details.path, path.string());
  EXPECT_THAT(message, HasSubstr("moved away while it was in use"));
  store.reset();
  std::filesystem::rename(away, path);
  expect_step(*open(), run_, 0);
}

TEST_P(Store, writes_that_were_not_committed_leave_no_trace) {
  {
    auto store = create();
    write_step(*store, run_, 0);
    write_step(*store, run_, 1);
    for (int again = 0; again < 3; ++again) write_records(*store, run_, 7 + again);  // in place, in the working slots
    EXPECT_THAT(store->openable_steps(), ElementsAre(1));
  }
  expect_step(*open(), run_, 1);
}

TEST_P(Store, a_record_given_up_is_read_as_it_was_committed) {
  auto store = create();
  write_step(*store, run_, 0);
  write_step(*store, run_, 1);
  write_records(*store, run_, 7);
  for (RecordId record : run_.records()) store->discard(record);
  expect_step(*store, run_, 1);
  write_step(*store, run_, 2);
  expect_step(*store, run_, 2);
  store.reset();
  expect_step(*open(), run_, 2);
}

INSTANTIATE_TEST_SUITE_P(backends, Store, testing::Values(IoBackend::kUring, IoBackend::kThreads), name_of_backend);

}  // namespace
}  // namespace sluice
