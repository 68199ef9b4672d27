// Runs a program in virtual time: the executor's rules, and a model of what hops take from each other.
//
// Rules, as in offload/executor.h, but that what a device orders itself waits here as well: a lane starts its hops in
// list order, each as soon as all that it waits for have ended and the lane has fewer than its limit in flight; a hop
// with nothing to do ends as it would start. The first so many in flight are served (the drive's directions, the
// copies' and compute: one; update: its threads), the rest wait behind them. After its work a hop stays in flight for
// its latency, which uses nothing.
//
// What is shared:
//   - the drive: while a read and a write are served, each goes at a speed of its own (LaneModel::beside);
//   - the CPU: `cores` of them. A hop that is served wants some, as many threads. Where all together want more, every
//     hop that wants CPU goes slowed_by() times slower: compute's threads meet at barriers, so a visit is as slow as
//     its slowest core, and what shares that core as slow.
// Nothing else is: no memory bandwidth, no caches. Units of a step never overlap (a unit ends when all its hops have),
// so one unit is what a step takes.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "offload/program.h"

namespace sluice {

enum class Due : uint8_t { kNo, kYes };

struct HopCost {
  Due due = Due::kYes;
  double work_ms = 0;     // served alone, with all the CPU that it wants
  double latency_ms = 0;  // afterwards
  double cores = 0;       // wanted while it is served
};

// How many times as long work takes where all that runs wants so many cores: the threads of the fullest core share it.
// A fraction of a core is a quota's, of which every thread has the same part.
double slowed_by(double wanted_cores, double cores);

struct LaneModel {
  int in_flight = 1;  // at most
  int served = 1;     // of them, in the order of starting
  double beside = 1;  // speed while the drive's other direction is served too, as a share of that alone
};

struct SimulatedHop {
  double begin_ms = 0, end_ms = 0;  // both 0: it had nothing to do
};

struct SimulationOptions {
  std::span<const HopCost> costs;  // of each of the program's hops
  std::array<LaneModel, kLaneCount> lanes;
  double cores = 1;
  std::span<SimulatedHop> hops{};  // where given, of each of the program's: when it ran is written there
};

struct Simulation {
  double total_ms = 0;
  std::array<double, kLaneCount> busy_ms{};  // at least one hop in flight, as UnitTimes has it
};

Simulation simulate(const Program& program, const SimulationOptions& options);

}  // namespace sluice
