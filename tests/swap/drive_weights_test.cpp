// What drives get of a store that not all of them have room for.
#include "swap/drive_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <filesystem>
#include <span>
#include <vector>

#include "core/bytes.h"
#include "tests/fakes/mounted_drive.h"
#include "tests/fakes/temp_folder.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBesideRecords = 64 * kKiB;  // of each file

// Files on file systems so large, each with its part of so many bytes.
class Drives {
 public:
  using Kind = MountedDrive::Kind;
  Drives(std::span<const int64_t> rooms, int64_t records, int64_t beside = kBesideRecords)
      : records_(records), beside_(beside) {
    for (const int64_t room : rooms) mount(Kind::kMemory, room);
  }
  Drives(std::initializer_list<int64_t> rooms, int64_t records, int64_t beside = kBesideRecords)
      : Drives(std::vector(rooms), records, beside) {}

  void mount(Kind kind, int64_t room) {
    const fs::path at = folder_.path() / std::to_string(drives_.size());
    drives_.emplace_back(kind, at, room);
    if (!drives_.back().reason().empty()) reason_ = drives_.back().reason();
    add_file(at);
  }
  const std::string& reason() const { return reason_; }
  const fs::path& folder(size_t drive) const { return drives_[drive].path(); }
  void add_file(const fs::path& folder) { paths_.push_back(folder / std::to_string(paths_.size())); }

  DriveWeights with_room(const std::vector<uint32_t>& weights) {
    return weights_with_room(weights, paths_, [this](std::span<const uint32_t> of) { return bytes(of); });
  }
  std::vector<int64_t> bytes(std::span<const uint32_t> weights) const {
    std::vector<int64_t> bytes;
    for (size_t i = 0; i < weights.size(); ++i) {
      bytes.push_back(beside_ + static_cast<int64_t>(share_of(weights, i) * static_cast<double>(records_)));
    }
    return bytes;
  }

 private:
  TempFolder folder_;
  std::deque<MountedDrive> drives_;
  std::string reason_;
  std::vector<fs::path> paths_;
  int64_t records_, beside_;
};

// But for a tenth, about.
void expect_filled(int64_t bytes, int64_t room) {
  EXPECT_LE(bytes, room * 91 / 100);
  EXPECT_GE(bytes, room * 88 / 100);
}

TEST(DriveWeights, stay_where_there_is_room) {
  Drives drives({2 * kMiB, kMiB}, 2 * kMiB);
  if (!drives.reason().empty()) GTEST_SKIP() << drives.reason();
  const DriveWeights found = drives.with_room({667, 333});
  EXPECT_EQ(found.weights, (std::vector<uint32_t>{667, 333}));
  EXPECT_TRUE(found.lowered.empty());
}

TEST(DriveWeights, of_a_drive_without_room_are_what_fills_it_and_the_others_share_the_rest_as_before) {
  Drives drives({kMiB, 8 * kMiB, 8 * kMiB}, 8 * kMiB);
  if (!drives.reason().empty()) GTEST_SKIP() << drives.reason();
  const auto [weights, lowered] = drives.with_room({500, 300, 200});
  expect_filled(drives.bytes(weights)[0], kMiB);
  EXPECT_EQ(lowered, std::vector<size_t>{0});
  EXPECT_NEAR(weights[1] / static_cast<double>(weights[2]), 1.5, 1e-3);
  EXPECT_NEAR(share_of_speed(std::vector<double>{500, 300, 200}, weights), 0.3 / share_of(weights, 1), 1e-3);
}

TEST(DriveWeights, of_a_drive_that_is_too_small_for_what_another_leaves_over_are_lowered_too) {
  Drives drives({kMiB, 3 * kMiB, 8 * kMiB}, 8 * kMiB);
  if (!drives.reason().empty()) GTEST_SKIP() << drives.reason();
  const auto [weights, lowered] = drives.with_room({500, 250, 250});
  const std::vector<int64_t> bytes = drives.bytes(weights);
  expect_filled(bytes[0], kMiB);
  expect_filled(bytes[1], 3 * kMiB);
  EXPECT_LE(bytes[2], 8 * kMiB);
  EXPECT_EQ(lowered, (std::vector<size_t>{0, 1}));
}

TEST(DriveWeights, of_two_files_on_one_file_system_are_lowered_alike) {
  Drives drives({2 * kMiB, 8 * kMiB}, 8 * kMiB);
  if (!drives.reason().empty()) GTEST_SKIP() << drives.reason();
  drives.add_file(drives.folder(0));
  const auto [weights, lowered] = drives.with_room({200, 400, 400});
  const std::vector<int64_t> bytes = drives.bytes(weights);
  expect_filled(bytes[0] + bytes[2], 2 * kMiB);
  EXPECT_NEAR(weights[2] / static_cast<double>(weights[0]), 2, 1e-3);
  EXPECT_EQ(lowered, (std::vector<size_t>{0, 2}));
}

TEST(DriveWeights, of_a_drive_that_has_room_for_little_beside_what_every_file_has_are_found_too) {
  Drives drives({3 * kMiB, 9 * kMiB}, 7 * kMiB, 2 * kMiB);
  if (!drives.reason().empty()) GTEST_SKIP() << drives.reason();
  expect_filled(drives.bytes(drives.with_room({900, 100}).weights)[0], 3 * kMiB);
}

TEST(DriveWeights, of_as_many_drives_as_a_store_may_have_fill_those_that_are_small) {
  std::vector<int64_t> rooms;
  for (int i = 0; i < kMaxDrives; ++i) rooms.push_back((1 + i) * 256 * kKiB);
  Drives drives(rooms, 24 * kMiB);
  if (!drives.reason().empty()) GTEST_SKIP() << drives.reason();
  const auto [weights, lowered] = drives.with_room(std::vector<uint32_t>(kMaxDrives, 1));
  const std::vector<int64_t> bytes = drives.bytes(weights);
  EXPECT_GT(lowered.size(), 4u);
  for (const size_t drive : lowered) expect_filled(bytes[drive], rooms[drive]);
  for (size_t i = 0; i < bytes.size(); ++i) EXPECT_LE(bytes[i], rooms[i]);
}

TEST(DriveWeights, of_a_file_system_that_does_not_tell_its_room_are_what_others_leave_over) {
  Drives drives({kMiB}, 64 * kMiB);
  drives.mount(Drives::Kind::kRam, 0);
  if (!drives.reason().empty()) GTEST_SKIP() << drives.reason();
  expect_filled(drives.bytes(drives.with_room({500, 500}).weights)[0], kMiB);
}

TEST(DriveWeights, stay_where_nothing_helps) {
  Drives together({kMiB, kMiB}, 8 * kMiB), full({kBesideRecords / 2, 8 * kMiB}, 4 * kMiB);
  if (!together.reason().empty()) GTEST_SKIP() << together.reason();
  for (Drives* drives : {&together, &full}) {
    const auto [weights, lowered] = drives->with_room({500, 500});
    EXPECT_EQ(weights, (std::vector<uint32_t>{500, 500}));
    EXPECT_TRUE(lowered.empty());
  }
}

TEST(DriveWeights, that_are_not_the_speeds_make_all_drives_wait_for_one) {
  const std::vector<double> speeds = {0.6, 0.4};
  EXPECT_DOUBLE_EQ(share_of_speed(speeds, std::vector<uint32_t>{600, 400}), 1);
  EXPECT_DOUBLE_EQ(share_of_speed(speeds, std::vector<uint32_t>{200, 800}), 0.5);
}

}  // namespace
}  // namespace sluice
