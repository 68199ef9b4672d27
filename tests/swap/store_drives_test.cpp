// Stores on several drives: how records are split, and what an opening checks.
#include "swap/store_drives.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <utility>

#include "core/bytes.h"
#include "swap/record_store.h"
#include "swap/store_format.h"
#include "tests/fakes/message_of.h"
#include "tests/fakes/mounted_drive.h"
#include "tests/fakes/simulated_drives.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class StoreDrives : public testing::TestWithParam<IoBackend> {
 protected:
  fs::path folder(int drive) const { return folder_.path() / std::string(1, static_cast<char>('a' + drive)); }
  fs::path file(int drive) const { return folder(drive) / "sluice-0.swap"; }
  StoreOptions options(std::vector<uint32_t> weights) const {
    StoreOptions options{.folder = folder(0), .drive_weights = weights, .queue = {.backend = GetParam(), .depth = 8}};
    for (int drive = 1; drive < static_cast<int>(weights.size()); ++drive)
      options.more_folders.push_back(folder(drive));
    options.block_bytes = 8192;
    return options;
  }
  std::unique_ptr<RecordStore> create(const StoreOptions& with) const {
    return RecordStore::create(run_.geometry, run_.identity, with);
  }
  std::unique_ptr<RecordStore> open(const StoreOptions& with) const {
    return RecordStore::open(run_.geometry, run_.identity, with);
  }
  std::string refusal(const StoreOptions& with) const {
    return message_or<ConfigError>("not refused", [&] { open(with); });
  }
  void make_two() const { write_step(*create(options({1, 1})), run_, 0); }
  void make_two_and_be_killed() const { leave_as_if_killed(create(options({1, 1})), std::array{file(0), file(1)}); }

  TempFolder folder_;
  TestRun run_;
};

TEST_P(StoreDrives, whose_names_are_longer_than_a_header_are_counted_where_one_is_missing) {
  StoreOptions with = options({1, 1, 1});
  with.folder = folder_.path() / std::string(200, 'a');
  with.more_folders = {folder_.path() / std::string(200, 'b'), folder_.path() / std::string(200, 'c')};
  write_step(*create(with), run_, 0);
  with.more_folders.pop_back();
  EXPECT_THAT(refusal(with), HasSubstr("[" + with.folder.string() + "] and 2 more, whose names are not kept, in this"));
}

INSTANTIATE_TEST_SUITE_P(Backends, StoreDrives, testing::Values(IoBackend::kAuto, IoBackend::kThreads),
                         [](const auto& each) { return each.param == IoBackend::kAuto ? "auto" : "threads"; });

TEST_P(StoreDrives, whose_files_are_one_by_a_link_are_refused_as_that_and_not_as_another_runs) {
  make_two();
  fs::remove(file(1));
  fs::create_symlink(file(0), file(1));
  const auto refused = HasSubstr(file(0).string() + " and " + file(1).string() + " are one file by a link");
  EXPECT_THAT(refusal(options({1, 1})), refused);
  EXPECT_THAT(message_or<ConfigError>("not refused", [&] { create(options({1, 1})); }), refused);
}

TEST_P(StoreDrives, records_split_over_any_drives_come_back_whole_after_every_commit) {
  const std::vector<std::vector<uint32_t>> all = {
      {1, 1}, {900, 100}, {1, 65535}, {3, 2, 1}, std::vector<uint32_t>(16, 1)};
  for (const std::vector<uint32_t>& weights : all) {
    {
      const auto store = create(options(weights));
      for (int64_t step = 0; step < 3; ++step) write_step(*store, run_, step);
      expect_step(*store, run_, 2);
    }
    const auto store = open(options(std::vector<uint32_t>(weights.size(), 7)));  // the header's count, not these
    ASSERT_NE(store, nullptr);
    expect_step(*store, run_, 2);
    for (size_t drive = 0; drive < weights.size(); ++drive) fs::remove_all(folder(static_cast<int>(drive)));
  }
}

TEST_P(StoreDrives, files_together_have_the_size_that_was_announced_and_parts_follow_the_weights) {
  const auto store = create(options({3, 1}));
  const auto size = [&](int drive) { return static_cast<int64_t>(fs::file_size(file(drive))); };
  EXPECT_EQ(size(0) + size(1), RecordStore::file_bytes(run_.geometry, run_.precision, 2));
  EXPECT_GT(size(0), 2 * size(1));
  const StoreLayout layout(run_.geometry, run_.precision, std::array{3u, 1u});
  for (RecordId record : run_.records()) {
    const Extents extents = layout.extents(record, 1);
    const int64_t blocks = run_.layout(record).bytes / kStoreBlockBytes;
    int64_t sum = 0;
    for (const Extent& extent : extents.span()) {
      sum += extent.bytes;
      EXPECT_LE(extent.offset + extent.bytes, size(extent.drive));
    }
    EXPECT_EQ(sum, run_.layout(record).bytes);
    const int64_t on_first = extents.list[0].drive == 0 ? extents.list[0].bytes : 0;
    EXPECT_EQ(on_first, blocks * 3 / 4 * kStoreBlockBytes);
  }
}

TEST_P(StoreDrives, speeds_are_measured_where_no_weights_are_given) {
  StoreOptions measured = options({1, 1});
  measured.drive_weights.clear();
  const auto store = create(measured);
  write_step(*store, run_, 0);
  expect_step(*store, run_, 0);
  EXPECT_THAT(store->describe(), HasSubstr("split over 2 drives as "));
  for (int drive : {0, 1}) {  // and the scratch files are gone
    EXPECT_EQ(std::distance(fs::directory_iterator(folder(drive)), fs::directory_iterator()), 1);
  }
}

TEST_P(StoreDrives, of_which_one_has_no_room_to_be_measured_share_alike_and_say_so) {
  const MountedDrive small(MountedDrive::Kind::kMemory, folder(1), 6 * kMiB);
  if (!small.reason().empty()) GTEST_SKIP() << small.reason();
  LogLines lines;
  StoreOptions measured = options({1, 1});
  measured.drive_weights.clear();
  measured.log = lines.log();
  const auto store = create(measured);
  write_step(*store, run_, 0);
  expect_step(*store, run_, 0);
  EXPECT_THAT(store->describe(), HasSubstr("split over 2 drives as 1 : 1"));
  EXPECT_THAT(lines.text(), AllOf(HasSubstr(folder(1).string()), HasSubstr("same share")));
}

TEST_P(StoreDrives, tell_their_weights_while_they_are_open_and_with_one_copy_of_the_header) {
  const std::array folders = {folder(0), folder(1)};
  EXPECT_EQ(stored_weights(folders), std::nullopt);
  EXPECT_THROW(stored_weights({}), std::logic_error);
  const auto store = create(options({700, 300}));
  const std::vector<uint32_t> expected = {700, 300};
  EXPECT_EQ(stored_weights(folders), expected);
  EXPECT_EQ(stored_weights({folders.data(), 1}), std::nullopt) << "not all of its drives";
  EXPECT_EQ(stored_weights(std::array{folder(1), folder(0)}), std::nullopt) << "in another order";
  for (const int64_t offset : kIdentityOffset) {
    std::fstream(file(0), std::ios::in | std::ios::out | std::ios::binary).seekp(offset).write("damage", 6);
    EXPECT_EQ(stored_weights(folders).has_value(), offset == kIdentityOffset[0]);
  }
}

TEST_P(StoreDrives, one_folder_named_twice_is_refused) {
  StoreOptions twice = options({1, 1});
  twice.more_folders[0] = folder(0) / ".." / "a";
  try {
    create(twice);
    FAIL() << "not refused";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("one folder"));
  }
  EXPECT_FALSE(fs::exists(folder(0)));
}

TEST_P(StoreDrives, a_missing_drive_is_refused_by_its_name) {
  make_two();
  fs::rename(file(1), folder_.path() / "elsewhere");
  EXPECT_THAT(refusal(options({1, 1})), AllOf(HasSubstr("drive 1 of the store is missing"), HasSubstr(file(1).string()),
                                              HasSubstr("start over with a new store")));
}

// It may be whole behind what stands in the way, so nobody is told to bring it back or to start over.
TEST_P(StoreDrives, a_drive_that_cannot_be_looked_for_is_not_said_to_be_missing) {
  make_two();
  fs::rename(folder(0), folder_.path() / "elsewhere");
  fs::create_directory_symlink(folder(0), folder(0));
  EXPECT_THAT(
      [this] {
        open(options({1, 1}));
      },
      testing::ThrowsMessage<IoError>(AllOf(HasSubstr("stat"), HasSubstr(file(0).string()))));
}

TEST_P(StoreDrives, fewer_or_more_folders_than_the_store_has_are_refused_with_those_it_was_made_in) {
  make_two();
  EXPECT_THAT(refusal(options({1})), AllOf(HasSubstr("lies on 2 drives, this run names 1"),
                                           HasSubstr(folder(0).string() + ", " + folder(1).string())));
  EXPECT_THAT(refusal(options({1, 1, 1})), HasSubstr("lies on 2 drives, this run names 3"));
}

TEST_P(StoreDrives, drives_in_another_order_are_refused) {
  make_two();
  StoreOptions swapped = options({1, 1});
  std::swap(swapped.folder, swapped.more_folders[0]);
  EXPECT_THAT(refusal(swapped), AllOf(HasSubstr(file(1).string() + " is drive 1"), HasSubstr("as drive 0"),
                                      HasSubstr(folder(0).string() + ", " + folder(1).string())));
  StoreOptions three = options({1, 1, 1});
  write_step(*create(three), run_, 0);
  std::swap(three.more_folders[0], three.more_folders[1]);
  EXPECT_THAT(refusal(three), AllOf(HasSubstr(file(2).string() + " is drive 2"), HasSubstr("as drive 1")));
}

TEST_P(StoreDrives, a_drive_of_another_creation_of_the_same_run_is_refused) {
  make_two();
  fs::rename(file(1), folder_.path() / "older");
  make_two();
  fs::rename(folder_.path() / "older", file(1));
  EXPECT_THAT(refusal(options({1, 1})),
              AllOf(HasSubstr(file(1).string() + " is not drive 1"), HasSubstr(folder(0).string())));
}

TEST_P(StoreDrives, a_creation_cut_off_is_not_begun_anew_over_what_is_another_store_now) {
  for (const bool has_header : {true, false}) {
    make_two_and_be_killed();
    if (!has_header) fs::resize_file(file(0), 0);
    StoreOptions other = options({1});
    other.folder = folder(1);
    write_step(*create(other), run_, 0);
    EXPECT_THAT(refusal(options({1, 1})), AllOf(HasSubstr(file(1).string() + " belongs to another store"),
                                                HasSubstr(file(0).string()), HasSubstr("start over with a new store")));
    expect_step(*open(other), run_, 0);
  }
}

TEST_P(StoreDrives, a_creation_cut_off_is_not_begun_anew_over_what_is_no_store) {
  make_two_and_be_killed();
  fs::resize_file(file(0), 0);
  for (const size_t bytes : {10u, 45000u}) {
    std::ofstream(file(1), std::ios::trunc) << std::string(bytes, 'x');
    EXPECT_THAT(refusal(options({1, 1})), HasSubstr(file(1).string() + " is not a store of sluice"));
    EXPECT_EQ(fs::file_size(file(1)), bytes);
  }
}

TEST_P(StoreDrives, what_is_no_store_is_not_taken_for_a_drive_whose_first_is_missing) {
  fs::create_directories(folder(1));
  std::ofstream(file(1)) << std::string(45000, 'x');
  EXPECT_THAT(refusal(options({1, 1})), HasSubstr(file(1).string() + " is not a store of sluice"));
  make_two();
  fs::remove(file(0));
  EXPECT_THAT(refusal(options({1, 1})), HasSubstr("drive 0 of the store is missing"));
}

TEST_P(StoreDrives, a_further_drive_that_was_emptied_or_cut_short_is_not_said_to_be_in_a_wrong_place) {
  make_two();
  const auto damage = [this] { return message_of<CorruptionError>([this] { open(options({1, 1})); }); };
  {
    std::fstream headers(file(1), std::ios::binary | std::ios::in | std::ios::out);
    headers << std::string(static_cast<size_t>(kTablesOffset), '\0');
  }
  EXPECT_THAT(damage(), AllOf(HasSubstr(file(1).string()), HasSubstr("emptied")));
  for (const size_t bytes : {4096u, 0u}) {
    fs::resize_file(file(1), bytes);
    EXPECT_THAT(damage(), HasSubstr(file(1).string() + " has been cut short: " + std::to_string(bytes) + " bytes"));
  }
}

TEST_P(StoreDrives, a_whole_store_is_not_taken_for_a_drive_whose_first_is_missing) {
  leave_as_if_killed(create(options({1})), std::array{file(0)});
  fs::create_directories(folder(1));
  fs::rename(file(0), file(1));
  EXPECT_THAT(refusal(options({1, 1})),
              AllOf(HasSubstr(file(1).string() + " is drive 0 of a store, and was given as drive 1"),
                    HasSubstr("made with one folder")));
}

TEST_P(StoreDrives, a_creation_cut_off_before_the_first_of_two_drives_had_anything_opens_as_empty) {
  fs::create_directories(folder(1));
  std::ofstream{file(1)};
  EXPECT_EQ(open(options({1, 1})), nullptr);
  fs::resize_file(file(1), 4096);
  EXPECT_THAT(refusal(options({1, 1})), HasSubstr("drive 0 of the store is missing")) << "it may hold something";
}

TEST_P(StoreDrives, a_creation_cut_off_between_two_drives_opens_as_empty) {
  make_two_and_be_killed();
  const uintmax_t bytes = fs::file_size(file(1));
  for (const uintmax_t length : {uintmax_t{0}, bytes}) fs::resize_file(file(1), length);  // zeros: it has no header yet
  EXPECT_EQ(open(options({1, 1})), nullptr);
  fs::remove(file(1));
  EXPECT_EQ(open(options({1, 1})), nullptr);
}

TEST_P(StoreDrives, two_creations_cut_off_one_after_the_other_open_as_empty) {
  make_two_and_be_killed();
  fs::copy_file(file(1), folder_.path() / "older");
  make_two_and_be_killed();
  fs::rename(folder_.path() / "older", file(1));  // the later one came no further than to the first drive
  EXPECT_EQ(open(options({1, 1})), nullptr);
}

TEST_P(StoreDrives, a_file_cut_short_on_any_drive_is_refused_by_its_name) {
  for (int drive : {0, 1}) {
    make_two();
    const uintmax_t whole = fs::file_size(file(drive));
    for (const uintmax_t bytes : {whole - 4096, uintmax_t{20480}, uintmax_t{4096}}) {
      fs::resize_file(file(drive), bytes);
      try {
        open(options({1, 1}));
        FAIL() << "not refused";
      } catch (const CorruptionError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr(file(drive).string()), HasSubstr("cut short")));
      }
    }
  }
}

TEST_P(StoreDrives, a_flipped_bit_is_named_with_the_drive_it_lies_on) {
  make_two();
  const auto store = open(options({1, 1}));
  const RecordId record{0, Group::kState};
  const StoreLayout layout(run_.geometry, run_.precision, std::array{1u, 1u});
  const int64_t at = run_.layout(record).plane_offset[2];
  const Extent place = layout.place_of(record, 0, at);
  ASSERT_EQ(place.drive, 1) << "the last plane lies in the second half";
  const int raw = ::open(file(1).c_str(), O_RDWR);
  ASSERT_GE(raw, 0);
  char byte = 0;
  ASSERT_EQ(pread(raw, &byte, 1, place.offset), 1);
  byte = static_cast<char>(byte ^ 4);
  ASSERT_EQ(pwrite(raw, &byte, 1, place.offset), 1);
  fsync(raw);
  close(raw);
  try {
    read_verified(*store, run_, record);
    FAIL() << "not found";
  } catch (const CorruptionError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(file(1).string()), HasSubstr("plane moment2"),
                                    HasSubstr("offset " + std::to_string(place.offset))));
  }
}

// State records have 5 blocks: planes of 1, 2 and 2.
TEST_P(StoreDrives, of_a_plane_those_are_named_that_have_a_part_of_it) {
  using Named = std::vector<int>;
  using Case = std::pair<std::vector<uint32_t>, Named>;
  const RecordId record{0, Group::kState};
  ASSERT_EQ(run_.layout(record).bytes, 5 * kStoreBlockBytes);
  for (const auto& [weights, expected] :
       {Case{{1, 4}, {1, 1, 1}}, Case{{3, 2}, {1, 1, 1}}, Case{{2, 3}, {1, 2, 1}}, Case{{1, 3, 1}, {1, 1, 2}}}) {
    const auto store = create(options(weights));
    write_step(*store, run_, 0);
    Named named;
    for (const int plane : {0, 1, 2}) {
      const std::string message = store->corruption(record, plane, 1, "block of the test").what();
      int count = 0;
      for (size_t at = message.find("offset "); at != std::string::npos; at = message.find("offset ", at + 1)) ++count;
      named.push_back(count);
    }
    EXPECT_EQ(named, expected) << weights.size() << " drives, the first with " << weights[0];
  }
}

// The superblock may only say what is durable on all drives.
TEST_P(StoreDrives, a_commit_syncs_every_drive_before_its_superblock) {
  auto drives = std::make_shared<SimulatedDrives>();
  StoreOptions simulated = options({1, 1, 1});
  simulated.make_queue = simulated_drives_factory(drives);
  const auto store = create(simulated);
  write_records(*store, run_, 0);
  drives->served.clear();
  commit_now(*store, run_.state(0));
  ASSERT_EQ(drives->served.size(), 6u);  // table; three syncs; superblock; a sync
  EXPECT_EQ(drives->served[0].op, IoOp::kWrite);
  std::array<int, 3> synced{};
  for (int i : {1, 2, 3}) {
    EXPECT_EQ(drives->served[static_cast<size_t>(i)].op, IoOp::kSync);
    ++synced[static_cast<size_t>(drives->served[static_cast<size_t>(i)].drive)];
  }
  EXPECT_THAT(synced, testing::Each(1));
  EXPECT_EQ(drives->served[4].op, IoOp::kWrite);
  EXPECT_EQ(drives->served[4].drive, 0);
  EXPECT_EQ(drives->served[5].op, IoOp::kSync);
  EXPECT_EQ(drives->served[5].drive, 0);
}

}  // namespace
}  // namespace sluice
