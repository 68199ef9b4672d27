// A store that measures its drives when it is made: how it measures them, and that its records are split accordingly.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>

#include "core/bytes.h"
#include "swap/bare_io.h"
#include "swap/drive_folders.h"
#include "swap/drive_weights.h"
#include "swap/store_drives.h"
#include "tests/fakes/mounted_drive.h"
#include "tests/fakes/simulated_drives.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

using testing::HasSubstr;

constexpr int kRounds = 3;
constexpr double kMeasuredNs = kRounds * 7e7;
constexpr double kAtOnce = 1e6;  // GB/s, no bytes moved: no real drive comes near it

class ProbedStore : public testing::Test {
 protected:
  // Drives are measured in turns, by a new queue each time: here by one that is as fast as the list says of it. Queues
  // beyond the list, and those of 0 GB/s, are real.
  StoreOptions options(std::vector<double> gb_per_s) {
    StoreOptions options{.folder = folders_[0], .more_folders = {folders_[1]}, .queue = {.depth = 8}};
    options.make_queue = [this, gb_per_s = std::move(gb_per_s), made = size_t{0}](const IoQueueOptions& of) mutable {
      depths_.push_back(of.depth);
      const double speed = made < gb_per_s.size() ? gb_per_s[made] : 0;
      ++made;
      if (speed == 0) return make_io_queue(of);
      simulated_->gb_per_s = {speed};
      return simulated_drives_factory(simulated_)(of);
    };
    return options;
  }
  static std::vector<double> in_each_round(std::initializer_list<double> gb_per_s) {
    std::vector<double> list;
    for (int round = 0; round < kRounds; ++round) list.insert(list.end(), gb_per_s);
    return list;
  }
  Clock clock() const {
    return [simulated = simulated_] { return std::llround(simulated->now_ns); };
  }

  TempFolder folder_;
  std::array<std::filesystem::path, 2> folders_ = {folder_.path() / "a", folder_.path() / "b"};
  TestRun run_;
  std::shared_ptr<SimulatedDrives> simulated_ = std::make_shared<SimulatedDrives>();
  std::vector<int> depths_;
};

TEST_F(ProbedStore, gives_drives_of_speeds_two_to_one_two_thirds_and_one_of_every_chunk) {
  constexpr int64_t kChunkElements = 512 * kKiB;
  const Geometry geometry(std::array{PartitionSpec{"all", {{"all", {4 * kChunkElements}}}}}, kChunkElements);
  for (const std::array<double, 2>& speeds : {std::array{2.0, 1.0}, {0.1, 0.2}}) {
    const std::vector<uint32_t> weights = weigh_drives(options(in_each_round({speeds[0], speeds[1]})), clock()).value();
    const bool first_is_faster = speeds[0] > speeds[1];
    EXPECT_EQ(weights, first_is_faster ? (std::vector<uint32_t>{667, 333}) : (std::vector<uint32_t>{333, 667}));
    const StoreLayout layout(geometry, Precision::kBf16, weights);
    for (uint32_t chunk = 0; chunk < 4; ++chunk) {
      const Extents extents = layout.extents({chunk, Group::kState}, 0);
      std::array<int64_t, 2> bytes{};
      for (const Extent& extent : extents.span()) bytes[static_cast<size_t>(extent.drive)] += extent.bytes;
      const double third = static_cast<double>(bytes[0] + bytes[1]) / 3;
      EXPECT_NEAR(static_cast<double>(bytes[first_is_faster ? 0 : 1]), 2 * third, kStoreBlockBytes);
    }
  }
}

TEST_F(ProbedStore, takes_speeds_as_equal_that_are_five_percent_apart_and_no_others) {
  EXPECT_EQ(weigh_drives(options(in_each_round({1.04, 1})), clock()), (std::vector<uint32_t>{500, 500}));
  EXPECT_EQ(weights_of({1, 1.06}), (std::vector<uint32_t>{485, 515}));
  EXPECT_EQ(weights_of({4.1, 1, 4, 1.02}), (std::vector<uint32_t>{400, 100, 400, 100}));
  EXPECT_EQ(weights_of({10000, 0.1}), (std::vector<uint32_t>{1000, 1})) << "however slow, it has a share";
}

TEST_F(ProbedStore, is_split_evenly_over_two_drives_alike_of_which_one_is_disturbed_once) {
  EXPECT_EQ(weigh_drives(options({1, 1, 1, 0.1, 1, 1}), clock()), (std::vector<uint32_t>{500, 500}));
}

TEST_F(ProbedStore, is_measured_by_queues_of_a_legal_depth) {
  StoreOptions deep = options(in_each_round({1, 1}));
  deep.queue.depth = kMaxQueueDepth + 1;
  weigh_drives(deep, clock());
  EXPECT_EQ(depths_, std::vector<int>(2 * kRounds, kMaxQueueDepth));
}

TEST_F(ProbedStore, measures_each_drive_both_ways_for_a_fifth_of_a_second_by_a_queue_of_its_kind) {
  constexpr int64_t kRoomBytes = 128 * kMiB;  // half of it is the scratch file, which is then as large as it gets
  if (free_drive_bytes({&folder_.path(), 1}) < kRoomBytes) GTEST_SKIP() << "less than 128 MiB are free here";
  StoreOptions of_one = options(in_each_round({0.5}));
  of_one.more_folders.clear();
  const DriveSpeed speed = measure_drives(of_one, clock()).front().value();
  EXPECT_NEAR(speed.read_gb_per_s, 0.5, 1e-3);
  EXPECT_NEAR(speed.write_gb_per_s, 0.5, 1e-3);
  EXPECT_EQ(depths_, std::vector<int>(kRounds, 8));
  double read_ns = 0, written_ns = 0;
  for (const auto& served : simulated_->served) {
    (served.op == IoOp::kRead ? read_ns : written_ns) += static_cast<double>(served.bytes) / 0.5;
  }
  const double in_flight_ns = kRounds * 8 * kMiB / 0.5, first_pass_ns = 64 * kMiB / 0.5;
  EXPECT_NEAR(read_ns, kMeasuredNs, in_flight_ns);
  EXPECT_NEAR(written_ns, kMeasuredNs + first_pass_ns, in_flight_ns);
}

TEST_F(ProbedStore, is_split_as_its_drives_were_measured_when_it_was_made_and_stays_so) {
  std::vector<uint32_t> weights;
  {
    const auto store = RecordStore::create(run_.geometry, run_.identity, options(in_each_round({kAtOnce, 0})));
    write_step(*store, run_, 0);
    weights = stored_weights(folders_).value();
    EXPECT_GT(weights[0], 2 * weights[1]);
    EXPECT_THAT(store->describe(), HasSubstr("as " + std::to_string(weights[0]) + " : " + std::to_string(weights[1])));
  }
  const auto store = RecordStore::open(run_.geometry, run_.identity, options({0, 0}));
  EXPECT_EQ(stored_weights(folders_), weights);
  expect_step(*store, run_, 0);
  write_step(*store, run_, 1);
  expect_step(*store, run_, 1);
}

TEST_F(ProbedStore, gives_a_fast_drive_what_it_has_room_for_and_says_what_that_costs) {
  const MountedDrive small(MountedDrive::Kind::kMemory, folders_[0], 16 * kMiB);
  if (!small.reason().empty()) GTEST_SKIP() << small.reason();
  constexpr int64_t kChunkElements = 256 * kKiB;
  const Geometry geometry(std::array{PartitionSpec{"all", {{"all", {4 * kChunkElements}}}}}, kChunkElements);
  StoreIdentity identity = run_.identity;
  identity.chunk_elements = kChunkElements;
  identity.chunk_count = 4;
  std::vector<std::string> warnings;
  StoreOptions with = options(in_each_round({kAtOnce, 0}));
  with.log = [&](LogLevel, const std::string& line) {
    if (line.starts_with("too little room")) warnings.push_back(line);
  };
  const auto store = RecordStore::create(geometry, identity, with);
  const std::vector<uint32_t> weights = stored_weights(folders_).value();
  const StoreLayout layout(geometry, identity.format(), weights);
  EXPECT_LE(layout.file_bytes(0), 16 * kMiB);
  EXPECT_GE(layout.file_bytes(0), 14 * kMiB);
  ASSERT_EQ(warnings.size(), 1u);
  const double given = 100 * share_of(weights, 0);
  EXPECT_THAT(warnings[0],
              HasSubstr(fmt::format("{} ({:.1f} % of the store in place of ", folders_[0].string(), given)));
  const size_t at = warnings[0].find("in place of ") + 12;
  EXPECT_GT(std::stod(warnings[0].substr(at)), given);
  EXPECT_THAT(warnings[0], HasSubstr("% as fast as with room there"));
}

}  // namespace
}  // namespace sluice
