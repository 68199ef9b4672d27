#include "engine/update_pass.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/checksum.h"
#include "core/errors.h"
#include "core/half.h"

namespace sluice {
namespace {

// Elements of one tile: its planes (about 26 bytes an element with the gradient) stay in a core's own cache between the
// checksum of what came, the update, and the checksum of what goes.
constexpr int64_t kTileElements = 8192;

bool moments_are_finite(const AdamPlanes& planes, int64_t i) {
  const auto finite = [i](const float* wide, const uint16_t* halves) {
    return (!wide || std::isfinite(wide[i])) && (!halves || std::isfinite(float_of_bf16(halves[i])));
  };
  return finite(planes.moment1, planes.half_moment1) && finite(planes.moment2, planes.half_moment2);
}

[[noreturn]] void refuse_non_finite(int chunk, const std::string& owner) {
  throw NumericsError(
      fmt::format("the update of chunk {} made a value of {} non-finite; the step is not committed. Lower the learning "
                  "rate or resume "
                  "from the last commit with gradient_clipping",
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
      kernel_(adam_simd(plan_.options.adam_format())) {}

RecordLayout UpdatePass::layout_of(RecordId record) const {
  return record_layout(plan_.options.format(), record.group, plan_.geometry.chunks()[record.chunk].elements);
}

UpdatePass::Sums UpdatePass::seeds(RecordId record) const {
  Sums sums;
  for (int plane = 0; plane < kMaxPlanes; ++plane) sums.crc[plane] = plane_seed(record.chunk, record.group, plane);
  return sums;
}

void UpdatePass::add_tile(const RecordLayout& layout, const std::byte* bytes, int64_t first, int64_t elements,
                          Sums& sums) const {
  for (int plane = 0; plane < layout.plane_count; ++plane) {
    const int64_t each = layout.bytes_per_element[plane];
    sums.crc[plane] = crc32c(sums.crc[plane],
                             {bytes + layout.plane_offset[plane] + first * each, static_cast<size_t>(elements * each)});
  }
}

UpdatePass::Sums UpdatePass::sums_of(RecordId record, const std::byte* bytes) const {
  Sums sums = seeds(record);
  add_tile(layout_of(record), bytes, 0, plan_.geometry.chunks()[record.chunk].elements, sums);
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

void UpdatePass::add_gradient(const UpdateOperands& operands, int64_t first, int64_t elements, uint32_t& sum) const {
  if (operands.gradient_extent < 0) return;
  sum = crc32c(sum, {host_ + operands.gradient + plan_.gradient_bytes(first),
                     static_cast<size_t>(plan_.gradient_bytes(elements))});
}

void UpdatePass::expect_gradient(const UpdateOperands& operands, uint32_t found) const {
  if (operands.gradient_extent < 0 || found == store_.scratch_checksum(operands.gradient_extent)) return;
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
  if (checksums == UpdateOrder::Checksums::kOnlyTaken) return;
  store_.set_checksums(record, {sums.crc, static_cast<size_t>(layout_of(record).plane_count)});
}

AdamPlanes UpdatePass::planes_at(const UpdateOperands& operands, int64_t first) const {
  const Precision precision = plan_.options.precision;
  const RecordLayout layout = layout_of({static_cast<uint32_t>(operands.chunk), Group::kState});
  std::byte* const memory = operands.place == Place::kDevice ? device_.memory() : host_;
  std::byte* state = memory + operands.state;
  const auto plane = [&](int index) {
    return state + layout.plane_offset[index] + first * layout.bytes_per_element[index];
  };
  AdamPlanes planes;
  planes.weights = memory + operands.weights + plan_.weights_bytes(first);
  int next = 0;
  if (precision == Precision::kBf16) planes.residual = reinterpret_cast<int16_t*>(plane(next++));
  if (precision == Precision::kFp16) planes.master = reinterpret_cast<float*>(plane(next++));
  std::byte* const moment1 = plane(next++);
  set_moments(planes, plan_.options.moments, moment1, next < layout.plane_count ? plane(next) : nullptr);
  const Chunk& chunk = plan_.geometry.chunks()[operands.chunk];
  planes.element = plan_.geometry.partitions()[chunk.partition].first_element + chunk.first + first;
  planes.gradient = memory + operands.gradient + plan_.gradient_bytes(first);
  return planes;
}

// Elements are updated one by one, so that where a group's run ends changes no bit beside it.
template <typename Update>
void UpdatePass::for_each_run(const UpdateOperands& operands, const UpdateOrder& order, int64_t first, int64_t elements,
                              Update update) const {
  const Chunk& chunk = plan_.geometry.chunks()[operands.chunk];
  const std::span<const GroupRun> runs = groups_.runs_of(chunk.partition);
  auto run = std::ranges::upper_bound(runs, chunk.first + first, {}, &GroupRun::end);
  for (int64_t at = first; at < first + elements; ++run) {
    const int64_t stop = std::min(first + elements, run->end - chunk.first);
    update(AdamRun{order.steps[static_cast<size_t>(run->group)], planes_at(operands, at), stop - at});
    at = stop;
  }
}

Finite UpdatePass::update_tile(const UpdateOperands& operands, const UpdateOrder& order, int64_t first,
                               int64_t elements) const {
  Finite finite = Finite::kYes;
  for_each_run(operands, order, first, elements, [&](const AdamRun& run) {
    if (kernel_(run.step, run.planes, run.elements) == Finite::kNo) finite = Finite::kNo;
  });
  return finite;
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
  for_each_run(operands, order, 0, plan_.geometry.chunks()[operands.chunk].elements, [&](const AdamRun& run) {
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
    if (weights_come) verify(weights, weights_at, order.checksums);
    if (commit && !weights_come) sum(weights, weights_at);
    if (commit && !state_comes) sum(state, state_at);
    return;
  }
  const RecordLayout weights_layout = layout_of(weights), state_layout = layout_of(state);
  Sums weights_in = seeds(weights), state_in = seeds(state), weights_out = seeds(weights), state_out = seeds(state);
  uint32_t gradient_in = scratch_sum(operands.gradient_extent, {});
  const int64_t elements = plan_.geometry.chunks()[chunk].elements;
  for (int64_t first = 0; first < elements; first += kTileElements) {
    const int64_t count = std::min(kTileElements, elements - first);
    if (weights_come) add_tile(weights_layout, weights_at, first, count, weights_in);
    if (state_comes) add_tile(state_layout, state_at, first, count, state_in);
    add_gradient(operands, first, count, gradient_in);
    const Finite finite = update_tile(operands, order, first, count);
    if (finite == Finite::kNo) {  // what came damaged is named as such, not as bad arithmetic
      if (weights_come) expect_rest(weights, weights_layout, weights_at, first + count, weights_in);
      if (state_comes) expect_rest(state, state_layout, state_at, first + count, state_in);
      add_gradient(operands, first + count, elements - first - count, gradient_in);
      expect_gradient(operands, gradient_in);
      report_non_finite(operands, first, count);
    }
    if (weights_come || commit) add_tile(weights_layout, weights_at, first, count, weights_out);
    if (state_comes || commit) add_tile(state_layout, state_at, first, count, state_out);
  }
  if (order.checksums == UpdateOrder::Checksums::kOnlyTaken) return;
  if (weights_come) expect(weights, weights_in);
  if (state_comes) expect(state, state_in);
  expect_gradient(operands, gradient_in);
  if (weights_come || commit) {
    store_.set_checksums(weights, {weights_out.crc, static_cast<size_t>(weights_layout.plane_count)});
  }
  if (state_comes || commit) {
    store_.set_checksums(state, {state_out.crc, static_cast<size_t>(state_layout.plane_count)});
  }
}

// Completes the checksum of what came, from element `first` on, which nothing has changed yet.
void UpdatePass::expect_rest(RecordId record, const RecordLayout& layout, const std::byte* bytes, int64_t first,
                             Sums so_far) const {
  add_tile(layout, bytes, first, plan_.geometry.chunks()[record.chunk].elements - first, so_far);
  expect(record, so_far);
}

void UpdatePass::report_non_finite(const UpdateOperands& operands, int64_t first, int64_t elements) const {
  const Chunk& chunk = plan_.geometry.chunks()[operands.chunk];
  const AdamPlanes planes = planes_at(operands, first);
  int64_t at = chunk.first + first;
  for (int64_t i = 0; i < elements; ++i) {
    if (moments_are_finite(planes, i)) continue;
    at += i;
    break;
  }
  std::string name = "padding";
  for (const Parameter& parameter : plan_.geometry.parameters_of(chunk.partition)) {
    if (at >= parameter.offset) name = parameter.name;
  }
  refuse_non_finite(operands.chunk, "parameter " + name);
}

}  // namespace sluice
