// What the search for settings finds, against every setting tried, on machines in which different things take time.
#include "engine/tune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "engine/planner.h"
#include "engine/predict.h"
#include "tests/engine/machines.h"
#include "tests/engine/toy_model.h"

namespace sluice::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

MachineSpeeds fast() {
  MachineSpeeds speeds = machine_of(100);
  speeds.commit_ms = 0.05;
  speeds.transfer_us = 20;
  speeds.hop_us = 2;
  return speeds;
}
MachineSpeeds slow_drive() {
  MachineSpeeds speeds = fast();
  set_drives(speeds, 0.02);
  return speeds;
}
MachineSpeeds slow_copies() {
  MachineSpeeds speeds = fast();
  speeds.upload_gb_per_s = speeds.download_gb_per_s = 0.02;
  return speeds;
}
MachineSpeeds slow_requests() {
  MachineSpeeds speeds = slow_drive();
  speeds.transfer_us = 500;
  return speeds;
}

class Tune : public ::testing::Test {
 protected:
  // Four samples a step; a visit's time has a part that every micro-batch pays.
  Tune() {
    for (const int64_t samples : {2, 1, 4}) add_batching(samples, 0.05);
    space_.chunk_elements = {1024, 256, 512, 2048, 4096, 8192};
    set_memory(600 * kKiB, 300 * kKiB);
    base_.commit_interval = 1;
    set_machine(slow_drive());
  }
  void add_batching(int64_t samples, double ms_of_a_visit) {
    const double ms = ms_of_a_visit + 0.1 * static_cast<double>(samples);
    MicroBatching batching{
        .samples = samples,
        .micro_batches = static_cast<int>(4 / samples),
        .model = toy_model({.visits = 6, .elements = 6000, .tensor_elements = 1000 * samples}, Precision::kBf16),
        .workspace_bytes = 8 * kKiB * samples,
        .visits = {}};
    batching.visits.assign(batching.model.visits.size(), {.forward_ms = ms, .backward_ms = 3 * ms});
    space_.batchings.push_back(std::move(batching));
  }
  void set_memory(int64_t total_bytes, int64_t device_bytes) {
    space_.total_bytes = total_bytes;
    space_.device_bytes = {device_bytes};
    for (int64_t eighths = 1; eighths < 8; ++eighths) {
      if (total_bytes / 8 * eighths != device_bytes) space_.device_bytes.push_back(total_bytes / 8 * eighths);
    }
  }
  void set_machine(const MachineSpeeds& machine) { base_.speeds = StepSpeeds{machine, {}}; }

  TuneSearch search() const { return search_settings(space_, base_, {}); }
  std::optional<double> step_ms(const TuneSettings& settings) const {
    const PlanOptions options = options_of(space_, settings, base_);
    const ModelSpec& model = space_.batchings[settings.batching].model;
    const auto plan = find_plan(model, options);
    if (!plan) return std::nullopt;
    return predict(model, *plan, *options.speeds).step_ms;
  }
  // Of every setting; what the search has predicted stands (a_candidate_is_what_its_plan_is_predicted_to_take).
  std::optional<double> shortest_of_all_ms(const TuneSearch& found) const {
    std::map<TuneSettings, double> known;
    for (const TuneCandidate& candidate : found.candidates) known.emplace(candidate.settings, candidate.step_ms);
    std::optional<double> shortest;
    for (size_t batching = 0; batching < space_.batchings.size(); ++batching) {
      for (size_t chunk = 0; chunk < space_.chunk_elements.size(); ++chunk) {
        for (size_t split = 0; split < space_.device_bytes.size(); ++split) {
          const TuneSettings settings{batching, chunk, split};
          const auto at = known.find(settings);
          const auto ms = at != known.end() ? at->second : step_ms(settings);
          if (ms && (!shortest || *ms < *shortest)) shortest = ms;
        }
      }
    }
    return shortest;
  }

  TuneSpace space_;
  PlanOptions base_;
};

TEST_F(Tune, finds_what_trying_every_setting_finds) {
  const std::vector<MachineSpeeds> machines = {slow_drive(), slow_copies(), slow_requests(), fast()};
  for (const MachineSpeeds& machine : std::span(machines).first(SLUICE_IS_SANITIZED ? 1 : machines.size())) {
    set_machine(machine);
    for (const int64_t total_bytes : {300 * kKiB, 600 * kKiB}) {
      set_memory(total_bytes, total_bytes / 2);
      const TuneSearch found = search();
      const auto shortest_ms = shortest_of_all_ms(found);
      ASSERT_EQ(found.candidates.empty(), !shortest_ms) << total_bytes;
      if (shortest_ms) {
        EXPECT_LE(found.candidates.front().step_ms, *shortest_ms * 1.01) << total_bytes;
      }
    }
  }
}

TEST_F(Tune, a_candidate_is_what_its_plan_is_predicted_to_take) {
  if (SLUICE_IS_SANITIZED)
    GTEST_SKIP() << "takes a sanitizer minutes; finds_what_trying_every_setting_finds runs the same code";
  const TuneSearch found = search();
  ASSERT_GT(found.candidates.size(), 10u);
  for (const TuneCandidate& candidate : found.candidates) EXPECT_EQ(step_ms(candidate.settings), candidate.step_ms);
  EXPECT_TRUE(std::is_sorted(found.candidates.begin(), found.candidates.end(),
                             [](const TuneCandidate& a, const TuneCandidate& b) { return a.step_ms < b.step_ms; }));
}

TEST_F(Tune, settings_change_the_budgets_within_their_sum_and_the_micro_batches_within_the_step) {
  space_.batchings[2].graph_bytes.assign(6, 4096);
  const PlanOptions options = options_of(space_, {.batching = 2, .chunk = 1, .split = 1}, base_);
  EXPECT_EQ(options.graph_bytes, space_.batchings[2].graph_bytes);
  EXPECT_EQ(options.device_bytes + options.host_bytes, space_.total_bytes);
  EXPECT_EQ(options.device_bytes, space_.device_bytes[1]);
  EXPECT_EQ(options.chunk_elements, 256);
  EXPECT_EQ(options.micro_batches, 1);
  EXPECT_EQ(options.workspace_bytes, 4 * 8 * kKiB);
}

TEST_F(Tune, what_the_budgets_cannot_hold_is_no_candidate) {
  space_.batchings[2].workspace_bytes = 2 * space_.total_bytes;
  const TuneSearch found = search();
  EXPECT_GT(found.unfit, 0);
  for (const TuneCandidate& candidate : found.candidates) EXPECT_NE(candidate.settings.batching, 2u);
  set_memory(16 * kKiB, 8 * kKiB);
  EXPECT_TRUE(search().candidates.empty());
}

TEST_F(Tune, what_fits_with_two_changes_alone_is_found) {
  space_.batchings.resize(1);
  const int64_t device_bytes = 500 * kKiB;
  const auto least_host = [&](size_t chunk) {
    const PlanOptions options = options_of(space_, {.chunk = chunk}, base_);
    return Planner(space_.batchings[0].model, options).smallest_host(device_bytes).value();
  };
  std::vector<size_t> chunks(space_.chunk_elements.size());
  std::iota(chunks.begin(), chunks.end(), size_t{0});
  std::sort(chunks.begin(), chunks.end(), [&](size_t a, size_t b) { return least_host(a) < least_host(b); });
  // What one size of chunks needs at the least is too little for the other; and 4 KiB of device hold no visit.
  space_.total_bytes = device_bytes + least_host(chunks.front());
  space_.chunk_elements = {space_.chunk_elements[chunks.back()], space_.chunk_elements[chunks.front()]};
  space_.device_bytes = {4 * kKiB, device_bytes};
  ASSERT_FALSE(step_ms({}) || step_ms({.chunk = 1}) || step_ms({.split = 1}));
  ASSERT_TRUE(step_ms({.chunk = 1, .split = 1}));
  ASSERT_EQ(search().candidates.size(), 1u);
  EXPECT_EQ(search().candidates.front().settings, (TuneSettings{.batching = 0, .chunk = 1, .split = 1}));
}

TEST_F(Tune, progress_ends_at_its_total) {
  if (SLUICE_IS_SANITIZED)
    GTEST_SKIP() << "takes a sanitizer minutes; finds_what_trying_every_setting_finds runs the same code";
  int64_t last = 0, of = 0;
  search_settings(space_, base_, [&](int64_t done, int64_t total) {
    EXPECT_GE(done, last);
    last = done;
    of = total;
  });
  EXPECT_GT(of, 0);
  EXPECT_EQ(last, of);
}

// Of each batching two rounds over one split and two chunks: what is known already is done at once, and what need not
// be tried is done at its end.
TEST_F(Tune, progress_counts_what_is_known_already_and_reaches_each_batchings_part_at_its_end) {
  space_.batchings.resize(2);
  space_.chunk_elements.resize(2);
  space_.device_bytes.resize(1);
  std::vector<int64_t> told;
  search_settings(space_, base_, [&](int64_t done, int64_t total) {
    EXPECT_EQ(total, 12);
    told.push_back(done);
  });
  EXPECT_THAT(told, ElementsAre(1, 3, 6, 7, 9, 12));
}

// Both splits hold everything: the step is the same.
TEST_F(Tune, a_search_stays_where_nothing_makes_the_step_shorter) {
  space_.batchings.resize(1);
  space_.chunk_elements = {256, 1024};
  set_machine(endless());
  const HomeShares host = {{HomeKind::kHost, 1}};
  base_.placement = {.weights = host, .state = host, .gradient = host, .activations = host};
  space_.total_bytes = 64 * kMiB;
  space_.device_bytes = {32 * kMiB, 16 * kMiB};
  ASSERT_EQ(step_ms({}), step_ms({.split = 1}));
  ASSERT_LE(step_ms({}), step_ms({.chunk = 1}));
  for (const TuneCandidate& candidate : search().candidates) EXPECT_LE(candidate.settings.changes(), 1);
}

TEST_F(Tune, what_progress_throws_ends_the_search) {
  const auto stop = [](int64_t, int64_t) { throw std::string("stopped"); };
  EXPECT_THROW(search_settings(space_, base_, stop), std::string);
}

TEST(WorthTrying, is_the_configuration_as_given_and_the_best_that_differ) {
  const TuneSettings as_given, near{.chunk = 1}, apart{.split = 1}, other{.batching = 1};
  const TuneSearch search{.candidates = {{apart, 80}, {other, 80.1}, {near, 99.5}, {as_given, 100}}, .unfit = 0};
  const auto settings = [&](int count) {
    std::vector<TuneSettings> list;
    for (const TuneCandidate& candidate : worth_trying(search, count)) list.push_back(candidate.settings);
    return list;
  };
  EXPECT_THAT(settings(1), ElementsAre(as_given));
  EXPECT_THAT(settings(2), ElementsAre(as_given, apart));
  EXPECT_THAT(settings(9), ElementsAre(as_given, apart, other));  // a trial could not tell `near` from `as_given`
}

TEST(WorthTrying, is_the_best_alone_where_the_configuration_does_not_fit) {
  const TuneSearch search{.candidates = {{{.split = 2}, 80}, {{.split = 1}, 90}}, .unfit = 1};
  ASSERT_EQ(worth_trying(search, 1).size(), 1u);
  EXPECT_EQ(worth_trying(search, 1).front().step_ms, 80);
}

TEST(TuneSpace, micro_batches_divide_the_samples_of_a_step) {
  EXPECT_THAT(micro_batch_sizes(12, 4), ElementsAre(4, 1, 2, 3, 6, 12));
  EXPECT_THAT(micro_batch_sizes(1, 1), ElementsAre(1));
  EXPECT_THAT(micro_batch_sizes(4096, 16), ElementsAre(16, 2, 4, 8, 32, 64, 128));
}

TEST(TuneSpace, chunks_reach_from_a_part_of_the_largest_partition_to_all_of_it) {
  EXPECT_THAT(chunk_sizes(100'000, 0), ElementsAre(0, 2048, 4096, 8192, 16384, 32768, 65536, 131072));
  EXPECT_THAT(chunk_sizes(100, 0), ElementsAre(0, 1024));
  EXPECT_THAT(chunk_sizes(64 * 8192, 0), Contains(8192));
  EXPECT_THAT(chunk_sizes(64 * 8192 + 1, 0), Not(Contains(8192)));
  EXPECT_THAT(chunk_sizes(int64_t{1} << 31, 3 << 20), ElementsAre(3 << 20, 1 << 20, 2 << 20, 4 << 20));
}

TEST(TuneSpace, splits_are_parts_of_the_memory_of_both) {
  const std::vector<int64_t> shares = device_shares(192 * kMiB, 64 * kMiB);
  EXPECT_EQ(shares.front(), 64 * kMiB);
  for (const int64_t share : shares) {
    EXPECT_EQ(share % kMiB, 0);
    EXPECT_TRUE(share > 0 && share < 192 * kMiB);
    EXPECT_EQ(std::count(shares.begin(), shares.end(), share), 1);
  }
  EXPECT_THAT(device_shares(100 * kKiB, 50 * kKiB), ElementsAre(50 * kKiB, 64 * kKiB));
  constexpr int64_t kGrain = 64 * kKiB;  // of small memories
  EXPECT_THAT(device_shares(20 * kGrain, kMiB),
              ElementsAre(kMiB, kGrain, 2 * kGrain, 3 * kGrain, 5 * kGrain, 7 * kGrain, 10 * kGrain, 12 * kGrain,
                          15 * kGrain, 17 * kGrain));
}

}  // namespace
}  // namespace sluice::testing
