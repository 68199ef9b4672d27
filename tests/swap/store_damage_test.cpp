// Damage to what a store says of itself: its headers, superblocks, tables and openings. What is opened, what is mended,
// what is refused and left alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "swap/record_store.h"
#include "swap/store_format.h"
#include "swap/trim.h"
#include "tests/fakes/faulty_queue.h"
#include "tests/fakes/recorded_drives.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Bytes = std::vector<std::byte>;

// On drives in memory, one and two: what a case does to them is taken back by take_back().
class StoreHeaders : public testing::TestWithParam<int> {
 protected:
  StoreHeaders() {
    write_step(*RecordStore::create(run_.geometry, run_.identity, options()), run_, 0);
    for (DriveImage& image : drives_->images) image.mark();
    drives_->events.clear();
  }
  fs::path folder(int drive) const { return folder_.path() / std::to_string(drive); }
  StoreOptions options() {
    StoreOptions options{.folder = folder(0),
                         .make_queue = faulty_queue_factory(faults_, recorded_queue_factory(drives_)),
                         .queue = {.depth = 4},
                         .log = lines_.log()};
    for (int drive = 1; drive < GetParam(); ++drive) options.more_folders.push_back(folder(drive));
    options.drive_weights.assign(static_cast<size_t>(GetParam()), 1);
    return options;
  }
  std::unique_ptr<RecordStore> open() { return RecordStore::open(run_.geometry, run_.identity, options()); }
  void take_back() {
    for (DriveImage& image : drives_->images) image.undo();
    drives_->events.clear();
    lines_ = {};
  }

  DriveImage& image(int drive) { return drives_->images[static_cast<size_t>(drive)]; }
  Bytes block_at(int drive, int64_t offset) {
    Bytes block(kStoreBlockBytes);
    image(drive).read(offset, block);
    return block;
  }
  Bytes copy_of(int drive, int copy) { return block_at(drive, kIdentityOffset[copy]); }
  void put_copy(int drive, int copy, const Bytes& block) { image(drive).write(kIdentityOffset[copy], block); }
  void flip(int drive, int copy, size_t byte) {
    Bytes block = copy_of(drive, copy);
    block[byte] ^= std::byte{1} << (byte % 8);
    put_copy(drive, copy, block);
  }
  // Every byte, or a sample where a sanitizer makes visits slow.
  void for_bytes(const std::function<void(size_t)>& visit) {
    for (size_t byte = 0; byte < kStoreBlockBytes && !HasFailure(); byte += SLUICE_EVERY_NTH_STATE) {
      SCOPED_TRACE(byte);
      visit(byte);
      take_back();
    }
  }
  std::string refusal() {
    try {
      open();
    } catch (const ConfigError& error) {
      return error.what();
    }
    ADD_FAILURE() << "not refused";
    return {};
  }

  TempFolder folder_;
  LogLines lines_;
  TestRun run_;
  std::shared_ptr<RecordedDrives> drives_ = std::make_shared<RecordedDrives>();
  std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();
};

INSTANTIATE_TEST_SUITE_P(drives, StoreHeaders, testing::Values(1, 2), testing::PrintToStringParamName());

TEST_P(StoreHeaders, lie_twice_on_every_drive) {
  for (int drive = 0; drive < GetParam(); ++drive) EXPECT_EQ(copy_of(drive, 0), copy_of(drive, 1));
  open();
  EXPECT_EQ(lines_.text(), "");
}

TEST_P(StoreHeaders, with_any_byte_of_one_copy_flipped_open_and_that_copy_is_mended) {
  for (int drive = 0; drive < GetParam(); ++drive) {
    const Bytes whole = copy_of(drive, 0);
    for (const int copy : {0, 1}) {
      for_bytes([&](size_t byte) {
        flip(drive, copy, byte);
        auto store = open();
        ASSERT_NE(store, nullptr);
        EXPECT_EQ(store->committed().step, 0);
        EXPECT_TRUE(copy_of(drive, 0) == whole && copy_of(drive, 1) == whole);
        EXPECT_THAT(lines_.text(), AllOf(HasSubstr("copy " + std::to_string(copy) + " of the identity header of " +
                                                   (folder(drive) / "sluice-0.swap").string()),
                                         HasSubstr("it is mended")));
      });
    }
  }
}

TEST_P(StoreHeaders, with_the_same_byte_of_both_copies_flipped_are_refused_and_left_as_they_are) {
  std::set<std::string> ends;
  for (int drive = 0; drive < GetParam(); ++drive) {
    for_bytes([&](size_t byte) {
      for (const int copy : {0, 1}) flip(drive, copy, byte);
      const std::string words = refusal();
      EXPECT_THAT(words, AllOf(HasSubstr((folder(drive) / "sluice-0.swap").string()), HasSubstr("--overwrite")));
      EXPECT_THAT(drives_->events, IsEmpty());
      for (const char* end : {"are damaged", "is not a store", "the format of version", "is not drive 1"}) {
        if (words.find(end) != std::string::npos) ends.insert(end);
      }
    });
  }
  EXPECT_GE(ends.size(), SLUICE_EVERY_NTH_STATE > 1 ? 1u : 3u);
}

TEST_P(StoreHeaders, that_are_mended_are_durable_before_anything_else_is_written) {
  for (const int drive : {0, GetParam() - 1}) {
    flip(drive, 0, 100);
    auto store = open();
    ASSERT_NE(store, nullptr);
    ASSERT_GE(drives_->events.size(), 4u);
    const std::vector<DriveEvent> last(drives_->events.end() - 4, drives_->events.end());
    EXPECT_EQ(last[0].kind, DriveEvent::Kind::kWrite);
    EXPECT_EQ(last[0].offset, kIdentityOffset[0]);
    EXPECT_EQ(last[2].kind, DriveEvent::Kind::kSync);
    EXPECT_EQ(last[3].kind, DriveEvent::Kind::kSyncDone);
    for (const DriveEvent& event : last) EXPECT_EQ(event.drive, static_cast<size_t>(drive));
    expect_step(*store, run_, 0);
    store.reset();
    take_back();
  }
}

TEST_P(StoreHeaders, of_two_stores_in_one_file_are_refused_and_left_as_they_are) {
  for (int drive = 0; drive < GetParam(); ++drive) {
    for (const int copy : {0, 1}) {
      DrivePlace place{.store = 77, .drive = drive, .weights = {}, .folders = {}};
      place.weights.assign(static_cast<size_t>(GetParam()), 1);
      Bytes other(kStoreBlockBytes);
      write_identity(other, run_.identity, place);
      put_copy(drive, copy, other);
      EXPECT_THAT(refusal(), AllOf(HasSubstr((folder(drive) / "sluice-0.swap").string()), HasSubstr("whole and differ"),
                                   HasSubstr("--overwrite")));
      EXPECT_THAT(drives_->events, IsEmpty());
      take_back();
    }
  }
}

TEST_P(StoreHeaders, of_which_one_cannot_be_read_open_by_the_other_and_are_written_again) {
  const int64_t open_reads = [&] {
    const int64_t before = faults_->reads;
    open();
    return faults_->reads - before;
  }();
  ASSERT_GT(open_reads, 2);
  for (const int64_t copy : {0, 1}) {
    take_back();
    faults_->list = {{.op = IoOp::kRead, .nth = faults_->reads + copy, .error_number = EIO}};
    auto store = open();
    ASSERT_NE(store, nullptr);
    expect_step(*store, run_, 0);
    EXPECT_THAT(lines_.text(),
                AllOf(HasSubstr("read of"), HasSubstr("errno 5"),
                      HasSubstr("copy " + std::to_string(copy) + " of the identity"), HasSubstr("it is mended")));
  }
  faults_->list = {{.op = IoOp::kRead, .nth = faults_->reads, .times = 2, .error_number = EIO}};
  EXPECT_EQ(failure_of([&] { open(); }).details.error_number, EIO);
}

TEST_P(StoreHeaders, that_cannot_be_mended_cost_a_warning_and_nothing_else) {
  flip(0, 1, 40);
  const Bytes damaged = copy_of(0, 1);
  faults_->list = {{.op = IoOp::kWrite, .nth = faults_->writes + 1, .error_number = EIO}};  // the first: an opening's
  auto store = open();
  ASSERT_NE(store, nullptr);
  EXPECT_THAT(lines_.text(), AllOf(HasSubstr("it cannot be mended"), HasSubstr("errno 5")));
  EXPECT_EQ(copy_of(0, 1), damaged);
  write_step(*store, run_, 1);
  expect_step(*store, run_, 1);
}

TEST_P(StoreHeaders, of_a_creation_cut_off_between_the_copies_open_as_nothing_without_a_word) {
  for (const int64_t copy : {0, 1}) {
    faults_->list = {{.op = IoOp::kWrite, .nth = faults_->writes + copy, .error_number = EIO}};
    for (DriveImage& image : drives_->images) image = {};  // a new file is empty
    EXPECT_THROW(RecordStore::create(run_.geometry, run_.identity, options()), IoError);
    const std::vector<DriveImage> cut_off = drives_->images;
    RecordStore::create(run_.geometry, run_.identity, options());  // for the files: a failed creation takes them away
    drives_->images = cut_off;
    EXPECT_EQ(open(), nullptr);
    EXPECT_EQ(lines_.text(), "");
  }
}

TEST_P(StoreHeaders, of_a_file_that_is_no_store_are_never_mended) {
  const Bytes text(kStoreBlockBytes, std::byte{'a'}), zeros(kStoreBlockBytes);
  for (const auto& [first, second] : {std::pair{text, text}, {text, zeros}, {zeros, text}}) {
    put_copy(0, 0, first);
    put_copy(0, 1, second);
    EXPECT_THAT(refusal(), HasSubstr("is not a store of sluice"));
    EXPECT_THAT(drives_->events, IsEmpty());
    take_back();
  }
}

// In version 2 a header lay once, and the first table where the second copy lies now.
TEST_P(StoreHeaders, of_an_older_version_are_refused_as_such_and_left_as_they_are) {
  Bytes older = copy_of(0, 0);
  older[8] = std::byte{2};
  put_copy(0, 0, older);
  put_copy(0, 1, block_at(0, kTablesOffset));
  EXPECT_THAT(refusal(), HasSubstr("has the format of version 2, this is version 3"));
  EXPECT_THAT(drives_->events, IsEmpty());
}

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
    EXPECT_EQ(read_superblock(block_at(0, kSuperblockOffset[index]), fingerprint_of(run_.identity), found),
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
  void expect_opens_as_nothing() {
    EXPECT_EQ(open(), nullptr);
    EXPECT_THAT(lines_.text(), HasSubstr("there is no other copy"));
    EXPECT_THAT(drives_->events, IsEmpty());
  }
};

INSTANTIATE_TEST_SUITE_P(drives, StoreTables, testing::Values(1, 2), testing::PrintToStringParamName());

TEST_P(StoreTables, with_any_bit_of_the_newest_superblock_flipped_open_at_the_step_before) {
  for_bits(sizeof(Superblock), [&](int64_t byte, size_t bit) {
    flip_bit(kSuperblockOffset[kNewest] + byte, bit);
    expect_opens_at(1);
    EXPECT_THAT(lines_.text(), AllOf(HasSubstr("superblock 0 of"), HasSubstr("the other copy is used")));
  });
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
                                      {kOpeningOffset[0], static_cast<int64_t>(sizeof(Opening))},
                                      {kOpeningOffset[1], static_cast<int64_t>(sizeof(Opening))}}) {
    for_bits(bytes, [&](int64_t byte, size_t bit) {
      flip_bit(offset + byte, bit);
      expect_opens_at(2);
    });
  }
}

TEST_P(StoreTables, with_the_same_bit_of_both_superblocks_flipped_open_as_nothing_and_are_left_as_they_are) {
  for_bits(sizeof(Superblock), [&](int64_t byte, size_t bit) {
    for (const int index : {kNewest, kOlder}) flip_bit(kSuperblockOffset[index] + byte, bit);
    expect_opens_as_nothing();
  });
}

TEST_P(StoreTables, with_no_whole_pair_of_superblock_and_table_open_as_nothing_and_are_left_as_they_are) {
  const int64_t tables[] = {superblock(kNewest).table_offset, superblock(kOlder).table_offset};
  for (const auto& [first, second] : {std::pair{tables[0], tables[1]},
                                      {tables[0], kSuperblockOffset[kOlder]},
                                      {kSuperblockOffset[kNewest], tables[1]}}) {
    flip_bit(first + 50, 3);
    flip_bit(second + 50, 3);
    expect_opens_as_nothing();
    take_back();
  }
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
  auto store = open();
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(store->committed().step, 1);
  for (RecordId record : run_.records()) {
    const bool is_written = record.chunk == written.chunk && record.group == written.group;
    try {
      read_verified(*store, run_, record);
      EXPECT_FALSE(is_written) << "bytes of step 3 were taken for those of step 1";
    } catch (const CorruptionError& error) {
      EXPECT_TRUE(is_written) << error.what();
      EXPECT_THAT(error.what(), AllOf(HasSubstr("chunk 1"), HasSubstr("expected"), HasSubstr("--overwrite")));
    }
  }
}

// In real files.
class StoreHeaderInAFile : public testing::Test {
 protected:
  StoreHeaderInAFile() {
    write_step(*RecordStore::create(run_.geometry, run_.identity, options()), run_, 0);
    number_ = RecordStore::store_number(folder_.path());
  }
  StoreOptions options(std::vector<int64_t> scratch_bytes = {}) {
    return {.folder = folder_.path(), .scratch_bytes = std::move(scratch_bytes), .log = lines_.log()};
  }
  std::unique_ptr<RecordStore> open(std::vector<int64_t> scratch_bytes = {}) {
    return RecordStore::open(run_.geometry, run_.identity, options(std::move(scratch_bytes)));
  }
  void expect_opens(std::vector<int64_t> scratch_bytes = {}) {
    auto store = open(std::move(scratch_bytes));
    ASSERT_NE(store, nullptr);
    expect_step(*store, run_, 0);
  }
  fs::path file() const { return folder_.path() / "sluice-0.swap"; }
  void damage(int copy) {
    std::fstream bytes(file(), std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(kIdentityOffset[copy] + 200);
    bytes.put('\x7f');
  }
  Bytes content() const {
    Bytes bytes(fs::file_size(file()));
    std::ifstream(file(), std::ios::binary)
        .read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return bytes;
  }

  TempFolder folder_;
  LogLines lines_;
  TestRun run_;
  std::optional<uint64_t> number_;
};

TEST_F(StoreHeaderInAFile, with_a_damaged_copy_is_identified_without_a_write_and_not_with_two) {
  ASSERT_TRUE(number_.has_value());
  for (const int copy : {0, 1}) {
    damage(copy);
    const Bytes before = content();
    EXPECT_EQ(RecordStore::store_number(folder_.path()), number_);
    EXPECT_TRUE(RecordStore::identify(folder_.path()).has_value());
    EXPECT_TRUE(content() == before);
    expect_opens();
  }
  for (const int copy : {0, 1}) damage(copy);
  EXPECT_EQ(RecordStore::identify(folder_.path()), std::nullopt);
}

TEST_F(StoreHeaderInAFile, with_a_damaged_copy_is_trimmed) {
  damage(0);
  EXPECT_EQ(trim_stores({&folder_.path(), 1}, number_).size(), 1u);
  EXPECT_FALSE(fs::exists(file()));
}

TEST_F(StoreHeaderInAFile, with_a_damaged_copy_grows_for_scratch_and_is_mended) {
  const Bytes before = content();
  const auto bytes = fs::file_size(file());
  for (const int copy : {0, 1}) {
    damage(copy);
    expect_opens({1 << 20});
    EXPECT_EQ(fs::file_size(file()), bytes + (1 << 20));
    EXPECT_THAT(lines_.text(), HasSubstr("copy " + std::to_string(copy) + " of the identity header"));
    const Bytes after = content();
    for (const int64_t offset : kIdentityOffset) {
      EXPECT_TRUE(std::equal(after.begin() + offset, after.begin() + offset + kStoreBlockBytes, before.begin()));
    }
  }
}

TEST_F(StoreHeaderInAFile, that_lost_its_second_copy_with_its_end_was_cut_short_and_is_left_so) {
  for (const int64_t blocks : {5, 2, 1}) {
    fs::resize_file(file(), static_cast<uintmax_t>(blocks * kStoreBlockBytes));
    EXPECT_THROW(open(), CorruptionError);
    EXPECT_EQ(fs::file_size(file()), static_cast<uintmax_t>(blocks * kStoreBlockBytes));
    EXPECT_THAT(lines_.text(), Not(HasSubstr("mended")));
  }
}

TEST_F(StoreHeaderInAFile, is_looked_for_in_a_short_file_that_is_no_store_as_well) {
  for (const size_t bytes : {5000, 10000, 21000}) {
    std::ofstream(file()) << std::string(bytes, 'a');
    try {
      open();
      ADD_FAILURE() << "not refused";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("is not a store of sluice"));
    }
    EXPECT_EQ(fs::file_size(file()), bytes);
  }
}

}  // namespace
}  // namespace sluice
