// The steps that an open store has: which are whole, and going back to the one before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <vector>

#include "tests/fakes/message_of.h"
#include "tests/swap/store_fixture.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

class StoreSteps : public StoreOnADrive {
 protected:
  std::unique_ptr<RecordStore> open_what_can_be_read() {
    StoreOptions passing = options();
    passing.unread = StoreOptions::Unread::kPassedOver;
    return RecordStore::open(run_.geometry, run_.identity, passing);
  }
  // One that the other step has elsewhere.
  void damage_a_record_of(int64_t step) {
    for (const int slot : {0, 1}) {
      const int64_t at = layout().extents(run_.records().back(), slot).span()[0].offset + 5;
      flip_bit(at);
      try {
        open()->verify(step);
      } catch (const CorruptionError&) {
        return;
      }
      flip_bit(at);
    }
    FAIL() << "none of step " << step;
  }
  // The block there is given to nobody from now on.
  void break_block(int64_t offset) { fail_always(IoOp::kRead, offset); }
  void fail_always(IoOp op, int64_t offset) {
    faults_->list.push_back({.op = op, .times = int64_t{1} << 40, .at = offset, .error_number = EIO});
  }
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
    flip_bit(layout().extents(record, slot).span()[0].offset + 5);
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
      flip_bit((of_table ? layout().table_offset(index) + 100 : kSuperblockOffset[index]) + 24);
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

TEST_F(StoreSteps, that_may_be_lost_with_a_damaged_superblock_are_named_in_its_warning) {
  const auto warning = [this](const std::function<void()>& damage) {
    make_steps(3);
    damage();
    lines_ = {};
    open();
    return lines_.text();
  };
  EXPECT_THAT(warning([this] { flip_bit(kSuperblockOffset[newest()] + 24); }),
              HasSubstr("the other one, of step 2, is used; step 3, which may have been committed after it, is lost"));
  EXPECT_THAT(warning([this] { flip_bit(kSuperblockOffset[1 - newest()] + 24); }),
              HasSubstr("is damaged: the other one, of step 3, is used\n"));
  EXPECT_THAT(warning([this] {
                const int area = newest();
                change_bytes(superblock(area).table_offset, std::vector<std::byte>(kStoreBlockBytes));
                flip_bit(kSuperblockOffset[area] + 24);
              }),
              HasSubstr("of step 2, is used; whether a later step was committed cannot be told"));
}

TEST_F(StoreSteps, of_which_the_last_is_not_given_are_refused_until_it_is_given_up) {
  for (const bool of_table : {false, true}) {
    SCOPED_TRACE(of_table ? "its table" : "its superblock");
    make_steps(3);
    const int area = newest();
    break_block(of_table ? layout().table_offset(area) : kSuperblockOffset[area]);
    EXPECT_THAT(failure_of([&] { open(); }).message,
                AllOf(HasSubstr("sluice-0.swap"), HasSubstr("step 2 is the newest that can be read")));
    {
      auto store = open_what_can_be_read();
      EXPECT_THAT(store->openable_steps(), ElementsAre(2));
      EXPECT_TRUE(store->has_unread_commit());
      EXPECT_EQ(store->lost_step(), 3);
      store->verify(2);
      EXPECT_THROW(write_step(*store, run_, 3), std::logic_error) << "before it is given up";
    }
    faults_->list.clear();
    EXPECT_EQ(open()->committed().step, 3) << "a drive that gives it again";
    break_block(of_table ? layout().table_offset(area) : kSuperblockOffset[area]);
    {
      auto store = open_what_can_be_read();
      store->open_step(2);
      EXPECT_FALSE(store->has_unread_commit());
      write_records(*store, run_, 7);
    }
    faults_->list.clear();
    auto store = open();
    expect_step(*store, run_, 2);
    write_step(*store, run_, 3);
    store.reset();
    expect_step(*open(), run_, 3);
  }
}

TEST_F(StoreSteps, of_which_the_last_is_not_given_and_the_other_is_not_whole_are_both_kept) {
  make_steps(3);
  damage_a_record_of(2);
  break_block(kSuperblockOffset[newest()]);
  EXPECT_THROW(open_what_can_be_read()->open_step(2), CorruptionError);
  faults_->list.clear();
  expect_step(*open(), run_, 3);
}

// As where a step that was cut off has written to the older one, and the drive gives a block of the last one wrong
// once.
TEST_F(StoreSteps, of_which_the_last_reads_as_damaged_and_the_other_is_not_whole_are_both_kept) {
  for (const bool of_table : {false, true}) {
    make_steps(3);
    damage_a_record_of(2);
    const int64_t at = (of_table ? layout().table_offset(newest()) + 100 : kSuperblockOffset[newest()]) + 24;
    flip_bit(at);
    for (int again = 0; again < 2; ++again) {
      const std::string message = message_of<CorruptionError>([&] { open(); });
      EXPECT_THAT(message,
                  AllOf(HasSubstr("step 2 is not whole"), HasSubstr("a later commit, which reads as damaged")));
    }
    flip_bit(at);
    expect_step(*open(), run_, 3);
  }
}

TEST_F(StoreSteps, read_whole_in_place_of_one_that_reads_as_damaged_tell_how_far_that_is_and_can_be_interrupted) {
  make_steps(3);
  flip_bit(kSuperblockOffset[newest()] + 24);
  struct Interrupt {};
  std::vector<int64_t> done;
  StoreOptions telling = options();
  telling.progress = [&](int64_t bytes, int64_t) {
    done.push_back(bytes);
    if (done.size() == 3) throw Interrupt();
  };
  EXPECT_THROW(RecordStore::open(run_.geometry, run_.identity, telling), Interrupt);
  EXPECT_THAT(done, SizeIs(3));
  const auto store = RecordStore::open(run_.geometry, run_.identity, telling);
  EXPECT_THAT(done, SizeIs(3 + run_.records().size()));
  expect_step(*store, run_, 2);
}

TEST_F(StoreSteps, whose_superblock_is_damaged_and_whose_table_is_not_given_are_not_passed_over) {
  make_steps(3);
  const int area = newest();
  flip_bit(kSuperblockOffset[area] + 24);
  break_block(layout().table_offset(area));
  EXPECT_THROW(open(), IoError);
  EXPECT_TRUE(open_what_can_be_read()->has_unread_commit());
}

// Between steps an embedder's own bytes may be committed anew.
TEST_F(StoreSteps, that_are_one_step_committed_twice_are_told_of_once_and_none_is_lost_with_the_later) {
  make_steps(3);
  {
    auto store = open();
    commit_now(*store, run_.state(3));
    EXPECT_THAT(store->openable_steps(), ElementsAre(3));
  }
  flip_bit(kSuperblockOffset[newest()] + 24);
  auto store = open();
  EXPECT_EQ(store->lost_step(), std::nullopt);
  expect_step(*store, run_, 3);
}

TEST_F(StoreSteps, of_which_the_older_is_not_given_cost_nothing) {
  make_steps(3);
  const int area = newest();
  break_block(kSuperblockOffset[1 - area]);
  auto store = open();
  EXPECT_THAT(store->openable_steps(), ElementsAre(3));
  EXPECT_FALSE(store->has_unread_commit());
  EXPECT_EQ(store->lost_step(), std::nullopt);
  EXPECT_THAT(lines_.text(), AllOf(HasSubstr("Input/output error"), HasSubstr("step 3 is used")));
  write_step(*store, run_, 4);
  store.reset();
  faults_->list.clear();
  expect_step(*open(), run_, 4);
}

TEST_F(StoreSteps, of_which_a_superblock_and_the_table_before_it_are_not_given_may_be_later_ones) {
  make_steps(3);
  const int area = newest();
  for (const int broken : {area, 1 - area}) {
    faults_->list.clear();
    break_block(kSuperblockOffset[broken]);
    break_block(layout().table_offset(broken));
    EXPECT_THROW(open(), IoError);
    auto store = open_what_can_be_read();
    EXPECT_TRUE(store->has_unread_commit());
    EXPECT_EQ(store->lost_step(), std::nullopt);
    EXPECT_THAT(store->openable_steps(), ElementsAre(broken == area ? 2 : 3));
  }
  break_block(kSuperblockOffset[area]);
  EXPECT_THROW(open_what_can_be_read(), IoError) << "neither is given";
}

TEST_F(StoreSteps, of_which_a_superblock_is_not_given_and_the_table_before_it_is_damaged_may_be_later_ones) {
  make_steps(3);
  const int area = newest();
  break_block(kSuperblockOffset[area]);
  change_bytes(layout().table_offset(area), std::vector<std::byte>(kStoreBlockBytes, std::byte{0x5a}));
  EXPECT_THROW(open(), IoError);
  auto store = open_what_can_be_read();
  EXPECT_TRUE(store->has_unread_commit());
  EXPECT_THAT(store->openable_steps(), ElementsAre(2));
}

TEST_F(StoreSteps, of_which_no_superblock_is_given_may_be_given_the_next_time) {
  make_steps(3);
  for (const int64_t offset : kSuperblockOffset) break_block(offset);
  EXPECT_EQ(failure_of([&] { open(); }).details.error_number, EIO) << "none is known to be damaged";
  EXPECT_EQ(failure_of([&] { open_what_can_be_read(); }).details.error_number, EIO);
  faults_->list.clear();
  expect_step(*open(), run_, 3);
}

TEST_F(StoreSteps, of_which_the_first_superblock_is_emptied_after_the_second_commit_say_so) {
  make_steps(1);  // in one go: no opening has used up a number
  ASSERT_EQ(superblock(1).generation, 2u);
  change_bytes(kSuperblockOffset[0], std::vector<std::byte>(kStoreBlockBytes));
  expect_step(*open(), run_, 1);
  EXPECT_THAT(lines_.text(),
              AllOf(HasSubstr("superblock 0 of"), HasSubstr("has been emptied: the other one, of step 1")));
}

TEST_F(StoreSteps, stay_where_one_that_is_not_given_cannot_be_given_up) {
  make_steps(3);
  const int area = newest();
  break_block(kSuperblockOffset[area]);
  fail_always(IoOp::kWrite, kSuperblockOffset[area]);
  {
    auto store = open_what_can_be_read();
    EXPECT_THROW(store->open_step(2), IoError);
    EXPECT_TRUE(store->has_unread_commit());
  }
  faults_->list.clear();
  expect_step(*open(), run_, 3);
}

}  // namespace
}  // namespace sluice
