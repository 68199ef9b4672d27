#include "engine/hop_costs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "offload/executor.h"

namespace sluice {
namespace {

// GB/s are bytes per nanosecond.
double ms_of(int64_t bytes, double gb_per_s) { return static_cast<double>(bytes) / gb_per_s / 1e6; }

}  // namespace

UnitCosts::UnitCosts(const Plan& plan, const StepSpeeds& speeds, const UnitProgram& unit, UnitKind kind)
    : plan_(plan), speeds_(speeds), machine_(speeds.machine), unit_(unit), kind_(kind) {
  for (const Commits commits : {Commits::kNo, Commits::kYes}) {
    if (commits == Commits::kNo && plan.commit_interval == 1) continue;
    std::vector<HopCost>& costs = of_step_[static_cast<size_t>(commits)];
    costs.reserve(unit.program.hops().size());
    for (const Hop& hop : unit.program.hops()) costs.push_back(of(hop, commits));
  }
}

std::vector<double> UnitCosts::average_work_ms() const {
  const double commits = 1.0 / plan_.commit_interval;
  const std::vector<HopCost>&with = of_step(Commits::kYes), &without = of_step(Commits::kNo);
  const double of_gpu = std::min<double>(machine_.update_threads, machine_.cores) / machine_.update_threads;
  std::vector<double> work_ms;
  work_ms.reserve(with.size());
  for (size_t i = 0; i < with.size(); ++i) {
    const Hop& hop = unit_.program.hops()[i];
    double ms = commits * with[i].work_ms;
    if (!without.empty()) ms += (1 - commits) * without[i].work_ms;
    if (hop.verb == Verb::kCommit) ms += commits * with[i].latency_ms;
    const bool takes_no_core = hop.lane() == Lane::kUpdate && with[i].cores == 0;
    work_ms.push_back(takes_no_core ? of_gpu * ms : ms);
  }
  return work_ms;
}

HopCost UnitCosts::of(const Hop& hop, Commits commits) const {
  const bool commit_hop = hop.when == When::kCommit || hop.when == When::kCommitDirty;
  if (!due_in_steady_step(kind_, hop) || (commit_hop && commits == Commits::kNo)) return {.due = Due::kNo};
  const double hop_ms = machine_.hop_us / 1e3;
  switch (hop.verb) {
    case Verb::kSwapIn:
    case Verb::kSwapOut:
      return transfer(hop);
    case Verb::kUpload:
      return by_thread(ms_of(hop.bytes, machine_.upload_gb_per_s), machine_.copy_cores);
    case Verb::kDownload:
      return by_thread(ms_of(hop.bytes, machine_.download_gb_per_s), machine_.copy_cores);
    case Verb::kUpdate:
      return update(hop, commits);
    case Verb::kVerify:
    case Verb::kSeal:
      return by_thread(ms_of(hop.bytes, machine_.checksum_gb_per_s), 1);
    case Verb::kCompute:
      return {.work_ms = turn_ms(hop), .latency_ms = hop_ms, .cores = machine_.compute_cores};
    case Verb::kClose:
      return {.work_ms = ms_of(plan_.geometry.partitions()[hop.partition].elements * 4, machine_.close_gb_per_s),
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
  const int64_t bytes = plan_.drive_bytes(hop);
  const auto in_speeds = static_cast<double>(MachineSpeeds::kSpeedsBlockBytes * plan_.options.drives);
  const double not_in_speeds = 1 - static_cast<double>(bytes) / in_speeds;
  const double request_us = (in ? machine_.read_request_us : machine_.write_request_us) * std::max(0.0, not_in_speeds);
  return {.work_ms = ms_of(bytes, in ? machine_.read_gb_per_s : machine_.write_gb_per_s) + request_us / 1e3,
          .latency_ms = (std::max(0.0, machine_.transfer_us - request_us) + machine_.hop_us) / 1e3};
}

// A thread of the host that takes hops one by one is handed each, and meanwhile does nothing else: small hops follow
// each other no faster. What a GPU does it has been told of before.
HopCost UnitCosts::by_thread(double work_ms, double cores) const {
  const double hop_ms = machine_.hop_us / 1e3;
  if (cores > 0) return {.work_ms = work_ms + hop_ms, .cores = cores};
  return {.work_ms = work_ms, .latency_ms = hop_ms};
}

// By one thread, or by a GPU for which one waits: what is under way at once shares the GPU's memory as threads share
// the host's.
HopCost UnitCosts::update(const Hop& hop, Commits commits) const {
  const double gb_per_s = machine_.device_update_gb_per_s / machine_.update_threads;
  if (!plan_.chunks[hop.chunk].updated_on_device() || gb_per_s <= 0) return by_thread(update_ms(hop, commits), 1);
  const int64_t bytes = plan_.geometry.chunks()[hop.chunk].elements *
                        bytes_updated_per_element(plan_.options.format(), plan_.options.gradient_dtype);
  return by_thread(ms_of(bytes, gb_per_s), 0);
}

// As UpdatePass::run has it, by one thread.
double UnitCosts::update_ms(const Hop& hop, Commits commits) const {
  const ChunkHomes& homes = plan_.chunks[hop.chunk];
  const int64_t elements = plan_.geometry.chunks()[hop.chunk].elements;
  const auto bytes = [&](Group group) { return elements * bytes_per_element(plan_.options.format(), group); };
  const bool weights_come = homes.weights == Home::kNvme, state_comes = homes.state == Home::kNvme;
  const double sweep_ms =
      static_cast<double>(elements) * machine_.update_ns_per_element * machine_.update_threads / 1e6;
  if (homes.updated_on_device()) return sweep_ms;
  int64_t summed = weights_come ? bytes(Group::kWeights) : 0;
  const bool early = hop.when == When::kSpeculating, moves = early && plan_.has_other_slot(hop.chunk);
  const bool commit = !moves && (early || commits == Commits::kYes);
  if (state_comes) summed += bytes(Group::kState);
  if (homes.gradient == Home::kNvme && hop.when != When::kSpeculating) summed += plan_.gradient_bytes(elements);
  if (weights_come || commit) summed += bytes(Group::kWeights);
  if (state_comes || commit) summed += bytes(Group::kState);
  return (moves ? moving_ms(elements) : sweep_ms) + sums_ms(elements, summed);
}

// An update from one slot to the other. Not measured: what is written past the caches costs no more than what has been
// read.
double UnitCosts::moving_ms(int64_t elements) const {
  const double ns = std::max(machine_.out_of_place_ns_per_element, machine_.update_ns_per_element);
  return static_cast<double>(elements) * ns * machine_.update_threads / 1e6;
}

// What sums add to an update of these elements, by one thread: of what all of them add, these bytes' share.
double UnitCosts::sums_ms(int64_t elements, int64_t summed_bytes) const {
  if (machine_.summed_ns_per_element <= 0) return ms_of(summed_bytes, machine_.checksum_gb_per_s);
  const RecordFormat format = plan_.options.format();
  const int64_t records = bytes_per_element(format, Group::kWeights) + bytes_per_element(format, Group::kState);
  const double all_bytes = static_cast<double>(elements * 2 * records + plan_.gradient_bytes(elements));
  const double added_ns = std::max(0.0, machine_.summed_ns_per_element - machine_.update_ns_per_element);
  const double all_ms = static_cast<double>(elements) * added_ns * machine_.update_threads / 1e6;
  return all_ms * static_cast<double>(summed_bytes) / all_bytes;
}

double UnitCosts::turn_ms(const Hop& hop) const {
  const VisitTime& time = speeds_.visits[hop.visit];
  const ComputeOperands& turn = unit_.turns[hop.operands];
  if (turn.graph >= 0) return turn.pass == Pass::kBackward ? time.kept_backward_ms : time.keeping_forward_ms;
  return turn.pass == Pass::kBackward ? time.backward_ms : time.forward_ms;
}

bool of_a_micro_batch(const Hop& hop) { return hop.verb == Verb::kCompute || hop.group == Group::kActivations; }

std::array<LaneModel, kLaneCount> lane_models(const MachineSpeeds& machine) {
  std::array<LaneModel, kLaneCount> lanes;
  for (int lane = 0; lane < kLaneCount; ++lane) {
    lanes[lane].in_flight = in_flight_limit(static_cast<Lane>(lane), kUpdateHopsPerThread * machine.update_threads);
  }
  lanes[static_cast<int>(Lane::kUpdate)].served = machine.update_threads;
  // Reads and writes take turns request by request, so each moves half of what both do, and no more than alone.
  const auto beside = [&](double alone_gb_per_s) { return std::min(1.0, machine.mixed_gb_per_s / 2 / alone_gb_per_s); };
  lanes[static_cast<int>(Lane::kRead)].beside = beside(machine.read_gb_per_s);
  lanes[static_cast<int>(Lane::kWrite)].beside = beside(machine.write_gb_per_s);
  return lanes;
}

double GroupForms::of(const LaneTimes& work_ms) const {
  double time = 0;
  for (const LaneTimes& weights : sums) {
    time = std::max(time, std::inner_product(weights.begin(), weights.end(), work_ms.begin(), 0.0));
  }
  return time;
}

// The drive at its best. With r and w its two lanes' work and R and W their speeds beside each other, it serves both
// directions until the shorter one is done, then the other alone: w + r (1 - W) / R where reads end first, r + w (1 -
// R) / W where writes do, which is the larger of the two. Where sharing costs more than it gives (R + W < 1) it is
// fastest with one direction after the other.
std::array<GroupForms, kLaneGroupCount> group_forms(const MachineSpeeds& machine) {
  const auto weights = [](std::initializer_list<std::pair<Lane, double>> of_lanes) {
    LaneTimes sum{};
    for (const auto& [lane, weight] : of_lanes) sum[static_cast<size_t>(lane)] = weight;
    return sum;
  };
  const auto lanes = lane_models(machine);
  const double reads = lanes[static_cast<size_t>(Lane::kRead)].beside;
  const double writes = lanes[static_cast<size_t>(Lane::kWrite)].beside;
  const double slowed = slowed_by(machine.compute_cores, machine.cores);
  std::array<GroupForms, kLaneGroupCount> forms;
  auto& drive = forms[static_cast<size_t>(LaneGroup::kNvme)].sums;
  if (reads + writes < 1) {
    drive = {weights({{Lane::kRead, 1}, {Lane::kWrite, 1}})};
  } else {
    drive = {weights({{Lane::kRead, (1 - writes) / reads}, {Lane::kWrite, 1}}),
             weights({{Lane::kRead, 1}, {Lane::kWrite, (1 - reads) / writes}})};
  }
  forms[static_cast<size_t>(LaneGroup::kCpu)].sums = {
      weights({{Lane::kUpdate, 1 / std::min<double>(machine.update_threads, machine.cores)}})};
  forms[static_cast<size_t>(LaneGroup::kCopies)].sums = {weights({{Lane::kUpload, 1}}),
                                                         weights({{Lane::kDownload, 1}})};
  forms[static_cast<size_t>(LaneGroup::kCompute)].sums = {weights({{Lane::kCompute, slowed}})};
  return forms;
}

GroupTimes group_times(const LaneTimes& work_ms, const MachineSpeeds& machine) {
  const auto forms = group_forms(machine);
  GroupTimes times;
  for (size_t group = 0; group < times.size(); ++group) times[group] = forms[group].of(work_ms);
  return times;
}

LaneGroup longest(const GroupTimes& times) {
  auto found = static_cast<size_t>(LaneGroup::kCompute);
  for (size_t group = 0; group < times.size(); ++group) {
    if (times[group] > times[found]) found = group;
  }
  return static_cast<LaneGroup>(found);
}

}  // namespace sluice
