// What lies around the pass of `sluice bench adam`: cache, pages, chunks of different sizes, the gradient's kernels.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "bench/adam.h"
#include "bench/adam_planes.h"
#include "bench/streams.h"
#include "core/bytes.h"
#include "core/checksum.h"
#include "core/clock.h"
#include "core/errors.h"
#include "core/median.h"
#include "offload/gradient_kernels.h"

namespace sluice {
namespace {

constexpr int kSweeps = 9;

template <class Pass>
double median_ns(int rounds, const Pass& pass) {
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    const int64_t begin = now_ns();
    pass();
    times.push_back(static_cast<double>(now_ns() - begin));
  }
  return median(std::move(times));
}

void measure_in_cache(const AdamBenchOptions& options, AdamSurroundings& result) {
  const RecordFormat format{options.precision, Optimizer::kAdam, options.moments};
  int64_t bytes = 0;
  for (const Group group : {Group::kWeights, Group::kState, Group::kGradient})
    bytes += bytes_per_element(format, group);
  const int64_t elements = (int64_t{2} << 20) / bytes;
  const BenchPlanes planes(format_of(options), elements);
  const AdamKernel kernel = kernel_named(options.isa, planes.format());
  const AdamStep step = adam_step({}, 10, 1.0);
  const auto pass = [&] { kernel(step, planes.at(0), elements); };
  pass();
  result.in_cache_ns = median_ns(301, pass) / static_cast<double>(elements);
  volatile float kept = 0;
  result.bound_ns = median_ns(301, [&] { kept = divide_and_root(elements); }) / static_cast<double>(elements);
}

// A private mapping in 4 KiB pages that nothing has touched.
class SmallPages {
 public:
  explicit SmallPages(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) throw ConfigError("no memory for planes in small pages; lower --elements");
    madvise(memory_, bytes_, MADV_NOHUGEPAGE);
  }
  ~SmallPages() { munmap(memory_, bytes_); }
  SmallPages(const SmallPages&) = delete;
  SmallPages& operator=(const SmallPages&) = delete;
  std::byte* at(int64_t offset) const { return static_cast<std::byte*>(memory_) + offset; }

 private:
  size_t bytes_;
  void* memory_ = nullptr;
};

// What the sweeps below run on.
struct Machine {
  explicit Machine(const AdamBenchOptions& options)
      : topology(make_topology()),
        team(make_update_team(*topology, threads_of(options, *topology))),
        shares(node_shares(options.elements, team_groups(*topology, team->threads()))) {}

  std::unique_ptr<Topology> topology;
  std::unique_ptr<UpdateTeam> team;
  std::vector<NodeShare> shares;
};

void measure_pages(const AdamBenchOptions& options, const Machine& machine, AdamSurroundings& result) {
  const AdamFormat format = format_of(options);
  const AdamKernel kernel = kernel_named(options.isa, format);
  const int64_t plane = round_up(options.elements * 4, 4096);
  const SmallPages pages(5 * plane);
  AdamPlanes planes{.weights = pages.at(0), .gradient = pages.at(4 * plane)};
  if (format.precision == Precision::kBf16) planes.residual = reinterpret_cast<int16_t*>(pages.at(plane));
  if (format.precision == Precision::kFp16) planes.master = reinterpret_cast<float*>(pages.at(plane));
  set_moments(planes, format.moments, pages.at(2 * plane), pages.at(3 * plane));
  const AdamStep step = adam_step({}, 10, 1.0);
  const auto chunks = equal_chunks(machine.shares);
  const auto pass = [&](int64_t first, int64_t elements) { kernel(step, planes_at(planes, format, first), elements); };
  const auto elements = static_cast<double>(options.elements);
  result.first_touch_ns = sweep(*machine.team, chunks, pass).all_ns / elements;
  std::vector<double> times;
  for (int round = 0; round < kSweeps; ++round) times.push_back(sweep(*machine.team, chunks, pass).all_ns);
  result.small_pages_ns = median(times) / elements;
}

// Sizes as a model has them: from a bias' worth to whole chunks. The ideal split gives every thread the same number of
// elements and the speed that equal chunks have.
void measure_uneven(const AdamBenchOptions& options, const Machine& machine, AdamSurroundings& result) {
  const BenchPlanes planes(format_of(options), *machine.topology, machine.shares);
  const AdamKernel kernel = kernel_named(options.isa, planes.format());
  const AdamStep step = adam_step({}, 10, 1.0);
  const auto pass = [&](int64_t first, int64_t elements) { kernel(step, planes.at(first), elements); };
  const auto equal = equal_chunks(machine.shares);
  const auto uneven = uneven_chunks(machine.shares, equal.front().elements);
  std::vector<double> ideal_ns, all_ns, first_ns;
  for (int round = 0; round < kSweeps; ++round) {
    ideal_ns.push_back(sweep(*machine.team, equal, pass).all_ns);
    const SweepTimes times = sweep(*machine.team, uneven, pass);
    all_ns.push_back(times.all_ns);
    first_ns.push_back(sweep(*machine.team, equal, pass).first_ns);
  }
  result.percent_of_ideal_split = 100 * median(ideal_ns) / median(all_ns);
  result.first_chunk_ms = median(first_ns) / 1e6;
  result.all_chunks_ms = median(ideal_ns) / 1e6;
}

// Of spans that the nearest cache holds, the next one, and neither.
void measure_checksum(AdamSurroundings& result) {
  constexpr int64_t kMostBytes = 256 * kMiB, kLeastBytes = 16 * kMiB;
  const Arena memory(kMostBytes);
  volatile uint32_t kept = 0;
  const auto gb_per_s = [&](int64_t span_bytes) {
    const int64_t spans = std::max<int64_t>(1, kLeastBytes / span_bytes);
    const std::span<const std::byte> span = memory.span().first(static_cast<size_t>(span_bytes));
    const double ns = median_ns(kSweeps, [&] {
      for (int64_t i = 0; i < spans; ++i) kept = crc32c(kept, span);
    });
    return static_cast<double>(spans * span_bytes) / ns;
  };
  result.checksum_l1_gb_per_s = gb_per_s(16 * kKiB);
  result.checksum_l2_gb_per_s = gb_per_s(256 * kKiB);
  result.checksum_memory_gb_per_s = gb_per_s(kMostBytes);
}

void measure_gradients(const AdamBenchOptions& options, const Machine& machine, double ceiling_gb_per_s,
                       AdamSurroundings& result) {
  const BenchPlanes planes(format_of(options), *machine.topology, machine.shares);
  const DType dtype = planes.format().gradient;
  const auto chunks = equal_chunks(machine.shares);
  const auto add = [&](int64_t first, int64_t elements) {
    add_gradient(planes.scratch() + first, {planes.at(first).gradient, dtype, elements}, Contribution::kLater);
  };
  const auto close = [&](int64_t first, int64_t elements) {
    const ClosedPiece piece{planes.at(first).weights, elements};
    close_gradient({planes.scratch() + first, 0.5f, dtype, {&piece, 1}});
  };
  const auto measure = [&](const char* name, int64_t bytes, const ChunkPass& pass) {
    std::vector<double> times;
    for (int round = 0; round < kSweeps; ++round) times.push_back(sweep(*machine.team, chunks, pass).all_ns);
    const double ns = median(times) / static_cast<double>(options.elements);
    const double gb_per_s = static_cast<double>(bytes) / ns;
    result.gradients.push_back({name, ns, gb_per_s, 100 * gb_per_s / ceiling_gb_per_s});
  };
  measure("add_gradient", 8 + bytes_of(dtype), add);
  measure("close_gradient", 4 + bytes_of(dtype), close);
}

}  // namespace

AdamSurroundings measure_adam_surroundings(const AdamBenchOptions& options, double ceiling_gb_per_s) {
  AdamSurroundings result;
  const Machine machine(options);
  measure_in_cache(options, result);
  measure_checksum(result);
  measure_pages(options, machine, result);
  measure_uneven(options, machine, result);
  measure_gradients(options, machine, ceiling_gb_per_s, result);
  return result;
}

}  // namespace sluice
