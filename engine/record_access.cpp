#include "engine/record_access.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <exception>

#include "core/checksum.h"
#include "core/errors.h"
#include "core/split_master.h"
#include "offload/gradient_kernels.h"

namespace sluice {
namespace {

// As many values as a source fills at once: it may share them among threads.
constexpr int64_t kPieceElements = 256 * 1024;
constexpr auto kUsed = UpdateOrder::Checksums::kUsed;

// Transfers under way, each at one of a few places. What is under way when an error passes still moves bytes: it has
// ended when this is gone.
class InFlight {
 public:
  InFlight(RecordStore& store, int places) : store_(store), at_(static_cast<size_t>(places), 0) {}
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;
  ~InFlight() {
    std::array<StoreCompletion, 16> done;
    try {
      while (store_.in_flight() > 0) store_.poll(done, Wait::kUntilOne);  // the first error is on its way already
    } catch (const std::exception&) {  // the queue itself broke: nothing more will be reported
    }
  }
  void read(RecordId record, std::byte* into, int place) {
    make_room();
    store_.read(record, into, static_cast<uint64_t>(place));
    ++at_[static_cast<size_t>(place)];
  }
  void write(RecordId record, const std::byte* from, int place) {
    make_room();
    store_.write(record, from, static_cast<uint64_t>(place));
    ++at_[static_cast<size_t>(place)];
  }
  void wait_for(int place) {
    while (at_[static_cast<size_t>(place)] > 0) take_ends();
  }
  void wait_for_all() {
    while (store_.in_flight() > 0) take_ends();
  }

 private:
  void make_room() {
    while (store_.in_flight() >= kMaxTransfers) take_ends();
  }
  void take_ends() {
    std::array<StoreCompletion, 16> done;
    const size_t ended = store_.poll(done, Wait::kUntilOne);
    std::exception_ptr error;
    for (const StoreCompletion& each : std::span(done).first(ended)) {
      --at_[each.tag];
      if (each.error) error = each.error;
    }
    if (error) std::rethrow_exception(error);
  }

  RecordStore& store_;
  std::vector<int> at_;
};

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
    : plan_(plan),
      store_(store),
      pass_(pass),
      host_(host),
      parts_(divide_ring(plan)),
      in_part_(static_cast<size_t>(parts_.count)) {
  forget();
}

RecordAccess::RingParts RecordAccess::divide_ring(const Plan& plan) {
  constexpr int64_t kMostParts = 8;
  int64_t weights = 1, state = 1;
  for (int c = 0; c < std::ssize(plan.chunks); ++c) {
    weights = std::max(weights, plan.record_bytes(c, Group::kWeights));
    state = std::max(state, plan.record_bytes(c, Group::kState));
  }
  const int64_t parts = std::clamp<int64_t>(plan.host_update.bytes / (weights + state), 1, kMostParts);
  return {.count = static_cast<int>(parts), .bytes = weights + state, .state_at = weights};
}

bool RecordAccess::in_host(int chunk, Group group) const {
  const ChunkHomes& homes = plan_.chunks[chunk];
  return (group == Group::kWeights ? homes.weights : homes.state) == Home::kHost;
}

std::byte* RecordAccess::address(int chunk, Group group) const {
  const ChunkHomes& homes = plan_.chunks[chunk];
  if (in_host(chunk, group)) return host_ + (group == Group::kWeights ? homes.weights_offset : homes.state_offset);
  std::byte* const part = host_ + plan_.host_update.offset + part_of(chunk) * parts_.bytes;
  return group == Group::kWeights ? part : part + parts_.state_at;
}

void RecordAccess::fill_chunk(int chunk, const ParameterSource& source, std::span<float> values) {
  const Chunk& range = plan_.geometry.chunks()[chunk];
  const RecordLayout weights = plan_.record(chunk, Group::kWeights), state = plan_.record(chunk, Group::kState);
  std::byte *const weights_at = address(chunk, Group::kWeights), *const state_at = address(chunk, Group::kState);
  std::memset(weights_at, 0, static_cast<size_t>(weights.bytes));
  std::memset(state_at, 0, static_cast<size_t>(state.bytes));
  for (const Parameter& parameter : plan_.geometry.parameters_of(range.partition)) {
    const int64_t begin = std::max(range.first, parameter.offset);
    const int64_t end = std::min(range.first + range.elements, parameter.offset + parameter.elements);
    for (int64_t at = begin; at < end; at += kPieceElements) {
      const std::span<float> piece = values.first(static_cast<size_t>(std::min(kPieceElements, end - at)));
      source(parameter, at - parameter.offset, piece);
      const int64_t element = at - range.first;
      store_values(plan_.options.precision, piece, weights_at + element * weights.bytes_per_element[0],
                   state_at + element * state.bytes_per_element[0]);
    }
  }
}

void RecordAccess::create(const ParameterSource& source, const std::function<void(int64_t, int64_t)>& progress) {
  const auto count = static_cast<int>(plan_.chunks.size());
  std::vector<float> values(static_cast<size_t>(std::min(kPieceElements, plan_.geometry.chunk_elements())));
  const int at_home = parts_.count;  // the place of writes from there
  InFlight writes(store_, parts_.count + 1);
  for (int c = 0; c < count; ++c) {
    writes.wait_for(part_of(c));
    fill_chunk(c, source, values);
    for (const Group group : {Group::kWeights, Group::kState}) {
      const RecordId record{static_cast<uint32_t>(c), group};
      pass_.sum(record, address(c, group), kUsed);
      writes.write(record, address(c, group), in_host(c, group) ? at_home : part_of(c));
    }
    if (progress) progress(c + 1, count);
  }
  writes.wait_for_all();
}

void RecordAccess::for_each_chunk(Which which, int ahead, const std::function<void(int)>& use) {
  const auto count = static_cast<int>(plan_.chunks.size());
  const auto read = [&](int c, Group group) { return in_host(c, group) == (which == Which::kInHost); };
  InFlight reads(store_, ahead);
  for (int c = 0, next = 0; c < count; ++c) {
    for (; next < std::min(count, c + ahead); ++next) {
      for (const Group group : {Group::kWeights, Group::kState}) {
        if (read(next, group)) reads.read({static_cast<uint32_t>(next), group}, address(next, group), next % ahead);
      }
    }
    reads.wait_for(c % ahead);
    for (const Group group : {Group::kWeights, Group::kState}) {
      if (read(c, group)) pass_.verify({static_cast<uint32_t>(c), group}, address(c, group), kUsed);
    }
    use(c);
  }
}

void RecordAccess::load() {
  for_each_chunk(Which::kInHost, kMaxTransfers / 2, [](int) {});
}

void RecordAccess::verify_rest(const std::function<void(int64_t, int64_t)>& progress) {
  forget();
  for_each_chunk(Which::kNotInHost, parts_.count, [&](int chunk) {
    if (progress) progress(chunk + 1, std::ssize(plan_.chunks));
  });
}

void RecordAccess::forget() { std::ranges::fill(in_part_, std::array{-1, -1}); }

const std::byte* RecordAccess::loaded(int chunk, Group group) {
  std::byte* const at = address(chunk, group);
  int& holds = in_part_[static_cast<size_t>(part_of(chunk))][static_cast<size_t>(group)];
  if (in_host(chunk, group) || holds == chunk) return at;
  holds = -1;
  const RecordId record{static_cast<uint32_t>(chunk), group};
  read_now(store_, record, at);
  pass_.verify(record, at, kUsed);
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
    const RecordLayout layout = plan_.record(chunk, plane.group);
    const int64_t each = layout.bytes_per_element[plane.plane];
    const std::byte* bytes = loaded(chunk, plane.group) + layout.plane_offset[plane.plane] + (at - range.first) * each;
    piece({bytes, static_cast<size_t>((stop - at) * each)});
    at = stop;
  }
}

const Parameter& RecordAccess::parameter_at(int parameter) const {
  const auto& all = plan_.geometry.parameters();
  SLUICE_CHECK(parameter >= 0 && parameter < static_cast<int>(all.size()), "the model has no such parameter");
  return all[static_cast<size_t>(parameter)];
}

void RecordAccess::read(int parameter, std::span<std::byte> into) {
  const Parameter& what = parameter_at(parameter);
  SLUICE_CHECK(static_cast<int64_t>(into.size()) == plan_.weights_bytes(what.elements), "a buffer of the wrong size");
  size_t at = 0;
  for_each_piece(what, {Group::kWeights, 0}, [&](std::span<const std::byte> piece) {
    std::memcpy(into.data() + at, piece.data(), piece.size());
    at += piece.size();
  });
}

void RecordAccess::read_master(int parameter, int64_t first, std::span<float> into) {
  Parameter part = parameter_at(parameter);
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

// A chunk's part of the sums of the parameters that lie in it; theirs so far are of what lies before it.
void RecordAccess::add_chunk(int chunk, std::span<PlaneSums> sums) {
  const Chunk& range = plan_.geometry.chunks()[chunk];
  for (const Parameter& parameter : plan_.geometry.parameters_of(range.partition)) {
    const int64_t begin = std::max(range.first, parameter.offset);
    const int64_t end = std::min(range.first + range.elements, parameter.offset + parameter.elements);
    if (begin >= end) continue;
    auto sum = sums[plan_.geometry.number_of(parameter)].begin();
    for (const Group group : {Group::kWeights, Group::kState}) {
      const RecordLayout layout = plan_.record(chunk, group);
      for (int plane = 0; plane < layout.plane_count; ++plane, ++sum) {
        const int64_t each = layout.bytes_per_element[plane];
        const std::byte* bytes = address(chunk, group) + layout.plane_offset[plane] + (begin - range.first) * each;
        *sum = crc32c(*sum, {bytes, static_cast<size_t>((end - begin) * each)});
      }
    }
  }
}

// A record is read once. Digests want its planes apart, and parameters in canonical order, so sums are put together at
// the end.
Digests RecordAccess::digests() {
  forget();
  const auto& parameters = plan_.geometry.parameters();
  std::vector<PlaneSums> sums(parameters.size());
  for_each_chunk(Which::kNotInHost, parts_.count, [&](int chunk) { add_chunk(chunk, sums); });
  Digests digests;
  const RecordFormat format = plan_.options.format();
  size_t plane = 0;
  for (const Group group : {Group::kWeights, Group::kState}) {
    uint32_t& digest = group == Group::kWeights ? digests.weights_crc32c : digests.state_crc32c;
    for (const Plane& each : planes_of(format, group)) {
      for (const int p : plan_.geometry.canonical()) {
        digest = crc32c_joined(digest, sums[static_cast<size_t>(p)][plane],
                               parameters[static_cast<size_t>(p)].elements * each.bytes_per_element);
      }
      ++plane;
    }
  }
  return digests;
}

}  // namespace sluice
