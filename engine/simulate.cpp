#include "engine/simulate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/errors.h"

namespace sluice {
namespace {

// Below this a sum of doubles is taken for nothing: work left of a hop in ms, cores.
constexpr double kNothing = 1e-9;

class Simulator {
 public:
  Simulator(const Program& program, const SimulationOptions& options)
      : program_(program), options_(options), remaining_(program.hops().size()) {
    SLUICE_CHECK(options.costs.size() == program.hops().size(), "a cost for each hop");
    for (int hop = 0; hop < static_cast<int>(remaining_); ++hop) {
      waiting_.push_back(static_cast<int>(program.predecessors(hop).size()));
    }
    for (size_t lane = 0; lane < lanes_.size(); ++lane) lanes_[lane].hops = program.lane(static_cast<Lane>(lane));
    SLUICE_CHECK(options.hops.empty() || options.hops.size() == remaining_, "a place for each hop");
  }

  Simulation run() {
    for (;;) {
      while (start_ready()) {
      }
      if (remaining_ == 0) break;
      pass_time();
    }
    result_.total_ms = now_ms_;
    return result_;
  }

 private:
  struct Running {
    int hop = -1;
    double work_ms = 0, latency_ms = 0;  // left
    double speed = 0;                    // at which the work goes on now
    bool works() const { return work_ms > 0; }
    double left_ms() const {  // until its work, or then its latency, is over
      if (!works()) return latency_ms;
      return speed > 0 ? work_ms / speed : std::numeric_limits<double>::infinity();
    }
  };
  struct LaneState {
    std::span<const int32_t> hops;  // in list order
    size_t next = 0;                // to be started
    std::vector<Running> running;   // in the order of starting
  };

  bool start_ready();
  void settle(int hop);
  void set_speeds();
  void pass_time();
  void advance(size_t lane, double ms);

  const Program& program_;
  const SimulationOptions& options_;
  std::array<LaneState, kLaneCount> lanes_;
  std::vector<int> waiting_;  // predecessors not yet ended, per hop
  size_t remaining_;          // hops not ended
  double now_ms_ = 0;
  Simulation result_;
};

// As Executor::start_ready: true if a hop without anything to do has ended, so that others may have become ready.
bool Simulator::start_ready() {
  bool passed_over = false;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    LaneState& lane = lanes_[i];
    const auto limit = static_cast<size_t>(options_.lanes[i].in_flight);
    while (lane.next < lane.hops.size() && lane.running.size() < limit && waiting_[lane.hops[lane.next]] == 0) {
      const int hop = lane.hops[lane.next++];
      const HopCost& cost = options_.costs[hop];
      if (cost.due == Due::kYes) {
        if (!options_.hops.empty()) options_.hops[hop].begin_ms = now_ms_;
        lane.running.push_back({.hop = hop, .work_ms = cost.work_ms, .latency_ms = cost.latency_ms});
      } else {
        settle(hop);
        passed_over = true;
      }
    }
  }
  return passed_over;
}

void Simulator::settle(int hop) {
  --remaining_;
  for (int32_t successor : program_.successors(hop)) --waiting_[successor];
}

// How fast every hop in flight goes until the next one starts or ends.
void Simulator::set_speeds() {
  std::array<int, kLaneCount> served{};
  double wanted = 0;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    for (Running& each : lanes_[i].running) {
      each.speed = 0;
      if (!each.works() || served[i] == options_.lanes[i].served) continue;
      ++served[i];
      each.speed = 1;
      wanted += options_.costs[each.hop].cores;
    }
  }
  const double share = 1 / slowed_by(wanted, options_.cores);
  const auto served_in = [&](Lane lane) { return served[static_cast<size_t>(lane)] > 0; };
  const bool both_ways = served_in(Lane::kRead) && served_in(Lane::kWrite);
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const bool beside = both_ways && (i == static_cast<size_t>(Lane::kRead) || i == static_cast<size_t>(Lane::kWrite));
    for (Running& each : lanes_[i].running) {
      if (beside) each.speed *= options_.lanes[i].beside;
      if (options_.costs[each.hop].cores > 0) each.speed *= share;
    }
  }
}

// To the next moment at which a hop's work or latency is over.
void Simulator::pass_time() {
  set_speeds();
  double step_ms = std::numeric_limits<double>::infinity();
  for (const LaneState& lane : lanes_) {
    for (const Running& each : lane.running) step_ms = std::min(step_ms, each.left_ms());
  }
  SLUICE_CHECK(step_ms < std::numeric_limits<double>::infinity(), "hops wait for each other");
  now_ms_ += step_ms;
  for (size_t lane = 0; lane < lanes_.size(); ++lane) advance(lane, step_ms);
}

void Simulator::advance(size_t lane, double ms) {
  std::vector<Running>& running = lanes_[lane].running;
  if (!running.empty()) result_.busy_ms[lane] += ms;
  std::erase_if(running, [&](Running& each) {
    double& left = each.works() ? each.work_ms : each.latency_ms;
    left -= each.works() ? ms * each.speed : ms;
    if (left < kNothing) left = 0;
    if (each.work_ms > 0 || each.latency_ms > 0) return false;
    if (!options_.hops.empty()) options_.hops[each.hop].end_ms = now_ms_;
    settle(each.hop);
    return true;
  });
}

}  // namespace

double slowed_by(double wanted_cores, double cores) {
  const double each = wanted_cores / cores;
  return std::max(1.0, cores == std::floor(cores) ? std::ceil(each - kNothing) : each);
}

Simulation simulate(const Program& program, const SimulationOptions& options) {
  return Simulator(program, options).run();
}

}  // namespace sluice
