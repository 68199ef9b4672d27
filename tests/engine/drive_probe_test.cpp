// What the probe asks of drives, and which of its figures comes from what. The drives here move nothing and take the
// time that they say: how fast this machine's are has no say.
#include <gtest/gtest.h>

#include <cerrno>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "core/bytes.h"
#include "core/errors.h"
#include "engine/machine_probe.h"
#include "engine/probe_time.h"
#include "tests/fakes/file_size_limit.h"
#include "tests/fakes/simulated_drives.h"
#include "tests/fakes/temp_folder.h"

namespace sluice::testing {
namespace {

// Requests of one kind and size.
struct Asked {
  int64_t requests = 0;
  int most_in_flight = 0;
  std::set<int> files;
};

double ns_of(IoOp op, uint32_t bytes) {
  return op == IoOp::kSync ? 2e6 : op == IoOp::kRead ? 1e4 + bytes : 5e3 + 0.5 * bytes;
}

struct AnsweringDrives {
  int64_t sync_result = 0;
  double (*ns_of_request)(IoOp op, uint32_t bytes) = ns_of;
  int64_t now_ns = 0;  // a request after the other

  IoQueueOptions queue{};
  std::map<std::pair<IoOp, uint32_t>, Asked> asked{};
  std::string small{};  // syncs and requests of 4 KiB in the order in which they came, a letter each
  int runs = 0;

  Clock clock() const {
    return [this] { return now_ns; };
  }
};

// Whole files once; then three of each way alone, of both in turns, and of small requests each way.
constexpr int kMeasuringRuns = 1 + 5 * 3;

class AnsweringQueue final : public IoQueue {
 public:
  AnsweringQueue(const IoQueueOptions& options, AnsweringDrives& drives) : IoQueue(options.depth), drives_(drives) {
    drives_.queue = options;
  }
  void interrupt() override {}
  std::string describe() const override { return "answers at once"; }

 private:
  void do_submit(const IoRequest& request) override {
    if (in_flight() == 0) ++drives_.runs;
    // Of the three runs that make a figure one is disturbed and one flatters.
    constexpr double kOdd[] = {1, 2, 0.5};
    const bool in_three = drives_.runs > 1 && drives_.runs <= kMeasuringRuns;
    drives_.now_ns +=
        std::llround(drives_.ns_of_request(request.op, request.bytes) * (in_three ? kOdd[drives_.runs % 3] : 1));
    const bool sync = request.op == IoOp::kSync;
    Asked& asked = drives_.asked[{request.op, request.bytes}];
    ++asked.requests;
    asked.most_in_flight = std::max(asked.most_in_flight, in_flight() + 1);
    asked.files.insert(request.file);
    if (sync || request.bytes == 4096) drives_.small += sync ? 's' : request.op == IoOp::kRead ? 'r' : 'w';
    ended_.push_back({.tag = request.tag, .result = sync ? drives_.sync_result : request.bytes});
  }
  void do_flush() override {}
  // One at a time: nothing is in flight only where a run begins.
  size_t do_poll(std::span<IoCompletion> completions, Wait) override {
    if (ended_.empty()) return 0;
    completions[0] = ended_.front();
    ended_.pop_front();
    return 1;
  }

  AnsweringDrives& drives_;
  std::deque<IoCompletion> ended_;
};

StoreOptions store_on(AnsweringDrives& drives, const TempFolder& folder) {
  StoreOptions store{.folder = folder.path()};
  store.queue.depth = 12;
  store.make_queue = [&drives](const IoQueueOptions& options) {
    return std::make_unique<AnsweringQueue>(options, drives);
  };
  return store;
}

TEST(DriveProbe, asks_all_drives_at_once_as_a_store_with_these_options_would) {
  constexpr int kDrives = 9;  // more than the memory for one is enough for
  constexpr uint32_t kBlock = 256 * kKiB, kSmall = 16 * kKiB, kFilling = 4 * kMiB;
  const TempFolder folder;
  const FileSizeLimit short_files(16 * kMiB);
  AnsweringDrives drives;
  StoreOptions store = store_on(drives, folder);
  store.block_bytes = kBlock;
  store.queue.log = [](LogLevel, const std::string& line) { ADD_FAILURE() << line; };
  for (int i = 1; i < kDrives; ++i) store.more_folders.push_back(folder.path() / std::to_string(i));
  MachineSpeeds speeds;
  probe_drives(store, speeds, drives.clock());
  EXPECT_EQ(drives.queue.depth, 12 * kDrives);
  EXPECT_EQ(drives.queue.files, kDrives);
  EXPECT_FALSE(drives.queue.log) << "the store's own queue will tell";
  ASSERT_EQ(drives.queue.memory.size(), 1u);
  EXPECT_EQ(drives.queue.memory[0].size(), size_t{kDrives} * 16 * kMiB);
  const Asked& filling = drives.asked[{IoOp::kWrite, kFilling}];
  EXPECT_EQ(filling.requests, kDrives * 16 * kMiB / kFilling) << "whole files, once";
  EXPECT_EQ(filling.files.size(), size_t{kDrives});
  for (const IoOp op : {IoOp::kRead, IoOp::kWrite}) {
    for (const auto& [bytes, in_flight] : {std::pair(kBlock, 12), {kSmall, 8}}) {  // 8: as a step has
      const Asked& asked = drives.asked[{op, bytes}];
      EXPECT_EQ(asked.files.size(), size_t{kDrives}) << bytes;
      EXPECT_EQ(asked.most_in_flight, in_flight * kDrives) << bytes;
    }
  }
  const std::string commit = "w" + std::string(kDrives, 's') + "ws";
  EXPECT_EQ(drives.small.substr(0, commit.size()), commit);
  EXPECT_EQ((drives.asked[{IoOp::kSync, 0}].files.size()), size_t{kDrives});
}

TEST(DriveProbe, tells_of_a_flush_that_fails) {
  const TempFolder folder;
  AnsweringDrives drives{.sync_result = -EIO};
  MachineSpeeds speeds;
  EXPECT_THROW(probe_drives(store_on(drives, folder), speeds, drives.clock()), IoError);
}

TEST(DriveProbe, gives_each_way_its_own_figures_in_their_units_by_the_middle_one_of_three_runs) {
  constexpr uint32_t kBlock = 64 * kKiB, kSmall = 16 * kKiB;
  const TempFolder folder;
  const FileSizeLimit short_files(16 * kMiB);
  AnsweringDrives drives;
  StoreOptions store = store_on(drives, folder);
  store.block_bytes = kBlock;
  MachineSpeeds speeds;
  probe_drives(store, speeds, drives.clock());
  const double read_ns = ns_of(IoOp::kRead, kBlock), write_ns = ns_of(IoOp::kWrite, kBlock);
  EXPECT_NEAR(speeds.read_gb_per_s, kBlock / read_ns, 1e-6);
  EXPECT_NEAR(speeds.write_gb_per_s, kBlock / write_ns, 1e-6);
  EXPECT_NEAR(speeds.mixed_gb_per_s, 2 * kBlock / (read_ns + write_ns), 0.01);
  EXPECT_NEAR(speeds.read_request_us, (ns_of(IoOp::kRead, kSmall) - read_ns * kSmall / kBlock) / 1e3, 1e-3);
  EXPECT_NEAR(speeds.write_request_us, (ns_of(IoOp::kWrite, kSmall) - write_ns * kSmall / kBlock) / 1e3, 1e-3);
  EXPECT_NEAR(speeds.commit_ms, 2 * (ns_of(IoOp::kWrite, 4096) + ns_of(IoOp::kSync, 0)) / 1e6, 1e-6);
  EXPECT_NEAR(speeds.transfer_us, ns_of(IoOp::kRead, 4096) / 1e3, 1e-6);
}

TEST(DriveProbe, of_a_drive_that_moves_small_requests_faster_adds_no_time_to_any) {
  const TempFolder folder;
  const FileSizeLimit short_files(16 * kMiB);
  AnsweringDrives drives{.ns_of_request = [](IoOp, uint32_t bytes) { return bytes > 16 * kKiB ? 3.0 * bytes : bytes; }};
  MachineSpeeds speeds;
  probe_drives(store_on(drives, folder), speeds, drives.clock());
  EXPECT_EQ(speeds.read_request_us, 0);
  EXPECT_EQ(speeds.write_request_us, 0);
}

TEST(DriveProbe, asks_for_blocks_of_4_mib_at_the_most) {
  const TempFolder folder;
  const FileSizeLimit short_files(16 * kMiB);
  AnsweringDrives drives;
  StoreOptions store = store_on(drives, folder);
  store.block_bytes = 16 * kMiB;
  MachineSpeeds speeds;
  probe_drives(store, speeds, drives.clock());
  for (const auto& [request, asked] : drives.asked) EXPECT_LE(request.second, 4 * kMiB);
}

TEST(DriveProbe, of_drives_with_other_shares_than_their_speeds_waits_for_the_one_that_has_most_to_do_for_its_speed) {
  const TempFolder first, second;
  const FileSizeLimit short_files(16 * kMiB);
  const auto drives = std::make_shared<SimulatedDrives>();
  drives->gb_per_s = {0.5, 0.05};
  StoreOptions store{.folder = first.path(), .more_folders = {second.path()}};
  store.make_queue = simulated_drives_factory(drives);
  const Clock clock = [drives] { return std::llround(drives->now_ns); };
  MachineSpeeds as_fast, alike;
  probe_drives(store, as_fast, clock);
  store.drive_weights = {1, 1};
  probe_drives(store, alike, clock);
  for (const auto speed :
       {&MachineSpeeds::read_gb_per_s, &MachineSpeeds::write_gb_per_s, &MachineSpeeds::mixed_gb_per_s}) {
    EXPECT_NEAR(as_fast.*speed, 0.55, 0.01);
    EXPECT_NEAR(alike.*speed, 2 * 0.05, 0.002) << "the second drive has half of all";
  }
}

TEST(ProbeTime, is_the_median_of_three_runs_at_least_after_one_that_does_not_count) {
  int64_t now_ns = 0;
  int calls = 0;
  const auto work = [&] { now_ns += calls++ % 2 == 0 ? 40 : 1; };  // the first and the third take longer
  const auto clock = [&now_ns] { return now_ns; };
  EXPECT_EQ(median_ns(0, work, clock), 1);
  EXPECT_EQ(calls, 4);
  calls = 0;
  median_ns(30 * 41, work, clock);
  EXPECT_GE(calls, 60);
  EXPECT_LE(calls, 62);
}

}  // namespace
}  // namespace sluice::testing
