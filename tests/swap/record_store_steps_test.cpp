// The steps that an open store has: which are whole, and going back to the one before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "swap/record_store.h"
#include "swap/store_format.h"
#include "tests/fakes/flip_byte.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class StoreSteps : public testing::Test {
 protected:
  StoreOptions options() {
    return {.folder = folder_.path(), .queue = {.backend = IoBackend::kThreads, .depth = 4}, .log = lines_.log()};
  }
  void make_steps(int64_t last) {
    auto store = RecordStore::create(run_.geometry, run_.identity, options());
    for (int64_t step = 0; step <= last; ++step) write_step(*store, run_, step);
  }
  std::unique_ptr<RecordStore> open() { return RecordStore::open(run_.geometry, run_.identity, options()); }
  void flip_a_byte_of(RecordId record, int slot) {
    const std::vector<uint32_t> weights = {1};
    const StoreLayout layout(run_.geometry, run_.identity.format(), weights, {});
    flip_a_byte(layout.extents(record, slot).span()[0].offset + 5);
  }
  void flip_a_byte(int64_t offset) { flip_byte(folder_.path() / "sluice-0.swap", offset); }

  TempFolder folder_;
  LogLines lines_;
  TestRun run_;
};

TEST_F(StoreSteps, are_both_whole_and_verifying_tells_how_far_it_is_and_changes_nothing) {
  make_steps(3);
  auto store = open();
  for (const int64_t step : store->openable_steps()) {
    std::vector<int64_t> done;
    int64_t in_all = 0;
    store->verify(step, [&](int64_t bytes, int64_t all) {
      done.push_back(bytes);
      in_all = all;
    });
    EXPECT_EQ(done.size(), run_.records().size());
    EXPECT_TRUE(std::ranges::is_sorted(done));
    EXPECT_EQ(done.back(), in_all);
  }
  EXPECT_THAT(store->openable_steps(), ElementsAre(3, 2));
  EXPECT_THROW(store->verify(1), std::logic_error);
  expect_step(*store, run_, 3);
}

TEST_F(StoreSteps, are_told_apart_by_a_changed_byte_and_the_older_can_be_gone_back_to) {
  int gone_back = 0;
  for (const int slot : {0, 1}) {
    make_steps(3);
    const RecordId record = run_.records().back();
    flip_a_byte_of(record, slot);
    auto store = open();
    std::vector<int64_t> whole;
    for (const int64_t step : store->openable_steps()) {
      try {
        store->verify(step);
        whole.push_back(step);
      } catch (const CorruptionError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("step " + std::to_string(step) + " is not whole"),
                                        HasSubstr("chunk 4, state"), HasSubstr("sluice-0.swap")));
      }
    }
    ASSERT_EQ(whole.size(), 1u);
    if (whole[0] == 3) continue;
    ++gone_back;
    store->open_step(2);
    expect_step(*store, run_, 2);
    write_step(*store, run_, 3);
    store.reset();
    expect_step(*open(), run_, 3);
  }
  EXPECT_EQ(gone_back, 1);
}

TEST_F(StoreSteps, are_known_to_be_lost_where_the_later_superblock_or_table_is_damaged) {
  for (const bool of_table : {false, true}) {
    int lost = 0;
    for (const int index : {0, 1}) {
      make_steps(3);
      EXPECT_EQ(open()->lost_step(), std::nullopt);
      const std::vector<uint32_t> weights = {1};
      const StoreLayout layout(run_.geometry, run_.identity.format(), weights, {});
      flip_a_byte((of_table ? layout.table_offset(index) + 100 : kSuperblockOffset[index]) + 24);
      auto store = open();
      if (store->committed().step == 3) {
        EXPECT_EQ(store->lost_step(), std::nullopt) << "the older one";
      } else {
        EXPECT_EQ(store->lost_step(), 3);
        ++lost;
      }
    }
    EXPECT_EQ(lost, 1);
  }
}

}  // namespace
}  // namespace sluice
