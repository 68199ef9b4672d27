#include "engine/record_access.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "core/checksum.h"
#include "core/errors.h"
#include "core/split_master.h"
#include "offload/gradient_kernels.h"

namespace sluice {
namespace {

constexpr int64_t kPieceElements = 4096;

// Writes fp32 values into the planes that hold them.
void store_values(Precision precision, std::span<const float> values, std::byte* weights,
                  std::byte* first_state_plane) {
  switch (precision) {
    case Precision::kBf16:
      for (size_t i = 0; i < values.size(); ++i) {
        const SplitMaster split = split_master(values[i]);
        std::memcpy(weights + 2 * i, &split.weight, 2);
        std::memcpy(first_state_plane + 2 * i, &split.residual, 2);
      }
      return;
    case Precision::kFp16:
      round_to(values.data(), weights, DType::kFp16, static_cast<int64_t>(values.size()));
      std::memcpy(first_state_plane, values.data(), values.size_bytes());
      return;
    case Precision::kFp32:
      std::memcpy(weights, values.data(), values.size_bytes());
      return;
  }
}

}  // namespace

RecordAccess::RecordAccess(const Plan& plan, RecordStore& store, const UpdatePass& pass, std::byte* host)
    : plan_(plan), store_(store), pass_(pass), host_(host) {}

RecordLayout RecordAccess::layout_of(int chunk, Group group) const {
  return record_layout(plan_.options.format(), group, plan_.geometry.chunks()[chunk].elements);
}

std::byte* RecordAccess::address(int chunk, Group group) {
  const ChunkHomes& homes = plan_.chunks[chunk];
  if (group == Group::kWeights) {
    return host_ + (homes.weights == Home::kHost ? homes.weights_offset : plan_.host_update.offset);
  }
  if (homes.state == Home::kHost) return host_ + homes.state_offset;
  return host_ + plan_.host_update.offset + layout_of(chunk, Group::kWeights).bytes;
}

// How many chunks the ring has room for, each with both records.
int RecordAccess::ring_parts() const {
  constexpr int64_t kMostParts = 8;
  int64_t largest = 1;
  for (size_t c = 0; c < plan_.chunks.size(); ++c) {
    const int chunk = static_cast<int>(c);
    largest = std::max(largest, layout_of(chunk, Group::kWeights).bytes + layout_of(chunk, Group::kState).bytes);
  }
  return static_cast<int>(std::clamp<int64_t>(plan_.host_update.bytes / largest, 1, kMostParts));
}

RecordAccess::NewChunk RecordAccess::new_chunk(int chunk, int parts) {
  const int64_t part_bytes = plan_.host_update.bytes / parts / kPlaneAlignmentBytes * kPlaneAlignmentBytes;
  NewChunk place{.chunk = chunk, .weights = address(chunk, Group::kWeights), .state = address(chunk, Group::kState)};
  const ChunkHomes& homes = plan_.chunks[chunk];
  if (homes.weights == Home::kHost && homes.state == Home::kHost) return place;
  place.part = chunk % parts;
  if (homes.weights != Home::kHost) place.weights += place.part * part_bytes;
  if (homes.state != Home::kHost) place.state += place.part * part_bytes;
  return place;
}

void RecordAccess::fill_chunk(const NewChunk& place, const ParameterSource& source) {
  const Chunk& range = plan_.geometry.chunks()[place.chunk];
  const RecordLayout weights = layout_of(place.chunk, Group::kWeights), state = layout_of(place.chunk, Group::kState);
  std::memset(place.weights, 0, static_cast<size_t>(weights.bytes));
  std::memset(place.state, 0, static_cast<size_t>(state.bytes));
  std::array<float, kPieceElements> values;
  for (const Parameter& parameter : plan_.geometry.parameters_of(range.partition)) {
    const int64_t begin = std::max(range.first, parameter.offset);
    const int64_t end = std::min(range.first + range.elements, parameter.offset + parameter.elements);
    for (int64_t at = begin; at < end; at += kPieceElements) {
      const std::span<float> piece(values.data(), static_cast<size_t>(std::min(kPieceElements, end - at)));
      source(parameter, at - parameter.offset, piece);
      const int64_t element = at - range.first;
      store_values(plan_.options.precision, piece, place.weights + element * weights.bytes_per_element[0],
                   place.state + element * state.bytes_per_element[0]);
    }
  }
}

void RecordAccess::create(const ParameterSource& source, const std::function<void(int64_t, int64_t)>& progress) {
  constexpr int kMostInFlight = kMaxTransfers - 2;
  const auto count = static_cast<int64_t>(plan_.chunks.size());
  const int parts = ring_parts();
  std::vector<int> busy(static_cast<size_t>(parts), 0);  // writes under way, by part of the ring
  const auto take_ends = [&](Wait wait) {
    std::array<StoreCompletion, 16> done;
    const size_t ended = store_.poll(done, wait);
    for (const StoreCompletion& each : std::span(done).first(ended)) {
      if (each.error) std::rethrow_exception(each.error);
      if (each.tag > 0) --busy[each.tag - 1];
    }
  };
  for (int64_t c = 0; c < count; ++c) {
    const NewChunk place = new_chunk(static_cast<int>(c), parts);
    while (store_.in_flight() > kMostInFlight || (place.part >= 0 && busy[static_cast<size_t>(place.part)] > 0))
      take_ends(Wait::kUntilOne);
    fill_chunk(place, source);
    for (const Group group : {Group::kWeights, Group::kState}) {
      const RecordId record{static_cast<uint32_t>(c), group};
      const std::byte* const bytes = group == Group::kWeights ? place.weights : place.state;
      pass_.sum(record, bytes);
      store_.write(record, bytes, static_cast<uint64_t>(place.part + 1));
      if (place.part >= 0) ++busy[static_cast<size_t>(place.part)];
    }
    take_ends(Wait::kNo);
    if (progress) progress(c + 1, count);
  }
  while (store_.in_flight() > 0) take_ends(Wait::kUntilOne);
}

void RecordAccess::load() {
  for (size_t c = 0; c < plan_.chunks.size(); ++c) {
    const int chunk = static_cast<int>(c);
    for (Group group : {Group::kWeights, Group::kState}) {
      const Home home = group == Group::kWeights ? plan_.chunks[c].weights : plan_.chunks[c].state;
      if (home != Home::kHost) continue;
      const RecordId record{static_cast<uint32_t>(c), group};
      read_now(store_, record, address(chunk, group));
      pass_.verify(record, address(chunk, group));
    }
  }
}

void RecordAccess::forget() { std::fill(std::begin(in_scratch_), std::end(in_scratch_), -1); }

const std::byte* RecordAccess::loaded(int chunk, Group group) {
  std::byte* at = address(chunk, group);
  const Home home = group == Group::kWeights ? plan_.chunks[chunk].weights : plan_.chunks[chunk].state;
  int& holds = in_scratch_[static_cast<int>(group)];
  if (home == Home::kHost || holds == chunk) return at;
  forget();  // a state record lies right behind its own weights record, whose size varies with the chunk
  const RecordId record{static_cast<uint32_t>(chunk), group};
  read_now(store_, record, at);
  pass_.verify(record, at);
  holds = chunk;
  return at;
}

void RecordAccess::for_each_piece(const Parameter& parameter, PlaneOf plane, const Piece& piece) {
  const Partition& partition = plan_.geometry.partitions()[parameter.partition];
  const int64_t end = parameter.offset + parameter.elements, step = plan_.geometry.chunk_elements();
  for (int64_t at = parameter.offset; at < end;) {
    const int chunk = partition.first_chunk + static_cast<int>(at / step);
    const Chunk& range = plan_.geometry.chunks()[chunk];
    const int64_t stop = std::min(end, range.first + range.elements);
    const RecordLayout layout = layout_of(chunk, plane.group);
    const int64_t each = layout.bytes_per_element[plane.plane];
    const std::byte* bytes = loaded(chunk, plane.group) + layout.plane_offset[plane.plane] + (at - range.first) * each;
    piece({bytes, static_cast<size_t>((stop - at) * each)});
    at = stop;
  }
}

void RecordAccess::read(int parameter, std::span<std::byte> into) {
  const Parameter& what = plan_.geometry.parameters()[parameter];
  SLUICE_CHECK(static_cast<int64_t>(into.size()) == plan_.weights_bytes(what.elements), "a buffer of the wrong size");
  size_t at = 0;
  for_each_piece(what, {Group::kWeights, 0}, [&](std::span<const std::byte> piece) {
    std::memcpy(into.data() + at, piece.data(), piece.size());
    at += piece.size();
  });
}

void RecordAccess::read_master(int parameter, int64_t first, std::span<float> into) {
  Parameter part = plan_.geometry.parameters()[parameter];
  SLUICE_CHECK(first >= 0 && first + static_cast<int64_t>(into.size()) <= part.elements, "beyond the parameter's end");
  part.offset += first;
  part.elements = static_cast<int64_t>(into.size());
  const Precision precision = plan_.options.precision;
  size_t at = 0;
  const auto copy_fp32 = [&](std::span<const std::byte> piece) {
    std::memcpy(into.data() + at, piece.data(), piece.size());
    at += piece.size() / 4;
  };
  if (precision == Precision::kFp32) return for_each_piece(part, {Group::kWeights, 0}, copy_fp32);
  if (precision == Precision::kFp16) return for_each_piece(part, {Group::kState, 0}, copy_fp32);
  // bf16: the high halves first, as bits; then the residuals restore the masters.
  for_each_piece(part, {Group::kWeights, 0}, [&](std::span<const std::byte> piece) {
    for (size_t i = 0; i < piece.size() / 2; ++i) {
      uint16_t weight = 0;
      std::memcpy(&weight, piece.data() + 2 * i, 2);
      into[at++] = std::bit_cast<float>(uint32_t{weight} << 16);
    }
  });
  at = 0;
  for_each_piece(part, {Group::kState, 0}, [&](std::span<const std::byte> piece) {
    for (size_t i = 0; i < piece.size() / 2; ++i, ++at) {
      int16_t residual = 0;
      std::memcpy(&residual, piece.data() + 2 * i, 2);
      const auto weight = static_cast<uint16_t>(std::bit_cast<uint32_t>(into[at]) >> 16);
      into[at] = join_master({weight, residual});
    }
  });
}

Digests RecordAccess::digests() {
  Digests digests;
  const auto add_plane = [&](PlaneOf plane, uint32_t& crc) {
    for (int parameter : plan_.geometry.canonical()) {
      for_each_piece(plan_.geometry.parameters()[parameter], plane,
                     [&crc](std::span<const std::byte> piece) { crc = crc32c(crc, piece); });
    }
  };
  add_plane({Group::kWeights, 0}, digests.weights_crc32c);
  const auto planes = static_cast<int>(planes_of(plan_.options.format(), Group::kState).size());
  for (int plane = 0; plane < planes; ++plane) add_plane({Group::kState, plane}, digests.state_crc32c);
  return digests;
}

}  // namespace sluice
