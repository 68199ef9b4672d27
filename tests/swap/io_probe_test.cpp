// Which settings are tried, and what is said where none can be.
#include "swap/io_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cmath>
#include <memory>

#include "core/arena.h"
#include "core/bytes.h"
#include "core/errors.h"
#include "tests/fakes/simulated_drives.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

using testing::HasSubstr;

class ProbeIo : public testing::Test {
 protected:
  IoProbeOptions options(std::vector<IoSettings> candidates) {
    return {.folders = {folder_.path() / "a", folder_.path() / "b"},
            .candidates = std::move(candidates),
            .memory = memory_.span(),
            .scratch_bytes = 4 * kMiB,
            .limit_ns = 1'000'000,
            .make_queue = [this](const IoQueueOptions& queue) {
              depths_.push_back(queue.depth);
              return make_io_queue(queue);
            }};
  }

  TempFolder folder_;
  Arena memory_{4 * kMiB};
  std::vector<int> depths_;
};

TEST_F(ProbeIo, tries_what_gives_every_drive_a_block_of_the_memory) {
  const IoProbe probe = probe_io(options({{.backend = IoBackend::kThreads, .block_bytes = kMiB},
                                          {.backend = IoBackend::kThreads, .block_bytes = 2 * kMiB},
                                          {.backend = IoBackend::kThreads, .block_bytes = 4 * kMiB}}));
  ASSERT_EQ(probe.trials.size(), 2u);
  for (const IoTrial& trial : probe.trials) EXPECT_GT(trial.speed.both_gb_per_s(), 0);
}

TEST_F(ProbeIo, asks_for_no_queue_deeper_than_there_is) {
  EXPECT_NO_THROW(probe_io(options({{.backend = IoBackend::kThreads, .block_bytes = 64 * kKiB, .depth = 3000}})));
  EXPECT_THAT(depths_, testing::Each(kMaxQueueDepth));
}

// Candidates in simulated time, told apart by their depths (1, 2, ...), on one drive. A queue is as fast as its
// candidate and the round say, in GB/s; beyond the last round as in that.
class ProbeRounds : public ProbeIo {
 protected:
  using Speeds = std::vector<std::vector<double>>;  // by candidate, by round

  IoProbe probe(const Speeds& speeds, int64_t limit_ns = 1'000'000'000) {
    const auto drives = std::make_shared<SimulatedDrives>();
    std::vector<size_t> rounds(speeds.size());
    IoProbeOptions with = options({});
    for (size_t i = 0; i < speeds.size(); ++i)
      with.candidates.push_back({.block_bytes = 64 * kKiB, .depth = static_cast<int>(i) + 1});
    with.folders.resize(1);
    with.limit_ns = limit_ns;
    with.clock = [drives] { return std::llround(drives->now_ns); };
    with.make_queue = [&, make = simulated_drives_factory(drives)](const IoQueueOptions& queue) {
      depths_.push_back(queue.depth);
      const auto candidate = static_cast<size_t>(queue.depth - 1);
      const std::vector<double>& by_round = speeds[candidate];
      drives->gb_per_s = {by_round[std::min(rounds[candidate]++, by_round.size() - 1)]};
      return make(queue);
    };
    IoProbe found = probe_io(with);
    passed_ns_ = drives->now_ns;
    return found;
  }

  double passed_ns_ = 0;
};

TEST_F(ProbeRounds, one_lucky_round_of_many_candidates_does_not_beat_the_first) {
  const IoProbe found = probe({{1, 1.1, 0.9}, {3, 0.9, 1}, {0.9, 3, 1}, {1, 0.9, 3}});
  EXPECT_EQ(found.best, 0u);
  EXPECT_NEAR(found.trials[1].speed.both_gb_per_s(), 1, 1e-3) << "the median";
}

TEST_F(ProbeRounds, one_bad_round_of_the_first_does_not_beat_it) {
  EXPECT_EQ(probe({{0.1, 1, 1}, {1, 1, 1.2}, {1.04, 1.04, 1.04}}).best, 0u);
}

TEST_F(ProbeRounds, the_fastest_wins_that_is_clearly_faster_than_the_first) {
  EXPECT_EQ(probe({{1, 1, 1}, {1.2, 0.5, 1.2}, {1.3, 1.3, 0.9}, {1.04, 1.04, 1.04}}).best, 2u);
}

TEST_F(ProbeRounds, try_all_candidates_in_turn) {
  probe({{1}, {1}, {1}});
  EXPECT_THAT(depths_, testing::ElementsAre(1, 2, 3, 1, 2, 3, 1, 2, 3));
}

// A pass of a candidate with 16 requests in flight ends no sooner than those: a round takes 2 x 16 x 64 KiB / speed.
TEST_F(ProbeRounds, are_as_many_as_the_limit_has_time_for_and_one_at_least) {
  const auto rounds_of = [this](double gb_per_s) {
    depths_.clear();
    constexpr int64_t kLimitNs = 10'000'000;
    probe(Speeds(16, {gb_per_s}), kLimitNs);
    const size_t rounds = depths_.size() / 16;
    EXPECT_TRUE(rounds == 1 || passed_ns_ <= 1.1 * kLimitNs) << passed_ns_;
    return rounds;
  };
  EXPECT_EQ(rounds_of(100), 3u);
  EXPECT_EQ(rounds_of(9), 2u);
  EXPECT_EQ(rounds_of(0.1), 1u);
}

TEST_F(ProbeRounds, of_a_candidate_that_cannot_be_had_again_are_those_before) {
  IoProbeOptions twice = options({{.backend = IoBackend::kThreads, .block_bytes = kMiB}});
  twice.limit_ns = 60'000'000'000;
  twice.make_queue = [this](const IoQueueOptions& queue) {
    depths_.push_back(queue.depth);
    if (depths_.size() == 2) throw IoError({.action = "set-up", .path = "queue", .error_number = ENOMEM, .advice = {}});
    return make_io_queue(queue);
  };
  EXPECT_EQ(probe_io(twice).trials.size(), 1u);
  EXPECT_EQ(depths_.size(), 3u);
}

TEST_F(ProbeIo, of_no_drive_or_with_blocks_of_nothing_is_a_programmers_error) {
  EXPECT_THROW(probe_io(options({{.backend = IoBackend::kThreads, .block_bytes = 0}})), std::logic_error);
  IoProbeOptions nowhere = options({{.backend = IoBackend::kThreads}});
  nowhere.folders.clear();
  EXPECT_THROW(probe_io(nowhere), std::logic_error);
  EXPECT_THROW(for_drives({}, 0), std::logic_error);
  EXPECT_THAT(depths_, testing::IsEmpty());
}

TEST_F(ProbeIo, where_no_block_fits_says_so) {
  const auto [details, message] = failure_of([&] { probe_io(options({{.block_bytes = 8 * kMiB}})); });
  EXPECT_EQ(details.error_number, 0);
  EXPECT_EQ(details.path, (folder_.path() / "a").string());
  EXPECT_THAT(message, testing::AllOf(HasSubstr("no candidate's block fits"), HasSubstr("4.0 MiB of memory")));
}

TEST_F(ProbeIo, where_every_backend_is_refused_gives_the_first_ones_reason) {
  IoProbeOptions refused = options({{.block_bytes = kMiB}, {.backend = IoBackend::kThreads, .block_bytes = kMiB}});
  refused.make_queue = [](const IoQueueOptions& queue) -> std::unique_ptr<IoQueue> {
    throw IoError({.action = "set-up",
                   .path = "queue",
                   .error_number = queue.backend == IoBackend::kUring ? EPERM : ENOMEM,
                   .advice = {}});
  };
  EXPECT_EQ(failure_of([&] { probe_io(refused); }).details.error_number, EPERM);
}

}  // namespace
}  // namespace sluice
