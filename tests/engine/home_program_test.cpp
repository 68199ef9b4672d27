// The choice of homes against every choice there is, on small cases with random work, memory and speeds.
#include "engine/home_program.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "tests/engine/machines.h"

namespace sluice::testing {
namespace {

// Lanes' work is given as it is; drives may gain or lose by doing both.
MachineSpeeds machine_whose_drives_do(double both, double alone) {
  MachineSpeeds machine = endless();
  machine.read_gb_per_s = machine.write_gb_per_s = alone;
  machine.mixed_gb_per_s = both;
  machine.update_ns_per_element = 1;
  machine.update_threads = 2;
  machine.cores = 2;
  return machine;
}

// Classes of a few items that are alike, each of which can be at one home alone.
struct SmallCase {
  HomeProgram program;
  std::vector<int> items;  // of each class
};

SmallCase random_case(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> any(0, 1);
  SmallCase small;
  small.program.machine = machine_whose_drives_do(0.5 + any(random) * 2, 1);
  const int classes = 2 + static_cast<int>(seed % 3);
  double host = 0, device = 0;
  for (int c = 0; c < classes; ++c) {
    const int homes = 2 + static_cast<int>(random() % 3);
    HomeClass::Homes each;
    for (int home = 0; home < homes; ++home) {
      ClassAtHome at{.device_bytes = home == 0 ? any(random) * 1e9 : 0,
                     .host_bytes = home == 1 ? any(random) * 1e9 : 0};
      for (double& ms : at.work_ms) ms = any(random) * 10;
      host = std::max(host, at.host_bytes);
      device = std::max(device, at.device_bytes);
      each.push_back(at);
    }
    each.back().device_bytes = each.back().host_bytes = 0;
    // Some go along with the first class to its first home: then they have as many items.
    const bool beside = c > 0 && random() % 2 == 0;
    small.program.classes.push_back({each, beside ? std::optional<size_t>(0) : std::nullopt});
    small.items.push_back(beside ? small.items[0] : 2 + static_cast<int>(random() % 3));
  }
  for (double& ms : small.program.rest_ms) ms = any(random) * 10;
  small.program.rest_ms[static_cast<size_t>(random() % kLaneCount)] += any(random) * 40;
  small.program.device_bytes = any(random) * device * classes / 2;
  small.program.host_bytes = any(random) * host * classes / 2;
  return small;
}

double longest_ms(const GroupTimes& times) { return times[static_cast<size_t>(longest(times))]; }
double longest_ms(const LaneTimes& work_ms, const MachineSpeeds& machine) {
  return longest_ms(group_times(work_ms, machine));
}

// The least over every assignment of whole items that fits.
double by_enumeration(const SmallCase& small) {
  double best = std::numeric_limits<double>::infinity();
  int first_at_first = 0;  // items of the first class at its first home: those of others beside them are there as well
  // Item by item: the class, how many of its items have a home, from which home on the next may choose.
  std::function<void(size_t, int, size_t, LaneTimes, double, double)> visit =
      [&](size_t c, int placed, size_t from, LaneTimes work_ms, double device, double host) {
        if (device < 0 || host < 0) return;
        if (c == small.items.size()) {
          best = std::min(best, longest_ms(work_ms, small.program.machine));
          return;
        }
        const bool beside = small.program.classes[c].beside.has_value();
        if (placed + (beside ? first_at_first : 0) == small.items[c]) return visit(c + 1, 0, 0, work_ms, device, host);
        for (size_t home = from; home < small.program.classes[c].homes.size(); ++home) {
          const ClassAtHome& all = small.program.classes[c].homes[home];
          first_at_first += c == 0 && home == 0 ? 1 : 0;
          LaneTimes sum = work_ms;
          for (size_t lane = 0; lane < sum.size(); ++lane) sum[lane] += all.work_ms[lane] / small.items[c];
          visit(c, placed + 1, home, sum, device - all.device_bytes / small.items[c],
                host - all.host_bytes / small.items[c]);
          first_at_first -= c == 0 && home == 0 ? 1 : 0;
        }
      };
  visit(0, 0, 0, small.program.rest_ms, small.program.device_bytes, small.program.host_bytes);
  return best;
}

TEST(HomeProgram, no_assignment_of_whole_items_is_better_and_what_it_says_fits) {
  int binding_seen[kLaneGroupCount] = {}, went_along = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const SmallCase small = random_case(seed);
    const std::optional<HomeSolution> solution = solve(small.program);
    ASSERT_TRUE(solution) << seed;
    double device = 0, host = 0;
    LaneTimes work_ms = small.program.rest_ms;
    for (size_t c = 0; c < small.program.classes.size(); ++c) {
      const HomeClass& each = small.program.classes[c];
      double sum = each.beside ? solution->shares[*each.beside][0] : 0;
      went_along += sum > 0.01 ? 1 : 0;
      for (size_t home = 0; home < each.homes.size(); ++home) {
        const double share = solution->shares[c][home];
        EXPECT_GE(share, -1e-9);
        sum += share;
        device += share * each.homes[home].device_bytes;
        host += share * each.homes[home].host_bytes;
        for (size_t lane = 0; lane < work_ms.size(); ++lane) {
          work_ms[lane] += share * each.homes[home].work_ms[lane];
        }
      }
      EXPECT_NEAR(sum, 1, 1e-9);
    }
    EXPECT_LE(device, small.program.device_bytes * (1 + 1e-9)) << seed;
    EXPECT_LE(host, small.program.host_bytes * (1 + 1e-9)) << seed;
    const GroupTimes times = group_times(work_ms, small.program.machine);
    // What counts among equals costs less than a thousandth.
    EXPECT_LE(longest_ms(times), by_enumeration(small) * 1.001) << seed;
    ++binding_seen[static_cast<size_t>(longest(times))];
  }
  EXPECT_GT(went_along, 20);
  for (int g = 0; g < kLaneGroupCount; ++g) EXPECT_GT(binding_seen[g], 0) << name_of(static_cast<LaneGroup>(g));
}

// Two drives' worth of bytes, one place in memory: what is there is not read, and something else is written.
TEST(HomeProgram, the_binding_resource_switches_where_memory_goes_to_both_sides) {
  HomeProgram program{.machine = machine_whose_drives_do(2, 1)};
  LaneTimes reads{}, uploads{};
  reads[static_cast<size_t>(Lane::kRead)] = 10;
  uploads[static_cast<size_t>(Lane::kUpload)] = 10;
  program.classes = {{.homes = {{.device_bytes = 8}, {.work_ms = reads}}},
                     {.homes = {{.device_bytes = 8}, {.work_ms = uploads}}}};
  program.device_bytes = 8;
  const auto solution = solve(program);
  ASSERT_TRUE(solution);
  // Either side alone leaves 10 ms to the other; half of each leaves 5 to both.
  EXPECT_NEAR(solution->shares[0][0], 0.5, 1e-6);
  EXPECT_NEAR(solution->shares[1][0], 0.5, 1e-6);
}

TEST(HomeProgram, of_equals_the_least_work_is_taken) {
  HomeProgram program{.machine = machine_whose_drives_do(2, 1)};
  program.rest_ms[static_cast<size_t>(Lane::kCompute)] = 100;  // binds, whatever the homes
  LaneTimes reads{};
  reads[static_cast<size_t>(Lane::kRead)] = 10;
  program.classes = {{.homes = {{.host_bytes = 8}, {.work_ms = reads}}}};
  program.host_bytes = 8;
  const auto solution = solve(program);
  ASSERT_TRUE(solution);
  EXPECT_NEAR(solution->shares[0][0], 1, 1e-6);
}

TEST(HomeProgram, bytes_that_fit_nowhere_have_no_solution) {
  HomeProgram program{.machine = machine_whose_drives_do(2, 1)};
  program.classes = {{.homes = {{.device_bytes = 8}, {.host_bytes = 8}}}};
  program.device_bytes = program.host_bytes = 3;
  EXPECT_FALSE(solve(program));
  program.host_bytes = 5;
  EXPECT_TRUE(solve(program));
}

}  // namespace
}  // namespace sluice::testing
