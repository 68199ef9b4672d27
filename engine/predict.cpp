#include "engine/predict.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/errors.h"
#include "engine/simulate.h"
#include "offload/executor.h"

namespace sluice {
namespace {

// GB/s are bytes per nanosecond.
double ms_of(int64_t bytes, double gb_per_s) { return static_cast<double>(bytes) / gb_per_s / 1e6; }

enum class Commits : uint8_t { kNo, kYes };

// What the hops of one unit cost.
class UnitCosts {
 public:
  UnitCosts(const Plan& plan, const StepSpeeds& speeds, const UnitProgram& unit, UnitKind kind)
      : plan_(plan), speeds_(speeds), machine_(speeds.machine), unit_(unit), kind_(kind) {}

  std::vector<HopCost> all(Commits commits) const {
    std::vector<HopCost> costs;
    for (const Hop& hop : unit_.program.hops()) costs.push_back(of(hop, commits));
    return costs;
  }

 private:
  HopCost of(const Hop& hop, Commits commits) const;
  HopCost transfer(const Hop& hop) const;
  double update_ms(const Hop& hop, Commits commits) const;
  double turn_ms(const Hop& hop) const;

  const Plan& plan_;
  const StepSpeeds& speeds_;
  const MachineSpeeds& machine_;
  const UnitProgram& unit_;
  UnitKind kind_;
};

HopCost UnitCosts::of(const Hop& hop, Commits commits) const {
  const bool commit_hop = hop.when == When::kCommit || hop.when == When::kCommitDirty;
  if (!due_in_steady_step(plan_, kind_, hop) || (commit_hop && commits == Commits::kNo)) return {.due = Due::kNo};
  const double hop_ms = machine_.hop_us / 1e3;
  switch (hop.verb) {
    case Verb::kSwapIn:
    case Verb::kSwapOut:
      return transfer(hop);
    case Verb::kUpload:
      return {
          .work_ms = ms_of(hop.bytes, machine_.upload_gb_per_s), .latency_ms = hop_ms, .cores = machine_.copy_cores};
    case Verb::kDownload:
      return {
          .work_ms = ms_of(hop.bytes, machine_.download_gb_per_s), .latency_ms = hop_ms, .cores = machine_.copy_cores};
    case Verb::kUpdate:
      return {.work_ms = update_ms(hop, commits), .latency_ms = hop_ms, .cores = 1};
    case Verb::kVerify:
    case Verb::kSeal:
      return {.work_ms = ms_of(hop.bytes, machine_.checksum_gb_per_s), .latency_ms = hop_ms, .cores = 1};
    case Verb::kCompute:
      return {.work_ms = turn_ms(hop), .latency_ms = hop_ms, .cores = machine_.compute_cores};
    case Verb::kClose:
      return {.work_ms = ms_of(plan_.geometry.partitions()[hop.index].elements * 4, machine_.close_gb_per_s),
              .latency_ms = hop_ms,
              .cores = machine_.copy_cores};
    case Verb::kClip:
      return {.latency_ms = hop_ms};
    case Verb::kCommit:
      return {.latency_ms = machine_.commit_ms + hop_ms};
  }
  return {};
}

HopCost UnitCosts::transfer(const Hop& hop) const {
  const bool in = hop.verb == Verb::kSwapIn;
  return {.work_ms = ms_of(hop.bytes, in ? machine_.read_gb_per_s : machine_.write_gb_per_s),
          .latency_ms = (machine_.transfer_us + machine_.hop_us) / 1e3};
}

// As UpdatePass::run has it, by one thread.
double UnitCosts::update_ms(const Hop& hop, Commits commits) const {
  const ChunkHomes& homes = plan_.chunks[hop.index];
  const int64_t elements = plan_.geometry.chunks()[hop.index].elements;
  const auto bytes = [&](Group group) { return elements * bytes_per_element(plan_.options.format(), group); };
  const bool weights_come = homes.weights == Home::kNvme, state_comes = homes.state == Home::kNvme;
  int64_t summed = weights_come ? bytes(Group::kWeights) : 0;
  const bool done_early =
      hop.when != When::kSpeculating && kind_ == UnitKind::kTrainSpeculative && plan_.speculated(hop.index);
  if (done_early) return ms_of(summed, machine_.checksum_gb_per_s);
  const bool commit = hop.when == When::kSpeculating || commits == Commits::kYes;
  if (state_comes) summed += bytes(Group::kState);
  if (homes.gradient == Home::kNvme && hop.when != When::kSpeculating) summed += plan_.gradient_bytes(elements);
  if (weights_come || commit) summed += bytes(Group::kWeights);
  if (state_comes || commit) summed += bytes(Group::kState);
  return static_cast<double>(elements) * machine_.update_ns_per_element * machine_.update_threads / 1e6 +
         ms_of(summed, machine_.checksum_gb_per_s);
}

double UnitCosts::turn_ms(const Hop& hop) const {
  const VisitTime& time = speeds_.visits[hop.visit];
  const Turn& turn = unit_.turns[hop.operands];
  if (turn.graph >= 0) return turn.pass == Pass::kBackward ? time.kept_backward_ms : time.keeping_forward_ms;
  return turn.pass == Pass::kBackward ? time.backward_ms : time.forward_ms;
}

std::array<LaneModel, kLaneCount> lane_models(const MachineSpeeds& machine) {
  std::array<LaneModel, kLaneCount> lanes;
  for (int lane = 0; lane < kLaneCount; ++lane) {
    lanes[lane].in_flight = in_flight_limit(static_cast<Lane>(lane), kUpdateHopsPerThread * machine.update_threads);
  }
  lanes[static_cast<int>(Lane::kUpdate)].served = machine.update_threads;
  // Reads and writes take turns request by request, so each moves half of what both do.
  lanes[static_cast<int>(Lane::kRead)].beside = machine.mixed_gb_per_s / 2 / machine.read_gb_per_s;
  lanes[static_cast<int>(Lane::kWrite)].beside = machine.mixed_gb_per_s / 2 / machine.write_gb_per_s;
  return lanes;
}

// Work of each lane: all of it, and of that what every micro-batch adds.
struct Work {
  std::array<double, kLaneCount> all_ms{}, tensors_ms{};
};

bool of_a_micro_batch(const Hop& hop) { return hop.verb == Verb::kCompute || hop.group == Group::kActivations; }

using GroupTimes = std::array<double, kLaneGroupCount>;

// Each resource's time for this work of its lanes.
GroupTimes group_times(const std::array<double, kLaneCount>& work_ms, const MachineSpeeds& machine,
                       const std::array<LaneModel, kLaneCount>& lanes) {
  const auto at = [](Lane lane) { return static_cast<size_t>(lane); };
  const double read_ms = work_ms[at(Lane::kRead)], write_ms = work_ms[at(Lane::kWrite)];
  const double read_beside = lanes[at(Lane::kRead)].beside, write_beside = lanes[at(Lane::kWrite)].beside;
  const double both_ms = std::min(read_ms / read_beside, write_ms / write_beside);
  const double slowed = std::max(1.0, std::ceil(machine.compute_cores / machine.cores));
  return {both_ms + (read_ms - both_ms * read_beside) + (write_ms - both_ms * write_beside),
          work_ms[at(Lane::kUpdate)] / std::min<double>(machine.update_threads, machine.cores),
          std::max(work_ms[at(Lane::kUpload)], work_ms[at(Lane::kDownload)]), work_ms[at(Lane::kCompute)] * slowed};
}

// Where compute's time, c a micro-batch, passes the others', f + a a micro-batch.
std::optional<double> critical_micro_batches(const GroupTimes& all, const GroupTimes& tensors, int micro_batches) {
  constexpr auto kComputeAt = static_cast<size_t>(LaneGroup::kCompute);
  const double each = tensors[kComputeAt] / micro_batches, fixed = all[kComputeAt] - tensors[kComputeAt];
  double critical = 0;
  for (size_t group = 0; group < all.size(); ++group) {
    if (group == kComputeAt) continue;
    const double added = each - tensors[group] / micro_batches;
    const double wanted = all[group] - tensors[group] - fixed;
    if (wanted <= 0 && added >= 0) continue;
    if (added <= 0) return std::nullopt;
    critical = std::max(critical, wanted / added);
  }
  return critical;
}

}  // namespace

UnitKind unclipped_kind(const Plan& plan) {
  return plan.any_speculated() ? UnitKind::kTrainSpeculative : UnitKind::kTrain;
}

Prediction predict(const ModelSpec& model, const Plan& plan, const StepSpeeds& speeds) {
  return predict(model, plan, speeds, unclipped_kind(plan));
}

Prediction predict(const ModelSpec& model, const Plan& plan, const StepSpeeds& speeds, UnitKind kind) {
  SLUICE_CHECK(speeds.visits.size() == model.visits.size(), "a time for each visit");
  const UnitProgram unit = build_unit(model, plan, kind);
  const UnitCosts unit_costs(plan, speeds, unit, kind);
  const auto lanes = lane_models(speeds.machine);
  Prediction prediction;
  Work work;
  const double commits = 1.0 / plan.commit_interval;
  for (const auto& [which, share] : {std::pair(Commits::kYes, commits), std::pair(Commits::kNo, 1 - commits)}) {
    if (share <= 0) continue;
    const std::vector<HopCost> costs = unit_costs.all(which);
    const Simulation simulation =
        simulate(unit.program, {.costs = costs, .lanes = lanes, .cores = speeds.machine.cores});
    prediction.step_ms += share * simulation.total_ms;
    for (size_t lane = 0; lane < kLaneCount; ++lane) prediction.busy_ms[lane] += share * simulation.busy_ms[lane];
    for (size_t hop = 0; hop < costs.size(); ++hop) {
      const Hop& what = unit.program.hops()[hop];
      const auto lane = static_cast<size_t>(what.lane);
      work.all_ms[lane] += share * costs[hop].work_ms;
      if (of_a_micro_batch(what)) work.tensors_ms[lane] += share * costs[hop].work_ms;
    }
  }
  prediction.alone_ms = group_times(work.all_ms, speeds.machine, lanes);
  for (int group = 0; group < kLaneGroupCount; ++group) {
    const auto candidate = static_cast<LaneGroup>(group);
    if (prediction.alone(candidate) > prediction.alone(prediction.binding)) prediction.binding = candidate;
  }
  prediction.critical_micro_batches = critical_micro_batches(
      prediction.alone_ms, group_times(work.tensors_ms, speeds.machine, lanes), plan.options.micro_batches);
  return prediction;
}

}  // namespace sluice
