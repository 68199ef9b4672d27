// Virtual time against programs whose times are worked out by hand, and what holds for every program.
#include "engine/simulate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/random.h"

namespace sluice::testing {
namespace {

constexpr auto at(Lane lane) { return static_cast<size_t>(lane); }

Verb verb_in(Lane lane) {
  constexpr Verb kVerbs[] = {Verb::kSwapIn,   Verb::kSwapOut, Verb::kUpload,
                             Verb::kDownload, Verb::kCompute, Verb::kUpdate};
  return kVerbs[static_cast<int>(lane)];
}

// A program whose hops name whom they wait for.
class List {
 public:
  int add(Lane lane, HopCost cost, const std::vector<int>& after = {}) {
    std::vector<Range> reads;
    for (int hop : after) reads.push_back({Place::kControl, hop, hop + 1});
    const int number = static_cast<int>(costs.size());
    const Range own{Place::kControl, number, number + 1};
    costs.push_back(cost);
    return program.emit({.verb = verb_in(lane)}, reads, {&own, 1});
  }
  int add(Lane lane, double ms, const std::vector<int>& after = {}) { return add(lane, HopCost{.work_ms = ms}, after); }
  Simulation run() {
    program.finish();
    hops.assign(costs.size(), {});
    return simulate(program, {.costs = costs, .lanes = lanes, .cores = cores, .hops = hops});
  }

  Program program;
  std::vector<HopCost> costs;
  std::array<LaneModel, kLaneCount> lanes;
  double cores = 2;
  std::vector<SimulatedHop> hops;  // of the last run
};

TEST(Simulate, a_lane_runs_its_hops_in_list_order_and_each_waits_for_its_predecessors) {
  List list;
  const int first = list.add(Lane::kRead, 6), second = list.add(Lane::kRead, 6);
  const int update = list.add(Lane::kUpdate, 1, {first}), next = list.add(Lane::kUpdate, 1, {second});
  list.add(Lane::kWrite, 9, {update});
  list.add(Lane::kWrite, 3, {next});
  const Simulation ran = list.run();
  EXPECT_DOUBLE_EQ(list.hops[4].begin_ms, 7);   // read 0-6, update 6-7
  EXPECT_DOUBLE_EQ(list.hops[3].end_ms, 13);    // read 6-12, update 12-13
  EXPECT_DOUBLE_EQ(list.hops[5].begin_ms, 16);  // behind the write of 7-16
  EXPECT_DOUBLE_EQ(ran.total_ms, 19);
  EXPECT_DOUBLE_EQ(ran.busy_ms[at(Lane::kRead)], 12);
  EXPECT_DOUBLE_EQ(ran.busy_ms[at(Lane::kUpdate)], 2);
  EXPECT_DOUBLE_EQ(ran.busy_ms[at(Lane::kWrite)], 12);
}

TEST(Simulate, a_hop_that_waits_holds_back_those_behind_it_in_its_lane) {
  List list;
  const int compute = list.add(Lane::kCompute, 10);
  list.add(Lane::kRead, 1, {compute});
  list.add(Lane::kRead, 1);
  list.lanes[at(Lane::kRead)].in_flight = 8;
  list.run();
  EXPECT_DOUBLE_EQ(list.hops[2].begin_ms, 10);
}

TEST(Simulate, latency_hides_behind_the_next_hop_in_flight) {
  for (const auto& [in_flight, total] : {std::pair(1, 10.0), std::pair(2, 9.0)}) {
    List list;
    list.lanes[at(Lane::kRead)].in_flight = in_flight;
    for (int i = 0; i < 2; ++i) list.add(Lane::kRead, HopCost{.work_ms = 4, .latency_ms = 1});
    const Simulation ran = list.run();
    EXPECT_DOUBLE_EQ(ran.total_ms, total);
    EXPECT_DOUBLE_EQ(ran.busy_ms[at(Lane::kRead)], total);
  }
}

TEST(Simulate, a_hop_with_nothing_to_do_takes_no_time_but_waits_its_turn) {
  List list;
  const int compute = list.add(Lane::kCompute, 5);
  const int nothing = list.add(Lane::kUpload, HopCost{.due = Due::kNo, .work_ms = 100}, {compute});
  list.add(Lane::kCompute, 2, {nothing});
  const Simulation ran = list.run();
  EXPECT_DOUBLE_EQ(ran.total_ms, 7);
  EXPECT_DOUBLE_EQ(ran.busy_ms[at(Lane::kUpload)], 0);
}

TEST(Simulate, as_many_hops_of_a_lane_are_served_at_once_as_it_has_servers) {
  List list;
  list.lanes[at(Lane::kUpdate)] = {.in_flight = 4, .served = 2};
  for (int i = 0; i < 3; ++i) list.add(Lane::kUpdate, 4);
  const Simulation ran = list.run();
  EXPECT_DOUBLE_EQ(list.hops[1].end_ms, 4);
  EXPECT_DOUBLE_EQ(list.hops[2].begin_ms, 0);  // in flight, and waiting
  EXPECT_DOUBLE_EQ(ran.total_ms, 8);
}

TEST(Simulate, reads_and_writes_share_the_drive_while_both_are_served) {
  List list;
  list.lanes[at(Lane::kRead)].beside = 0.5;
  list.lanes[at(Lane::kWrite)].beside = 0.25;
  list.add(Lane::kRead, 10);
  list.add(Lane::kWrite, 2);
  const Simulation ran = list.run();
  EXPECT_DOUBLE_EQ(list.hops[1].end_ms, 8);  // a fourth of its speed
  EXPECT_DOUBLE_EQ(ran.total_ms, 14);        // 4 of 10 until then, the rest at full speed
}

TEST(Simulate, all_that_wants_cpu_goes_at_the_pace_of_the_fullest_core) {
  List list;
  list.add(Lane::kCompute, HopCost{.work_ms = 10, .cores = 2});
  list.add(Lane::kUpdate, HopCost{.work_ms = 4, .cores = 1});
  list.add(Lane::kRead, 3);
  list.run();
  EXPECT_DOUBLE_EQ(list.hops[1].end_ms, 8);  // three threads on two cores: two of them on one
  EXPECT_DOUBLE_EQ(list.hops[0].end_ms, 14);
  EXPECT_DOUBLE_EQ(list.hops[2].end_ms, 3);  // wants none
  List wide;
  wide.cores = 3;
  wide.add(Lane::kCompute, HopCost{.work_ms = 10, .cores = 2});
  wide.add(Lane::kUpdate, HopCost{.work_ms = 4, .cores = 1});
  EXPECT_DOUBLE_EQ(wide.run().total_ms, 10);
}

// Eight steps of 24 blocks in one list, each with one record of state that is read into one of a few slots, updated
// beside the forward and written: reads 144, writes 72 ms a step.
double ms_per_step_of_sketch(double compute_ms, int slots) {
  constexpr int kBlocks = 24, kSteps = 8;
  Program program;
  std::vector<HopCost> costs;
  const auto emit = [&](Lane lane, double ms, const std::vector<Range>& reads, const std::vector<Range>& fills) {
    costs.push_back({.work_ms = ms});
    program.emit({.verb = verb_in(lane)}, reads, fills);
  };
  const auto byte = [](Place place, int64_t offset) { return Range{place, offset, offset + 1}; };
  const Range scale = byte(Place::kControl, 0), stream = byte(Place::kControl, 1);
  const auto slot = [&](int b) { return byte(Place::kHost, b % slots); };
  const auto gradient = [&](int b) { return byte(Place::kHost, 100 + b); };
  const auto weights = [&](int b) { return byte(Place::kHost, 200 + b); };
  const auto read = [&](int b) { emit(Lane::kRead, 6, {byte(Place::kStore, b)}, {slot(b)}); };
  const auto prefetch = [&] {
    for (int b = 0; b < std::min(slots, kBlocks); ++b) read(b);
  };
  int turn = 0;
  const auto upload = [&](int b) {
    const Range to = byte(Place::kDevice, turn++ % 2);
    emit(Lane::kUpload, 0.5, {weights(b)}, {to});
    return to;
  };
  prefetch();
  for (int step = 0; step < kSteps; ++step) {
    for (int b = 0; b < kBlocks; ++b) {
      if (b >= slots) read(b);
      emit(Lane::kUpdate, 1, {gradient(b), scale}, {slot(b), weights(b)});
      emit(Lane::kWrite, 3, {slot(b)}, {byte(Place::kStore, b)});
      emit(Lane::kCompute, compute_ms / kBlocks / 4, {upload(b)}, {stream});
    }
    for (int b = kBlocks - 1; b >= 0; --b) {
      const Range closed = byte(Place::kDevice, 10 + b % 2);
      emit(Lane::kCompute, 3 * compute_ms / kBlocks / 4, {upload(b)}, {stream, closed});
      emit(Lane::kDownload, 0.5, {closed}, {gradient(b)});
    }
    emit(Lane::kCompute, 0, {{Place::kHost, 100, 100 + kBlocks}}, {scale});
    prefetch();
  }
  program.finish();
  return simulate(program, {.costs = costs, .lanes = {}}).total_ms / kSteps;
}

TEST(Simulate, gives_the_times_of_an_independent_simulator_for_deferred_updates_with_few_slots) {
  EXPECT_NEAR(ms_per_step_of_sketch(96, 2), 212.0, 0.06);
  EXPECT_NEAR(ms_per_step_of_sketch(96, 4), 201.5, 0.06);
  EXPECT_NEAR(ms_per_step_of_sketch(192, 2), 285.0, 0.06);
  EXPECT_NEAR(ms_per_step_of_sketch(192, 24), 206.2, 0.06);
  EXPECT_NEAR(ms_per_step_of_sketch(384, 4), 420.5, 0.06);
  EXPECT_NEAR(ms_per_step_of_sketch(768, 1), 816.8, 0.06);
}

List random_list(uint64_t seed) {
  List list;
  uint64_t draws = 0;
  const auto draw = [&](double below) { return uniform_at(seed, 1, draws++) * below; };
  for (int hop = 0; hop < 60; ++hop) {
    std::vector<int> after;
    for (int i = 0; i < 2 && hop > 0; ++i) after.push_back(static_cast<int>(draw(hop)));
    list.add(static_cast<Lane>(static_cast<int>(draw(kLaneCount))),
             HopCost{.due = draw(1) < 0.1 ? Due::kNo : Due::kYes,
                     .work_ms = draw(5),
                     .latency_ms = draw(0.5),
                     .cores = draw(1) < 0.5 ? draw(2) : 0},
             after);
  }
  for (LaneModel& lane : list.lanes) lane = {.in_flight = 1 + static_cast<int>(draw(8)), .beside = 0.3 + draw(0.7)};
  return list;
}

double all_work(const List& list, double times) {
  return std::accumulate(list.costs.begin(), list.costs.end(), 0.0, [&](double sum, const HopCost& cost) {
    return cost.due == Due::kNo ? sum : sum + cost.work_ms * times + cost.latency_ms;
  });
}

TEST(Simulate, no_lane_is_busy_longer_than_the_whole_and_none_shorter_than_its_work) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    List list = random_list(seed);
    const Simulation ran = list.run();
    std::array<double, kLaneCount> work{};
    for (size_t hop = 0; hop < list.costs.size(); ++hop) {
      const HopCost& cost = list.costs[hop];
      if (cost.due == Due::kYes) work[at(list.program.hops()[hop].lane())] += cost.work_ms;
      EXPECT_GE(list.hops[hop].end_ms, list.hops[hop].begin_ms);
      for (int before : list.program.predecessors(static_cast<int>(hop))) {
        if (cost.due == Due::kNo) continue;
        EXPECT_GE(list.hops[hop].begin_ms, list.hops[before].end_ms) << "hop " << hop << " of list " << seed;
      }
    }
    for (size_t lane = 0; lane < kLaneCount; ++lane) {
      EXPECT_LE(ran.busy_ms[lane], ran.total_ms + 1e-6);
      EXPECT_GE(ran.busy_ms[lane], work[lane] - 1e-6);
    }
    EXPECT_LE(ran.total_ms, all_work(list, 1 / 0.3));  // never slower than one after the other at the lowest speeds
  }
}

TEST(Simulate, a_machine_twice_as_fast_takes_half_the_time) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    List slow = random_list(seed), fast = random_list(seed);
    for (HopCost& cost : fast.costs) cost.work_ms /= 2, cost.latency_ms /= 2;
    EXPECT_NEAR(fast.run().total_ms, slow.run().total_ms / 2, 1e-6);
  }
}

TEST(SlowedBy, the_fullest_core_is_shared_and_a_quota_by_all) {
  EXPECT_EQ(slowed_by(1, 2), 1);
  EXPECT_EQ(slowed_by(2, 2), 1);
  EXPECT_EQ(slowed_by(3, 2), 2);
  EXPECT_EQ(slowed_by(4, 2), 2);
  EXPECT_DOUBLE_EQ(slowed_by(2, 1.5), 2 / 1.5);
  EXPECT_EQ(slowed_by(1, 1.5), 1);
  double wanted = 0;  // ten times 0.7 are a little more than 7
  for (int i = 0; i < 10; ++i) wanted += 0.7;
  ASSERT_GT(wanted, 7);
  EXPECT_EQ(slowed_by(wanted, 1), 7);
}

}  // namespace
}  // namespace sluice::testing
