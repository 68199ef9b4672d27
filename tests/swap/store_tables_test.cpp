// Damage to a store's superblocks, tables and openings: what is opened, and what is refused and left alone.
#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "tests/swap/store_damage_fixture.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

// Steps 0, 1 and 2 are committed: superblock and table 0 are those of step 2, the others those of step 1.
class StoreTables : public StoreHeaders {
 protected:
  StoreTables() {
    {
      auto store = open();
      for (const int64_t step : {1, 2}) write_step(*store, run_, step);
    }
    for (DriveImage& image : drives_->images) image.mark();
    drives_->events.clear();
  }
  static constexpr int kNewest = 0, kOlder = 1;
  static constexpr int64_t kManyBytes = 100;
  Superblock superblock(int index) {
    Superblock found;
    EXPECT_EQ(read_superblock(block_at(0, kSuperblockOffset[index]),
                              fingerprint_of(identity_with(run_.geometry, run_.identity)), found),
              BlockState::kValid);
    return found;
  }
  void flip_bit(int64_t offset, size_t bit) {
    const int64_t block_offset = offset / kStoreBlockBytes * kStoreBlockBytes;
    Bytes block = block_at(0, block_offset);
    block[static_cast<size_t>(offset - block_offset)] ^= std::byte{1} << bit;
    image(0).write(block_offset, block);
  }
  // Each bit of so many bytes alone, or one of every byte; of a sample where a sanitizer makes visits slow.
  void for_bits(int64_t bytes, const std::function<void(int64_t, size_t)>& visit) {
    const int64_t step = bytes <= kManyBytes ? 1 : 7;
    for (int64_t at = 0; at < 8 * bytes && !HasFatalFailure(); at += step * SLUICE_EVERY_NTH_STATE) {
      SCOPED_TRACE(at);
      visit(at / 8, static_cast<size_t>(at % 8));
      take_back();
    }
  }
  // All records are those of the step, and training goes on from there.
  void expect_opens_at(int64_t step) {
    {
      auto store = open();
      ASSERT_NE(store, nullptr);
      ASSERT_EQ(store->committed().step, step);
      expect_step(*store, run_, step);
      write_step(*store, run_, 9);
    }
    auto store = open();
    ASSERT_NE(store, nullptr);
    expect_step(*store, run_, 9);
  }
  // That is, not taken for a creation that was cut off, which may be begun anew.
  void expect_refused() {
    EXPECT_THAT([this] { open(); }, ThrowsMessage<CorruptionError>(AllOf(HasSubstr(store_path(folder(0), 0).string()),
                                                                         HasSubstr("steps were committed"))));
    EXPECT_THAT(drives_->events, IsEmpty());
  }
};

INSTANTIATE_TEST_SUITE_P(drives, StoreTables, testing::Values(1, 2), testing::PrintToStringParamName());

TEST_P(StoreTables, with_any_bit_of_the_newest_superblock_flipped_open_at_the_step_before) {
  for_bits(sizeof(Superblock), [&](int64_t byte, size_t bit) {
    flip_bit(kSuperblockOffset[kNewest] + byte, bit);
    expect_opens_at(1);
    EXPECT_THAT(lines_.text(), AllOf(HasSubstr("superblock 0 of"), HasSubstr("the other one, of step")));
  });
}

TEST_P(StoreTables, with_a_superblock_in_the_place_of_the_other_one_say_that_it_is_damaged) {
  for (const int replaced : {kNewest, kOlder}) {
    image(0).write(kSuperblockOffset[replaced], block_at(0, kSuperblockOffset[1 - replaced]));
    expect_opens_at(replaced == kNewest ? 1 : 2);
    EXPECT_THAT(lines_.text(), HasSubstr(fmt::format("superblock {} of {} is damaged: the other one, of step", replaced,
                                                     store_path(folder(0), 0).string())));
    take_back();
  }
}

TEST_P(StoreTables, with_a_bit_of_any_byte_of_the_newest_table_flipped_open_at_the_step_before) {
  const Superblock newest = superblock(kNewest);
  for_bits(newest.table_bytes, [&](int64_t byte, size_t bit) {
    flip_bit(newest.table_offset + byte, bit);
    expect_opens_at(1);
    EXPECT_THAT(lines_.text(), HasSubstr("the table of step 2"));
  });
}

TEST_P(StoreTables, with_a_bit_of_the_older_superblock_table_or_opening_flipped_open_at_the_newest_step) {
  const Superblock older = superblock(kOlder);
  for (const auto& [offset, bytes] : {std::pair{kSuperblockOffset[kOlder], static_cast<int64_t>(sizeof(Superblock))},
                                      {older.table_offset, older.table_bytes},
                                      {kOpeningOffset[0], static_cast<int64_t>(sizeof(OpeningBlock))},
                                      {kOpeningOffset[1], static_cast<int64_t>(sizeof(OpeningBlock))}}) {
    for_bits(bytes, [&](int64_t byte, size_t bit) {
      flip_bit(offset + byte, bit);
      expect_opens_at(2);
    });
  }
}

// A drive may give a block wrongly once, and as it is the next time.
TEST_P(StoreTables, that_were_misread_once_stay_at_the_step_whose_slots_are_kept_since) {
  const Fault of_superblock = {
      .op = IoOp::kRead, .times = INT64_MAX, .at = kSuperblockOffset[kNewest], .wrong_byte = 20};
  const int64_t table = superblock(kNewest).table_offset;
  const Fault of_table = {.op = IoOp::kRead, .times = INT64_MAX, .at = table, .wrong_byte = 20};
  const Fault of_magic = {.op = IoOp::kRead, .times = INT64_MAX, .at = table, .wrong_byte = 2};  // tells no step
  using List = std::vector<Fault>;
  for (const List& list : {List{of_superblock}, List{of_table}, List{of_superblock, of_magic}}) {
    SCOPED_TRACE(fmt::format("{} blocks, the first at {}", list.size(), list[0].at));
    faults_->list = list;
    {
      auto store = open();
      ASSERT_NE(store, nullptr);
      ASSERT_EQ(store->committed().step, 1);
      write_records(*store, run_, 9);  // and the run ends before its commit
    }
    faults_->list = {};
    expect_opens_at(1);
    take_back();
  }
}

TEST_P(StoreTables, of_which_any_block_was_misread_once_stay_at_the_step_that_was_opened_then) {
  const int64_t before = faults_->reads;
  open();
  const int64_t reads = faults_->reads - before;
  take_back();
  for (int64_t nth = 0; nth < reads; ++nth) {
    SCOPED_TRACE(nth);
    faults_->list = {{.op = IoOp::kRead, .nth = faults_->reads + nth, .wrong_byte = 20}};
    int64_t step = -1;
    {
      auto store = open();
      ASSERT_NE(store, nullptr);
      step = store->committed().step;
      write_records(*store, run_, 9);
    }
    faults_->list = {};
    expect_opens_at(step);
    take_back();
  }
}

// The last reads of an opening: both superblocks, the newest table, the older one, both of the openings.
TEST_P(StoreTables, of_which_a_part_cannot_be_read_open_where_the_newest_step_needs_no_more) {
  const int64_t before = faults_->reads;
  open();
  const int64_t reads = faults_->reads - before;
  take_back();
  for (const int64_t from_the_end : {1, 2, 3, 5}) {
    faults_->list = {{.op = IoOp::kRead, .nth = faults_->reads + reads - from_the_end, .error_number = EIO}};
    expect_opens_at(2);
    EXPECT_THAT(lines_.text(), HasSubstr("Input/output error")) << from_the_end;
    take_back();
  }
  for (const int64_t from_the_end : {4, 6}) {
    faults_->list = {{.op = IoOp::kRead, .nth = faults_->reads + reads - from_the_end, .error_number = EIO}};
    EXPECT_THROW(open(), IoError) << from_the_end;
    faults_->list = {};
    expect_opens_at(2);
    take_back();
  }
}

// The newer step may be what a crash leaves: nothing is written into its slots.
TEST_P(StoreTables, of_which_the_newer_superblock_cannot_be_blanked_write_nothing_more) {
  {
    auto store = open();
    faults_->list = {{.op = IoOp::kWrite, .nth = faults_->writes, .error_number = EIO}};
    EXPECT_THROW(store->open_step(1), IoError);
    EXPECT_THROW(write_step(*store, run_, 3), IoError);
  }
  expect_opens_at(2);
}

// As by somebody's dd: what was committed is not taken for a creation that was cut off.
TEST_P(StoreTables, behind_an_emptied_header_are_not_begun_anew) {
  const Bytes empty(static_cast<size_t>(kStoreBlockBytes));
  for (const int64_t offset : kIdentityOffset) image(0).write(offset, empty);
  EXPECT_THAT([this] { open(); },
              ThrowsMessage<CorruptionError>(HasSubstr("have been emptied, and steps were committed")));
}

TEST_P(StoreTables, with_the_same_bit_of_both_superblocks_flipped_are_refused_and_left_as_they_are) {
  for_bits(sizeof(Superblock), [&](int64_t byte, size_t bit) {
    for (const int index : {kNewest, kOlder}) flip_bit(kSuperblockOffset[index] + byte, bit);
    expect_refused();
  });
}

TEST_P(StoreTables, with_no_whole_pair_of_superblock_and_table_are_refused_and_left_as_they_are) {
  const int64_t tables[] = {superblock(kNewest).table_offset, superblock(kOlder).table_offset};
  for (const auto& [first, second] : {std::pair{tables[0], tables[1]},
                                      {tables[0], kSuperblockOffset[kOlder]},
                                      {kSuperblockOffset[kNewest], tables[1]}}) {
    flip_bit(first + 50, 3);
    flip_bit(second + 50, 3);
    expect_refused();
    take_back();
  }
}

// As by somebody's dd.
TEST_P(StoreTables, of_which_a_superblock_was_emptied_say_so_and_with_both_emptied_are_refused) {
  const Bytes empty(static_cast<size_t>(kStoreBlockBytes));
  image(0).write(kSuperblockOffset[kNewest], empty);
  expect_opens_at(1);
  EXPECT_THAT(lines_.text(),
              AllOf(HasSubstr("superblock 0 of"), HasSubstr("has been emptied: the other one, of step")));
  take_back();
  image(0).write(kSuperblockOffset[kNewest], empty);
  EXPECT_EQ(open()->lost_step(), 2) << "as of a damaged one";
  take_back();
  for (const int64_t offset : kSuperblockOffset) image(0).write(offset, empty);
  expect_refused();
  for (int64_t at = 0; at < kTablesOffset; at += kStoreBlockBytes) image(0).write(at, empty);
  EXPECT_THAT([this] { open(); },
              ThrowsMessage<CorruptionError>(HasSubstr("have been emptied, and steps were committed")));
}

// The slots of the step before are those that the next step writes to.
TEST_P(StoreTables, that_lost_the_newest_step_in_the_middle_of_the_next_one_name_what_was_written_over) {
  const RecordId written{1, Group::kState};
  {
    auto store = open();
    AlignedBuffer buffer(run_.layout(written).bytes);
    fill_content(run_, written, 3, buffer.span());
    write_now(*store, written, buffer.data());
  }
  flip_bit(kSuperblockOffset[kNewest] + 30, 0);
  EXPECT_THAT(message_of<CorruptionError>([&] { open(); }),
              AllOf(HasSubstr("step 1 is not whole"), HasSubstr("chunk 1, state"), HasSubstr("expected"),
                    HasSubstr("start over with a new store")));
  StoreOptions to_read = options();
  to_read.access = StoreOptions::Access::kRead;
  const auto store = RecordStore::open(run_.geometry, run_.identity, to_read);
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(store->committed().step, 1);
  for (RecordId record : run_.records()) {
    const bool is_written = record.chunk == written.chunk && record.group == written.group;
    try {
      read_verified(*store, run_, record);
      EXPECT_FALSE(is_written) << "bytes of step 3 were taken for those of step 1";
    } catch (const CorruptionError& error) {
      EXPECT_TRUE(is_written) << error.what();
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr("chunk 1"), HasSubstr("expected"), HasSubstr("start over with a new store")));
    }
  }
}

TEST_P(StoreTables, behind_an_opening_that_cannot_be_read_no_number_is_used_twice) {
  int64_t reads = 0;
  for (int openings = 0; openings < 4; ++openings) {
    const int64_t before = faults_->reads;
    open();
    reads = faults_->reads - before;
  }
  OpeningBlock openings[2];
  for (int i : {0, 1}) read_opening(block_at(0, kOpeningOffset[i]), openings[i]);
  const uint64_t burnt[2] = {openings[0].generation, openings[1].generation};
  const int64_t from_the_end = burnt[0] > burnt[1] ? 2 : 1;  // the newer of the last two reads
  faults_->list = {{.op = IoOp::kRead, .nth = faults_->reads + reads - from_the_end, .error_number = EIO}};
  auto store = open();
  ASSERT_NE(store, nullptr);
  ASSERT_THAT(lines_.text(), HasSubstr("Input/output error"));
  write_step(*store, run_, 3);
  // A superblock of the run before, lost on its way, had the number behind the one that its opening burnt.
  EXPECT_GT(std::max(superblock(0).generation, superblock(1).generation), std::max(burnt[0], burnt[1]) + 1);
}

TEST_P(StoreTables, behind_an_opening_that_is_damaged_no_number_is_used_twice) {
  for (int openings = 0; openings < 4; ++openings) open();
  OpeningBlock openings[2];
  for (int i : {0, 1}) read_opening(block_at(0, kOpeningOffset[i]), openings[i]);
  const int newer = openings[0].generation > openings[1].generation ? 0 : 1;
  Bytes block = block_at(0, kOpeningOffset[newer]);
  block[9] ^= std::byte{1};
  image(0).write(kOpeningOffset[newer], block);
  write_step(*open(), run_, 3);
  EXPECT_GT(std::max(superblock(0).generation, superblock(1).generation), openings[newer].generation + 1);
}

}  // namespace
}  // namespace sluice
