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

bool is_finite(Precision precision, const AdamPlanes& planes, int64_t i) {
  const auto moment = [i](const float* wide, const uint16_t* halves) {
    return (!wide || std::isfinite(wide[i])) && (!halves || std::isfinite(float_of_bf16(halves[i])));
  };
  float master = 0;
  if (precision == Precision::kBf16) master = adam::load_master<Precision::kBf16>(planes, i);
  if (precision == Precision::kFp16) master = adam::load_master<Precision::kFp16>(planes, i);
  if (precision == Precision::kFp32) master = adam::load_master<Precision::kFp32>(planes, i);
  return std::isfinite(master) && moment(planes.moment1, planes.half_moment1) &&
         moment(planes.moment2, planes.half_moment2);
}

[[noreturn]] void refuse_non_finite(int chunk, const std::string& owner) {
  throw NumericsError(
      fmt::format("the update of chunk {} made a value of {} non-finite; the step is not committed. Lower the learning "
                  "rate or resume from the last commit with gradient_clipping",
                  chunk, owner));
}

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
      kernel_(summing_adam_simd(plan_.options.adam_format())) {}

RecordLayout UpdatePass::layout_of(RecordId record) const {
  return record_layout(plan_.options.format(), record.group, plan_.geometry.chunks()[record.chunk].elements);
}

UpdatePass::Sums UpdatePass::seeds(RecordId record) const {
  Sums sums;
  for (int plane = 0; plane < kMaxPlanes; ++plane) sums.crc[plane] = plane_seed(record.chunk, record.group, plane);
  return sums;
}

UpdatePass::Sums UpdatePass::sums_of(RecordId record, const std::byte* bytes) const {
  Sums sums = seeds(record);
  const RecordLayout layout = layout_of(record);
  const int64_t elements = plan_.geometry.chunks()[record.chunk].elements;
  for (int plane = 0; plane < layout.plane_count; ++plane) {
    const auto plane_bytes = static_cast<size_t>(elements * layout.bytes_per_element[plane]);
    sums.crc[plane] = crc32c(sums.crc[plane], {bytes + layout.plane_offset[plane], plane_bytes});
  }
  return sums;
}

void UpdatePass::expect(RecordId record, const Sums& found) const {
  const auto expected = store_.checksums(record);
  for (size_t plane = 0; plane < expected.size(); ++plane) {
    if (expected[plane] == found.crc[plane]) continue;
    const int partition = plan_.geometry.chunks()[record.chunk].partition;
    throw store_.corruption(record, static_cast<int>(plane), found.crc[plane], model_.partitions[partition].name);
  }
}

void UpdatePass::expect_gradient(const UpdateOperands& operands, uint32_t found) const {
  if (found == store_.scratch_checksum(operands.gradient_extent)) return;
  const int partition = plan_.geometry.chunks()[operands.chunk].partition;
  throw store_.scratch_corruption(
      operands.gradient_extent, found,
      fmt::format("block {}, chunk {}, gradient", model_.partitions[partition].name, operands.chunk));
}

void UpdatePass::verify(RecordId record, const std::byte* bytes, UpdateOrder::Checksums checksums) const {
  const Sums sums = sums_of(record, bytes);
  if (checksums == UpdateOrder::Checksums::kUsed) expect(record, sums);
}

void UpdatePass::sum(RecordId record, const std::byte* bytes, UpdateOrder::Checksums checksums) const {
  const Sums sums = sums_of(record, bytes);
  if (checksums == UpdateOrder::Checksums::kUsed) keep(record, sums);
}

void UpdatePass::keep(RecordId record, const Sums& sums) const {
  store_.set_checksums(record, {sums.crc, static_cast<size_t>(layout_of(record).plane_count)});
}

AdamPlanes UpdatePass::planes_at(const UpdateOperands& operands, int64_t first) const {
  const AdamFormat format = plan_.options.adam_format();
  const RecordLayout layout = layout_of({static_cast<uint32_t>(operands.chunk), Group::kState});
  std::byte* const memory = operands.place == Place::kDevice ? device_.memory() : host_;
  AdamPlanes planes =
      planes_of_records(format, layout, memory + operands.weights, memory + operands.state, memory + operands.gradient);
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
    update(AdamRun{order.steps[static_cast<size_t>(run->group)], planes_at(operands, at), stop - at});
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
  for_each_run(operands, order, [&](const AdamRun& run) {
    runs[count++] = run;
    if (count == runs.size()) update();
  });
  if (count > 0) update();
  if (finite == Finite::kYes) return;
  const int partition = plan_.geometry.chunks()[operands.chunk].partition;
  refuse_non_finite(operands.chunk, fmt::format("block {}", model_.partitions[partition].name));
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
    if (commit && !weights_come) sum(weights, weights_at);
    if (commit && !state_comes) sum(state, state_at);
    return;
  }
  Sums weights_in = seeds(weights), state_in = seeds(state), weights_out = seeds(weights), state_out = seeds(state);
  uint32_t gradient_in = scratch_sum(operands.gradient_extent, {});
  AdamSums sums;
  if (weights_come) sums.weights_in = weights_in.crc;
  if (state_comes) sums.state_in = state_in.crc;
  if (operands.gradient_extent >= 0) sums.gradient_in = &gradient_in;
  if (weights_come || commit) sums.weights_out = weights_out.crc;
  if (state_comes || commit) sums.state_out = state_out.crc;
  Finite finite = Finite::kYes;
  for_each_run(operands, order, [&](const AdamRun& run) {
    if (kernel_(run.step, run.planes, run.elements, sums) == Finite::kNo) finite = Finite::kNo;
  });
  const bool used = order.checksums == UpdateOrder::Checksums::kUsed;
  if (used && sums.weights_in) expect(weights, weights_in);
  if (used && sums.state_in) expect(state, state_in);
  if (used && sums.gradient_in) expect_gradient(operands, gradient_in);
  // After those: what came damaged is named as such, not as bad arithmetic.
  if (finite == Finite::kNo) report_non_finite(operands);
  if (used && sums.weights_out) keep(weights, weights_out);
  if (used && sums.state_out) keep(state, state_out);
}

void UpdatePass::report_non_finite(const UpdateOperands& operands) const {
  const Chunk& chunk = plan_.geometry.chunks()[operands.chunk];
  const AdamPlanes planes = planes_at(operands, 0);
  int64_t first = 0;
  while (first < chunk.elements && is_finite(plan_.options.precision, planes, first)) ++first;
  std::string name = "padding";
  for (const Parameter& parameter : plan_.geometry.parameters_of(chunk.partition)) {
    if (chunk.first + first >= parameter.offset) name = parameter.name;
  }
  refuse_non_finite(operands.chunk, "parameter " + name);
}

}  // namespace sluice
