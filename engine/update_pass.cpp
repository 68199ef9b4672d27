#include "engine/update_pass.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/adam_element.h"
#include "core/checksum.h"
#include "core/errors.h"
#include "core/half.h"

namespace sluice {
namespace {

float master_at(Precision precision, const AdamPlanes& planes, int64_t i) {
  if (precision == Precision::kBf16) return adam::load_master<Precision::kBf16>(planes, i);
  if (precision == Precision::kFp16) return adam::load_master<Precision::kFp16>(planes, i);
  return adam::load_master<Precision::kFp32>(planes, i);
}

// As adam::is_finite has it.
bool is_finite(Precision precision, const AdamPlanes& planes, int64_t i) {
  const auto moment = [i](const float* wide, const uint16_t* halves) {
    return (!wide || std::isfinite(wide[i])) && (!halves || std::isfinite(float_of_bf16(halves[i])));
  };
  return std::abs(master_at(precision, planes, i)) < too_large_for(precision) &&
         moment(planes.moment1, planes.half_moment1) && moment(planes.moment2, planes.half_moment2);
}

// `what` of whose values it made.
[[noreturn]] void refuse_update(int chunk, const std::string& what, std::string_view or_else = {}) {
  throw NumericsError(
      fmt::format("the update of chunk {} made {}; the step is not committed. Lower the learning rate or resume from "
                  "the last commit with gradient_clipping{}",
                  chunk, what, or_else));
}
constexpr std::string_view kWiderType = "; bf16 and fp32 hold larger weights";

}  // namespace

uint32_t scratch_sum(int extent, std::span<const std::byte> bytes) {
  return crc32c(plane_seed(static_cast<uint32_t>(extent), Group::kGradient, 0), bytes);
}

UpdatePass::UpdatePass(const Parts& parts)
    : model_(parts.model),
      plan_(parts.plan),
      groups_(parts.groups),
      store_(parts.store),
      device_(parts.device),
      host_(parts.host),
      kernel_(summing_adam_simd(plan_.options.adam_format())),
      out_of_place_(out_of_place_adam_simd(plan_.options.adam_format())) {}

const std::string& UpdatePass::name_of_block(uint32_t chunk) const {
  return model_.partitions[static_cast<size_t>(plan_.geometry.chunks()[chunk].partition)].name;
}

void UpdatePass::expect_gradient(const UpdateOperands& operands, uint32_t found) const {
  if (found == store_.scratch_checksum(operands.gradient_extent)) return;
  const auto chunk = static_cast<uint32_t>(operands.chunk);
  throw store_.scratch_corruption(operands.gradient_extent, found,
                                  fmt::format("block {}, chunk {}, gradient", name_of_block(chunk), chunk));
}

void UpdatePass::verify(RecordId record, const std::byte* bytes, UpdateOrder::Checksums checksums) const {
  const RecordSums sums = sums_of(store_.layout(record), record, bytes);
  if (checksums == UpdateOrder::Checksums::kUsed) expect_sums(store_, record, sums, name_of_block(record.chunk));
}

void UpdatePass::sum(RecordId record, const std::byte* bytes, UpdateOrder::Checksums checksums) const {
  const RecordSums sums = sums_of(store_.layout(record), record, bytes);
  if (checksums == UpdateOrder::Checksums::kUsed) keep_sums(store_, record, sums);
}

AdamPlanes UpdatePass::planes_at(const UpdateOperands& operands, int64_t first) const {
  const AdamFormat format = plan_.options.adam_format();
  const RecordLayout layout = plan_.record(operands.chunk, Group::kState);
  std::byte* const memory = operands.place == Place::kDevice ? device_.memory() : host_;
  AdamPlanes planes = planes_of_records(format, {.layout = layout,
                                                 .weights = memory + operands.weights,
                                                 .state = memory + operands.state,
                                                 .gradient = memory + operands.gradient});
  const Chunk& chunk = plan_.geometry.chunks()[operands.chunk];
  planes.element = plan_.geometry.partitions()[chunk.partition].first_element + chunk.first;
  return sluice::planes_at(planes, format, first);
}

// Elements are updated one by one, so that where a group's run ends changes no bit beside it.
template <typename Update>
void UpdatePass::for_each_run(const UpdateOperands& operands, const UpdateOrder& order, Update update) const {
  const Chunk& chunk = plan_.geometry.chunks()[operands.chunk];
  const std::span<const GroupRun> runs = groups_.runs_of(chunk.partition);
  auto run = std::ranges::upper_bound(runs, chunk.first, {}, &GroupRun::end);
  for (int64_t at = 0; at < chunk.elements; ++run) {
    const int64_t stop = std::min(chunk.elements, run->end - chunk.first);
    update(at, AdamRun{order.steps[static_cast<size_t>(run->group)], planes_at(operands, at), stop - at});
    at = stop;
  }
}

// Nothing comes and nothing goes: there are no checksums.
void UpdatePass::run_on_device(const UpdateOperands& operands, const UpdateOrder& order) const {
  std::array<AdamRun, Device::kMaxRuns> runs;
  size_t count = 0;
  Finite finite = Finite::kYes;
  const auto update = [&] {
    if (device_.update(plan_.options.adam_format(), std::span(runs).first(count)) == Finite::kNo) finite = Finite::kNo;
    count = 0;
  };
  for_each_run(operands, order, [&](int64_t /*first*/, const AdamRun& run) {
    runs[count++] = run;
    if (count == runs.size()) update();
  });
  if (count > 0) update();
  if (finite == Finite::kYes) return;
  const std::string& block = name_of_block(static_cast<uint32_t>(operands.chunk));
  if (plan_.options.precision != Precision::kFp16)
    refuse_update(operands.chunk, fmt::format("a value of block {} non-finite", block));
  refuse_update(operands.chunk, fmt::format("a value of block {} non-finite, or a weight too large for fp16", block),
                kWiderType);
}

void UpdatePass::run(const UpdateOperands& operands, const UpdateOrder& order) const {
  if (operands.place == Place::kDevice) return run_on_device(operands, order);
  const auto chunk = static_cast<uint32_t>(operands.chunk);
  const RecordId weights{chunk, Group::kWeights}, state{chunk, Group::kState};
  std::byte* weights_at = host_ + operands.weights;
  std::byte* state_at = host_ + operands.state;
  const ChunkHomes& homes = plan_.chunks[chunk];
  const bool commit = order.commit == UpdateOrder::Commit::kDue;
  const bool weights_come = homes.weights == Home::kNvme, state_comes = homes.state == Home::kNvme;
  if (order.update == UpdateOrder::Update::kNone) {
    if (weights_come && order.weights == UpdateOrder::Weights::kRead) verify(weights, weights_at, order.checksums);
    if (commit && !weights_come) sum(weights, weights_at, order.checksums);
    if (commit && !state_comes) sum(state, state_at, order.checksums);
    return;
  }
  RecordSums weights_in = empty_sums(weights), state_in = empty_sums(state), weights_out = weights_in,
             state_out = state_in;
  uint32_t gradient_in = scratch_sum(operands.gradient_extent, {});
  AdamSums sums;
  if (weights_come) sums.weights_in = weights_in.data();
  if (state_comes) sums.state_in = state_in.data();
  if (operands.gradient_extent >= 0) sums.gradient_in = &gradient_in;
  if (weights_come || commit) sums.weights_out = weights_out.data();
  if (state_comes || commit) sums.state_out = state_out.data();
  const bool moves = order.to == UpdateOrder::To::kOtherSlot && plan_.has_other_slot(operands.chunk);
  UpdateOperands there = operands;
  if (moves) {
    SLUICE_CHECK(takes_none(sums), "records that move to their other slot come from no drive and go to none");
    const HostSlot& slot = plan_.other_slots[operands.chunk];
    there.state = slot.state;
    there.weights = slot.weights;
  }
  Finite finite = Finite::kYes;
  for_each_run(operands, order, [&](int64_t first, const AdamRun& run) {
    const Finite of_run = moves ? out_of_place_(run.step, run.planes, planes_at(there, first), run.elements)
                                : kernel_(run.step, run.planes, run.elements, sums);
    if (of_run == Finite::kNo) finite = Finite::kNo;
  });
  const bool used = order.checksums == UpdateOrder::Checksums::kUsed;
  if (used && sums.weights_in) expect_sums(store_, weights, weights_in, name_of_block(chunk));
  if (used && sums.state_in) expect_sums(store_, state, state_in, name_of_block(chunk));
  if (used && sums.gradient_in) expect_gradient(operands, gradient_in);
  // After those: what came damaged is named as such, not as bad arithmetic.
  if (finite == Finite::kNo) report_non_finite(there);
  if (used && sums.weights_out) keep_sums(store_, weights, weights_out);
  if (used && sums.state_out) keep_sums(store_, state, state_out);
}

void UpdatePass::report_non_finite(const UpdateOperands& operands) const {
  const Chunk& chunk = plan_.geometry.chunks()[operands.chunk];
  const AdamPlanes planes = planes_at(operands, 0);
  const Precision precision = plan_.options.precision;
  int64_t first = 0;
  while (first + 1 < chunk.elements && is_finite(precision, planes, first)) ++first;
  std::string name = "padding";
  for (const Parameter& parameter : plan_.geometry.parameters_of(chunk.partition)) {
    if (chunk.first + first >= parameter.offset) name = parameter.name;
  }
  const float master = master_at(precision, planes, first);
  if (!std::isfinite(master) || std::abs(master) < too_large_for(precision))
    refuse_update(operands.chunk, fmt::format("a value of parameter {} non-finite", name));
  refuse_update(operands.chunk,
                fmt::format("a weight of parameter {} too large for {} ({:g})", name, name_of(precision), master),
                precision == Precision::kFp16 ? kWiderType : "");
}

}  // namespace sluice
