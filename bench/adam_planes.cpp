#include "bench/adam_planes.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <numeric>

#include "bench/adam.h"
#include "core/bytes.h"
#include "core/clock.h"
#include "core/errors.h"
#include "core/geometry.h"
#include "core/half.h"

namespace sluice {
namespace {

constexpr int64_t kMostChunkElements = int64_t{1} << 20;
constexpr int64_t kPageBytes = 2 * kMiB;           // a plane starts at a page
constexpr int64_t kPageElements = kPageBytes / 2;  // of halves, whole pages of all planes
int64_t plane_bytes(int64_t elements, int64_t each) { return round_up(elements * each, kPageBytes); }

RecordFormat record_format(AdamFormat format) { return {format.precision, Optimizer::kAdam, format.moments}; }

// Bytes of an element in each plane.
std::vector<int64_t> element_bytes(AdamFormat format) {
  std::vector<int64_t> bytes = {4};  // scratch
  for (const Group group : {Group::kWeights, Group::kState, Group::kGradient}) {
    for (const Plane& plane : planes_of(record_format(format), group)) bytes.push_back(plane.bytes_per_element);
  }
  return bytes;
}

int64_t arena_bytes(AdamFormat format, int64_t elements) {
  int64_t bytes = 0;
  for (const int64_t each : element_bytes(format)) bytes += plane_bytes(elements, each);
  return bytes;
}

void put(DType type, std::byte* plane, int64_t i, float value) {
  if (type == DType::kFp32) reinterpret_cast<float*>(plane)[i] = value;
  if (type == DType::kBf16) reinterpret_cast<uint16_t*>(plane)[i] = bf16_of_float(value);
  if (type == DType::kFp16) reinterpret_cast<uint16_t*>(plane)[i] = fp16_of_float(value);
}

struct IsaName {
  std::string_view isa, target;
};
// Highway's names of targets beside those that people know.
constexpr IsaName kIsaNames[] = {{"avx512_dl", "AVX3_DL"}, {"avx512", "AVX3"},     {"avx2", "AVX2"},
                                 {"sse4", "SSE4"},         {"ssse3", "SSSE3"},     {"sse2", "SSE2"},
                                 {"neon", "NEON"},         {"portable", "EMU128"}, {"portable", "SCALAR"}};

std::string isa_of(std::string_view target) {
  for (const IsaName& name : kIsaNames) {
    if (name.target == target) return std::string(name.isa);
  }
  return std::string(target);
}

// Empty, which no kernel has, where there is none.
std::string_view target_of(const std::string& isa) {
  for (const std::string_view target : adam_simd_targets()) {
    if (isa_of(target) == isa) return target;
  }
  return {};
}

}  // namespace

AdamFormat format_of(const AdamBenchOptions& options) {
  return {.precision = options.precision, .gradient = weights_dtype(options.precision), .moments = options.moments};
}

int threads_of(const AdamBenchOptions& options, const Topology& topology) {
  return options.threads > 0 ? options.threads : usable_cores(topology);
}

int64_t most_elements(AdamFormat format, int64_t bytes) {
  const std::vector<int64_t> planes = element_bytes(format);
  const int64_t rounding = static_cast<int64_t>(planes.size()) * kPageBytes;
  constexpr int64_t kInSmallPages = 5 * 4;  // bytes of an element where they are measured
  const int64_t each = std::max<int64_t>(kInSmallPages, std::reduce(planes.begin(), planes.end()));
  return std::max<int64_t>(0, bytes - rounding) / each;
}

std::vector<NodeShare> node_shares(int64_t elements, std::span<const TeamGroup> groups) {
  int64_t all = 0, before = 0, first = 0;
  for (const TeamGroup& group : groups) all += group.threads;
  std::vector<NodeShare> shares;
  for (size_t group = 0; group < groups.size(); ++group) {
    before += groups[group].threads;
    const bool last = group + 1 == groups.size();
    const int64_t end = last ? elements : std::min(elements, round_up(elements * before / all, kPageElements));
    if (end > first) shares.push_back({first, end - first, static_cast<int>(group), groups[group]});
    first = end;
  }
  return shares;
}

BenchPlanes::BenchPlanes(AdamFormat format, int64_t elements) : BenchPlanes(format, elements, Arena::Place()) {}

BenchPlanes::BenchPlanes(AdamFormat format, const Topology& topology, std::span<const NodeShare> shares)
    : BenchPlanes(format, shares.back().first + shares.back().elements, [&](std::span<std::byte> memory) {
        const int64_t elements = shares.back().first + shares.back().elements;
        if (topology.node_count() < 2) return;
        for (const int64_t each : element_bytes(format)) {
          const std::span<std::byte> plane = memory.first(static_cast<size_t>(plane_bytes(elements, each)));
          for (const NodeShare& share : shares) {
            const int64_t begin = share.first * each, end = begin + round_up(share.elements * each, kPageBytes);
            topology.bind_memory(plane.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
                                 share.threads.node);
          }
          memory = memory.subspan(plane.size());
        }
      }) {}

BenchPlanes::BenchPlanes(AdamFormat format, int64_t elements, const Arena::Place& place)
    : format_(format), elements_(elements), arena_(arena_bytes(format, elements), place) {
  int64_t end = 0;
  const auto take = [&](int64_t each) {
    std::byte* at = arena_.at(end);
    end += plane_bytes(elements, each);
    return at;
  };
  const int64_t half = bytes_of(format_.gradient);
  std::byte* gradient = take(half);
  planes_ = {.weights = take(half), .gradient = gradient};
  if (format.precision == Precision::kBf16) planes_.residual = reinterpret_cast<int16_t*>(take(2));
  if (format.precision == Precision::kFp16) planes_.master = reinterpret_cast<float*>(take(4));
  for (std::byte*& moment : moments_) moment = take(bytes_of(format.moments));
  set_moments(planes_, format.moments, moments_[0], moments_[1]);
  scratch_ = reinterpret_cast<float*>(take(4));
  // Ordinary values: subnormals would show in the figures.
  for (int64_t i = 0; i < elements; ++i) {
    const auto value = static_cast<float>(i % 1000 + 1);
    put(format.gradient, planes_.weights, i, 1e-2f * value);
    put(format.gradient, gradient, i, 1e-2f * value);
    if (planes_.master) planes_.master[i] = 1e-2f * value;
    put(format.moments, moments_[0], i, 1e-3f * value);
    put(format.moments, moments_[1], i, 1e-6f * value);
    scratch_[i] = value;
  }
}

AdamPlanes BenchPlanes::at(int64_t element) const { return planes_at(planes_, format_, element); }

std::vector<std::span<float>> BenchPlanes::floats(int64_t element, int64_t elements) const {
  std::vector<std::span<float>> planes;
  const AdamPlanes from = at(element);
  float* const in_place_of_halves = format_.moments == DType::kFp32 ? nullptr : scratch_ + element;
  for (float* plane : {from.master, from.moment1, from.moment2, in_place_of_halves}) {
    if (plane) planes.push_back({plane, static_cast<size_t>(elements)});
  }
  return planes;
}

std::array<std::span<const float>, 2> BenchPlanes::moments(int64_t element, int64_t elements) const {
  const int64_t each = bytes_of(format_.moments);
  const auto floats = [&](const std::byte* plane) {
    return std::span(reinterpret_cast<const float*>(plane + element * each), static_cast<size_t>(elements * each / 4));
  };
  return {floats(moments_[0]), floats(moments_[1])};
}

std::vector<BenchChunk> equal_chunks(std::span<const NodeShare> shares) {
  int64_t elements = 0, threads = 0;
  for (const NodeShare& share : shares) {
    elements += share.elements;
    threads += share.threads.threads;
  }
  const int64_t of_a_thread = round_up((elements + threads - 1) / threads, kParameterAlignmentElements);
  const int64_t chunk = std::min(kMostChunkElements, of_a_thread);
  std::vector<BenchChunk> chunks;
  bool more = true;
  for (int64_t begin = 0; more; begin += chunk) {
    more = false;
    for (const NodeShare& share : shares) {
      if (begin >= share.elements) continue;
      chunks.push_back({share.first + begin, std::min(chunk, share.elements - begin), share.group});
      more = true;
    }
  }
  return chunks;
}

std::vector<BenchChunk> uneven_chunks(std::span<const NodeShare> shares, int64_t largest) {
  std::vector<BenchChunk> chunks;
  int64_t size = 128;
  for (const NodeShare& share : shares) {
    for (int64_t begin = 0; begin < share.elements;) {
      const int64_t now = std::min(size, share.elements - begin);
      chunks.push_back({share.first + begin, now, share.group});
      begin += now;
      size = size * 5 % (largest + 1);
      size = std::max<int64_t>(128, size / 128 * 128);
    }
  }
  return chunks;
}

SweepTimes sweep(UpdateTeam& team, std::span<const BenchChunk> chunks, const ChunkPass& pass) {
  struct Run {
    std::span<const BenchChunk> chunks;
    const ChunkPass& pass;
    std::atomic<int64_t> first_end{0};
    std::atomic<int> done{0};
  } run{chunks, pass};
  const int64_t begin = now_ns();
  for (size_t i = 0; i < chunks.size(); ++i) {
    team.start({.run =
                    [](void* context, int index) {
                      auto& each = *static_cast<Run*>(context);
                      const BenchChunk& chunk = each.chunks[static_cast<size_t>(index)];
                      each.pass(chunk.first, chunk.elements);
                      if (index == 0) each.first_end = now_ns();
                      ++each.done;
                      each.done.notify_one();
                    },
                .context = &run,
                .index = static_cast<int>(i),
                .group = chunks[i].group});
  }
  const int all = static_cast<int>(chunks.size());
  for (int done = run.done; done < all; done = run.done) run.done.wait(done);
  return {.first_ns = static_cast<double>(run.first_end - begin), .all_ns = static_cast<double>(now_ns() - begin)};
}

std::vector<std::string> adam_bench_isas() {
  std::vector<std::string> names = {"auto"};
  for (const std::string_view target : adam_simd_targets()) names.push_back(isa_of(target));
  names.emplace_back("scalar");
  return names;
}

SummingAdamKernel summing_named(const std::string& isa, AdamFormat format) {
  return isa == "auto" ? summing_adam_simd(format) : summing_adam_simd_for(format, target_of(isa));
}

AdamKernel kernel_named(const std::string& isa, AdamFormat format) {
  if (isa == "auto") return adam_simd(format);
  if (isa == "scalar") return adam_scalar(format);
  if (const AdamKernel kernel = adam_simd_for(format, target_of(isa))) return kernel;
  throw ConfigError(fmt::format("isa is \"{}\", which this CPU or this build does not have; allowed here: {}", isa,
                                fmt::join(adam_bench_isas(), ", ")));
}

}  // namespace sluice
