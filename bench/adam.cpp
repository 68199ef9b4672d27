#include "bench/adam.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "bench/adam_planes.h"
#include "bench/streams.h"
#include "core/bytes.h"
#include "core/errors.h"
#include "core/median.h"

namespace sluice {
namespace {

constexpr int kRounds = 15;

// The update with its sums: of what goes, or of what comes too.
enum class Summed : uint8_t { kWhatGoes, kAll };

class SummedPass {
 public:
  SummedPass(const std::string& isa, const BenchPlanes& planes)
      : planes_(planes), kernel_(kernel_named(isa, planes.format())), summing_(summing_named(isa, planes.format())) {}

  void operator()(Summed summed, const AdamStep& step, const BenchChunk& chunk) const {
    uint32_t weights[2] = {}, state[2][kMaxPlanes] = {}, gradient = 0;
    AdamSums sums{.weights_out = &weights[1], .state_out = state[1]};
    if (summed == Summed::kAll) {
      sums.weights_in = &weights[0];
      sums.state_in = state[0];
      sums.gradient_in = &gradient;
    }
    const AdamPlanes at = planes_.at(chunk.first);
    if (summing_) {
      summing_(step, at, chunk.elements, sums);
    } else {
      update_in_tiles(kernel_, planes_.format(), {step, at, chunk.elements}, sums);
    }
  }

 private:
  const BenchPlanes& planes_;
  AdamKernel kernel_;
  SummingAdamKernel summing_;
};

AdamRow row_of(const std::vector<double>& times_ns, const AdamBench& bench, int64_t bytes_per_element) {
  AdamRow row;
  row.ns_per_param = median(times_ns) / static_cast<double>(bench.elements);
  row.gb_per_s = static_cast<double>(bytes_per_element) / row.ns_per_param;
  row.percent_of_ceiling = 100 * row.gb_per_s / bench.ceiling_gb_per_s;
  return row;
}

void check_elements(int64_t elements, AdamFormat format) {
  const int64_t available = available_host_bytes() / 8 * 7, most = most_elements(format, available);
  if (elements >= kLeastAdamBenchElements && elements <= most) return;
  throw ConfigError(
      fmt::format("elements is {}; allowed: {} to {}, whose planes fit into seven eighths of the memory "
                  "that is available, {} ({} bytes)",
                  elements, kLeastAdamBenchElements, most, format_bytes(available), available));
}

}  // namespace

AdamBench measure_adam(const AdamBenchOptions& options) {
  const AdamFormat format = format_of(options);
  check_elements(options.elements, format);
  const AdamKernel kernel = kernel_named(options.isa, format);
  const auto topology = make_topology();
  const auto team = make_update_team(*topology, threads_of(options, *topology));
  const auto shares = node_shares(options.elements, team_groups(*topology, team->threads()));
  const BenchPlanes planes(format, *topology, shares);
  const auto chunks = equal_chunks(shares);
  const AdamStep step = adam_step({}, 10, 1.0);

  const auto streamed = [&](int64_t first, int64_t elements) {
    for (const auto plane : planes.floats(first, elements))
      stream_in_place(plane.data(), static_cast<int64_t>(plane.size()));
  };
  const auto triads = [&planes](Stores stores) {
    return [&planes, stores](int64_t first, int64_t elements) {
      const auto [b, c] = planes.moments(first, elements);
      triad(planes.scratch() + first, b, c, stores);
    };
  };
  const auto plain = [&](int64_t first, int64_t elements) { kernel(step, planes.at(first), elements); };
  const SummedPass summed(options.isa, planes);
  const auto checksummed = [&](int64_t first, int64_t elements) { summed(Summed::kWhatGoes, step, {first, elements}); };
  const auto verified = [&](int64_t first, int64_t elements) { summed(Summed::kAll, step, {first, elements}); };
  const std::array<ChunkPass, 6> passes = {streamed,    plain,   triads(Stores::kCached), triads(Stores::kPastCaches),
                                           checksummed, verified};
  std::array<std::vector<double>, passes.size()> ns;
  for (int round = 0; round <= kRounds; ++round) {
    for (size_t pass = 0; pass < passes.size(); ++pass) {
      const double all_ns = sweep(*team, chunks, passes[pass]).all_ns;
      if (round > 0) ns[pass].push_back(all_ns);  // before that caches and page tables warm up
    }
  }
  const auto& [stream_ns, plain_ns, triad_ns, past_caches_ns, checksum_ns, verified_ns] = ns;
  AdamBench bench;
  bench.isa = options.isa == "auto" ? adam_bench_isas()[1] : options.isa;
  bench.threads = team->threads();
  bench.elements = options.elements;
  const double stream_bytes = 8.0 * static_cast<double>(planes.floats(0, options.elements).size() * options.elements);
  bench.stream_gb_per_s = stream_bytes / median(stream_ns);
  const double triad_bytes = 12.0 * static_cast<double>(planes.moments(0, options.elements)[0].size());
  bench.triad_gb_per_s = triad_bytes / median(triad_ns);
  bench.past_caches_gb_per_s = triad_bytes / median(past_caches_ns);
  bench.ceiling_gb_per_s = std::max({bench.stream_gb_per_s, bench.triad_gb_per_s, bench.past_caches_gb_per_s});
  const RecordFormat records(format.precision, Optimizer::kAdam, format.moments);
  const int64_t moved = bytes_updated_per_element(records, format.gradient);
  bench.plain = row_of(plain_ns, bench, moved);
  bench.with_checksum = row_of(checksum_ns, bench, moved);
  bench.verified = row_of(verified_ns, bench, moved);
  return bench;
}

}  // namespace sluice
