// Damage to a store's identity headers: what is opened, what is mended, what is refused and left alone.
#include <algorithm>
#include <cerrno>
#include <fstream>
#include <set>

#include "swap/trim.h"
#include "tests/swap/store_damage_fixture.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
INSTANTIATE_TEST_SUITE_P(drives, StoreHeaders, testing::Values(1, 2), testing::PrintToStringParamName());

TEST_P(StoreHeaders, lie_twice_on_every_drive) {
  for (int drive = 0; drive < GetParam(); ++drive) EXPECT_EQ(copy_of(drive, 0), copy_of(drive, 1));
  open();
  EXPECT_EQ(lines_.text(), "");
}

// What the drive does not give is judged with the rest of the store, on however many drives it lies.
TEST_P(StoreHeaders, are_enough_to_go_on_where_one_superblock_is_given_to_nobody) {
  write_step(*open(), run_, 1);
  for (DriveImage& image : drives_->images) image.mark();
  StoreOptions passing = options();
  passing.unread = StoreOptions::Unread::kPassedOver;
  std::vector<int64_t> steps;
  for (const int64_t offset : kSuperblockOffset) {
    faults_->list = {{.op = IoOp::kRead, .times = int64_t{1} << 40, .at = offset, .error_number = EIO}};
    steps.push_back(RecordStore::open(run_.geometry, run_.identity, passing)->committed().step);
    faults_->list.clear();
    take_back();
  }
  EXPECT_THAT(steps, testing::UnorderedElementsAre(0, 1));
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
      EXPECT_THAT(words, AllOf(HasSubstr((folder(drive) / "sluice-0.swap").string()),
                               HasSubstr("start over with a new store")));
      EXPECT_THAT(drives_->events, IsEmpty());
      for (const char* end : {"are damaged", "is not a store", "the format of version", "is not drive 1"}) {
        if (words.find(end) != std::string::npos) ends.insert(end);
      }
      if (byte > 12) {  // behind the magic and the version
        EXPECT_THAT(words, HasSubstr("identity header of"));
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
      write_identity(other, identity_with(run_.geometry, run_.identity), place);
      put_copy(drive, copy, other);
      EXPECT_THAT(refusal(), AllOf(HasSubstr((folder(drive) / "sluice-0.swap").string()), HasSubstr("whole and differ"),
                                   HasSubstr("start over with a new store")));
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
    write_step(*RecordStore::create(run_.geometry, run_.identity, options()), run_, 0);  // for the files
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
  EXPECT_THAT(refusal(), HasSubstr("has the format of version 2, this is version 4"));
  EXPECT_THAT(drives_->events, IsEmpty());
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

TEST_F(StoreHeaderInAFile, that_is_sealed_and_of_a_drive_beyond_the_last_is_damaged) {
  for (const int drive : {1, 200, -1}) {
    Bytes block(kStoreBlockBytes);
    write_identity(block, identity_with(run_.geometry, run_.identity),
                   {.store = *number_, .drive = drive, .weights = {1}, .folders = {}});
    IdentityHeader ignored;
    ASSERT_EQ(read_identity(block, ignored), HeaderState::kDamaged) << drive;
    std::fstream bytes(file(), std::ios::in | std::ios::out | std::ios::binary);
    for (const int64_t offset : kIdentityOffset)
      bytes.seekp(offset).write(reinterpret_cast<const char*>(block.data()), kStoreBlockBytes);
    bytes.close();
    const StoreParts parts = find_parts({&folder_.path(), 1}, number_);
    EXPECT_THAT(parts.missing, IsEmpty()) << "a file lies there";
    EXPECT_THAT(parts.trimmed, IsEmpty());
    EXPECT_THROW(open(), CorruptionError);
  }
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

// As StoreHeaders, of several drives.
using SeveralStoreHeaders = StoreHeaders;
INSTANTIATE_TEST_SUITE_P(drives, SeveralStoreHeaders, testing::Values(2), testing::PrintToStringParamName());

TEST_P(SeveralStoreHeaders, of_the_first_drive_are_durable_before_another_drive_has_any) {
  drives_->events.clear();
  RecordStore::create(run_.geometry, run_.identity, options());
  int copies = 0;
  bool synced = false;
  for (const DriveEvent& event : drives_->events) {
    if (event.kind == DriveEvent::Kind::kWrite && event.drive == 1) break;
    if (event.kind == DriveEvent::Kind::kWriteDone && event.drive == 0) ++copies, synced = false;
    if (event.kind == DriveEvent::Kind::kSyncDone && event.drive == 0) synced = true;
  }
  EXPECT_EQ(copies, 2);
  EXPECT_TRUE(synced);
}

}  // namespace
}  // namespace sluice
