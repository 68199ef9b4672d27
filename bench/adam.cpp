#include "bench/adam.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/adam_planes.h"
#include "bench/median.h"
#include "bench/streams.h"
#include "core/checksum.h"
#include "core/errors.h"

namespace sluice {
namespace {

// As the engine's pass does it: a tile stays in the core's own cache between the update and its checksum.
constexpr int64_t kTileElements = 8192;
constexpr int kRounds = 15;
constexpr int64_t kLeastElements = 4096;

void checksummed_pass(const BenchPlanes& planes, AdamKernel kernel, const AdamStep& step, const BenchChunk& chunk) {
  uint32_t sums[1 + kMaxPlanes] = {};
  for (int64_t i = 0; i < chunk.elements; i += kTileElements) {
    const int64_t now = std::min(kTileElements, chunk.elements - i);
    kernel(step, planes.at(chunk.first + i), now);
    uint32_t* sum = sums;
    for (const auto plane : planes.written(chunk.first + i, now)) {
      *sum = crc32c(*sum, plane);
      ++sum;
    }
  }
}

AdamRow row_of(const std::vector<double>& times_ns, const AdamBench& bench, int64_t bytes_per_element) {
  AdamRow row;
  row.ns_per_param = median(times_ns) / static_cast<double>(bench.elements);
  row.gb_per_s = static_cast<double>(bytes_per_element) / row.ns_per_param;
  row.percent_of_ceiling = 100 * row.gb_per_s / bench.ceiling_gb_per_s;
  return row;
}

}  // namespace

AdamBench measure_adam(const AdamBenchOptions& options) {
  if (options.elements < kLeastElements) {
    throw ConfigError(fmt::format("elements is {}; allowed: {} or more", options.elements, kLeastElements));
  }
  const AdamFormat format = format_of(options);
  const AdamKernel kernel = kernel_named(options.isa, format);
  const auto topology = make_topology();
  const auto team = make_update_team(*topology, options.threads);
  const BenchPlanes planes(format, options.elements);
  const auto chunks = equal_chunks(options.elements, team->threads());
  const AdamStep step = adam_step({}, 10, 1.0);

  const auto streamed = [&](int64_t first, int64_t elements) {
    for (const auto plane : planes.floats(first, elements))
      stream_in_place(plane.data(), static_cast<int64_t>(plane.size()));
  };
  const auto triads = [&](int64_t first, int64_t elements) {
    const auto [b, c] = planes.moments(first, elements);
    triad(planes.scratch() + first, b.data(), c.data(), static_cast<int64_t>(b.size()));
  };
  const auto plain = [&](int64_t first, int64_t elements) { kernel(step, planes.at(first), elements); };
  const auto checksummed = [&](int64_t first, int64_t elements) {
    checksummed_pass(planes, kernel, step, {first, elements});
  };
  std::vector<double> stream_ns, triad_ns, plain_ns, checksum_ns;
  for (int round = 0; round <= kRounds; ++round) {
    const double times[] = {sweep(*team, chunks, streamed).all_ns, sweep(*team, chunks, plain).all_ns,
                            sweep(*team, chunks, triads).all_ns, sweep(*team, chunks, checksummed).all_ns};
    if (round == 0) continue;  // caches and page tables warm up
    stream_ns.push_back(times[0]);
    plain_ns.push_back(times[1]);
    triad_ns.push_back(times[2]);
    checksum_ns.push_back(times[3]);
  }
  AdamBench bench;
  bench.isa = options.isa == "auto" ? adam_bench_isas()[1] : options.isa;
  bench.threads = team->threads();
  bench.elements = options.elements;
  const double stream_bytes = 8.0 * static_cast<double>(planes.floats(0, options.elements).size() * options.elements);
  bench.stream_gb_per_s = stream_bytes / median(stream_ns);
  const double triad_elements = static_cast<double>(planes.moments(0, options.elements)[0].size());
  bench.triad_gb_per_s = 12.0 * triad_elements / median(triad_ns);
  bench.ceiling_gb_per_s = std::max(bench.stream_gb_per_s, bench.triad_gb_per_s);
  const RecordFormat records(format.precision, Optimizer::kAdam, format.moments);
  const int64_t moved = bytes_updated_per_element(records, format.gradient);
  bench.plain = row_of(plain_ns, bench, moved);
  bench.with_checksum = row_of(checksum_ns, bench, moved);
  return bench;
}

}  // namespace sluice
