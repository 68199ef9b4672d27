// The update and the closing of gradients on memory far larger than the caches, each beside an in-place
// read-modify-write stream measured in the same run with as many threads: ns per parameter, GB/s of the bytes that must
// move, percent of that ceiling; the best pass of each. Ends with one JSON line.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/arena.h"
#include "core/clock.h"
#include "core/half.h"
#include "core/topology.h"
#include "cpu_adam/adam.h"
#include "cpu_adam/update_team.h"
#include "offload/gradient_kernels.h"

namespace sluice {
namespace {

constexpr int64_t kParameters = int64_t{32} << 20;
constexpr int64_t kChunkElements = int64_t{1} << 20;
constexpr int kChunks = kParameters / kChunkElements;
constexpr int64_t kPlaneBytes = kParameters * 4;  // of each plane, whatever its type: starts stay 2 MiB aligned

__attribute__((target_clones("avx512f", "avx2", "default"))) void scale_in_place(float* data, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) data[i] *= 1.0000001f;
}

// GB/s read plus GB/s written, best of several.
double stream_ceiling_gb_per_s(const Arena& arena, int threads) {
  const int64_t elements = arena.bytes() / 4 / threads;
  double best = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const int64_t begin = now_ns();
    std::vector<std::thread> team;
    for (int t = 0; t < threads; ++t) {
      team.emplace_back(
          [&arena, elements, t] { scale_in_place(reinterpret_cast<float*>(arena.at(0)) + t * elements, elements); });
    }
    for (auto& thread : team) thread.join();
    best = std::max(best, static_cast<double>(elements * threads * 8) / static_cast<double>(now_ns() - begin));
  }
  return best;
}

struct Machine {
  std::unique_ptr<Topology> topology = make_topology();
  Arena arena{6 * kPlaneBytes};
  std::map<int, double> ceiling_gb_per_s;

  std::byte* plane(int number) const { return arena.at(number * kPlaneBytes); }
};

struct Bytes {
  int64_t a_parameter;
};

// One pass over all parameters: a task for each chunk, on the team of the update lane.
template <class Pass>
class ChunkTasks {
 public:
  explicit ChunkTasks(Pass pass) : pass_(std::move(pass)) {}
  void run_all(UpdateTeam& team) {
    done_ = 0;
    for (int chunk = 0; chunk < kChunks; ++chunk) team.start(&ChunkTasks::run, this, chunk);
    for (int done = done_; done < kChunks; done = done_) done_.wait(done);
  }

 private:
  static void run(void* context, int chunk) {
    auto& tasks = *static_cast<ChunkTasks*>(context);
    tasks.pass_(chunk * kChunkElements, kChunkElements);
    ++tasks.done_;
    tasks.done_.notify_one();
  }
  Pass pass_;
  std::atomic<int> done_{0};
};

// Runs `pass(first, elements)` on all chunks, on as many threads as the benchmark's argument says.
template <class Pass>
void measure(benchmark::State& state, const Machine& machine, Bytes bytes, Pass pass) {
  const int threads = static_cast<int>(state.range(0));
  ChunkTasks<Pass> tasks(std::move(pass));
  const auto team = make_update_team(*machine.topology, threads);
  int64_t best_ns = std::numeric_limits<int64_t>::max();
  for (auto _ : state) {
    const int64_t begin = now_ns();
    tasks.run_all(*team);
    best_ns = std::min(best_ns, now_ns() - begin);
  }
  const double ns_per_parameter = static_cast<double>(best_ns) / static_cast<double>(kParameters);
  const double gb_per_s = static_cast<double>(bytes.a_parameter) / ns_per_parameter;
  state.counters["ns_per_parameter"] = ns_per_parameter;
  state.counters["gb_per_s"] = gb_per_s;
  state.counters["percent_of_ceiling"] = gb_per_s / machine.ceiling_gb_per_s.at(threads) * 100;
}

// Values as in training: a slow path of the processor (subnormals) would show in the figures.
void fill_planes(const Machine& machine, DType weights_and_gradient) {
  for (const int plane : {0, 5}) {
    auto* halves = reinterpret_cast<uint16_t*>(machine.plane(plane));
    auto* floats = reinterpret_cast<float*>(machine.plane(plane));
    for (int64_t i = 0; i < kParameters; ++i) {
      const float value = 1e-2f * static_cast<float>(i % 1000 + 1);
      if (weights_and_gradient == DType::kFp32) floats[i] = value;
      if (weights_and_gradient == DType::kBf16) halves[i] = bf16_of_float(value);
      if (weights_and_gradient == DType::kFp16) halves[i] = fp16_of_float(value);
    }
  }
  for (const int plane : {2, 3, 4}) {
    auto* floats = reinterpret_cast<float*>(machine.plane(plane));
    for (int64_t i = 0; i < kParameters; ++i) floats[i] = 1e-3f * static_cast<float>(i % 1000 + 1);
  }
}

int64_t bytes_moved(AdamFormat format) {
  const int64_t state = bytes_per_element(format.precision, Group::kState);
  const int64_t weights = bytes_of(weights_dtype(format.precision));
  const int64_t weight_reads = format.precision == Precision::kFp16 ? 0 : weights;
  return 2 * state + weights + weight_reads + bytes_of(format.gradient);
}

void adam(benchmark::State& state, const Machine& machine, AdamFormat format, AdamKernel kernel) {
  const AdamPlanes planes{.weights = machine.plane(0),
                          .residual = reinterpret_cast<int16_t*>(machine.plane(1)),
                          .master = reinterpret_cast<float*>(machine.plane(2)),
                          .moment1 = reinterpret_cast<float*>(machine.plane(3)),
                          .moment2 = reinterpret_cast<float*>(machine.plane(4)),
                          .gradient = machine.plane(5)};
  fill_planes(machine, format.gradient);
  const AdamStep step = adam_step({}, 10, 1.0);
  measure(state, machine, {bytes_moved(format)}, [&](int64_t first, int64_t elements) {
    benchmark::DoNotOptimize(kernel(step, planes_at(planes, format, first), elements));
  });
}

void add(benchmark::State& state, const Machine& machine, DType dtype) {
  fill_planes(machine, dtype);
  float* open = reinterpret_cast<float*>(machine.plane(2));
  measure(state, machine, {8 + bytes_of(dtype)}, [&](int64_t first, int64_t elements) {
    add_gradient(open + first, machine.plane(5) + first * bytes_of(dtype), dtype, elements, Contribution::kLater);
  });
}

void close(benchmark::State& state, const Machine& machine, DType dtype) {
  fill_planes(machine, dtype);
  const float* open = reinterpret_cast<const float*>(machine.plane(2));
  measure(state, machine, {4 + bytes_of(dtype)}, [&](int64_t first, int64_t elements) {
    const ClosedPiece piece{machine.plane(1) + first * bytes_of(dtype), elements};
    benchmark::DoNotOptimize(close_gradient(open + first, 0.5f, dtype, {&piece, 1}));
  });
}

void register_all(const Machine& machine, const std::vector<int>& thread_counts) {
  const auto run = [&](const std::string& name, auto body) {
    for (const int threads : thread_counts) {
      benchmark::RegisterBenchmark(name.c_str(), body)
          ->ArgName("threads")
          ->Arg(threads)
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    }
  };
  const AdamFormat bf16{Precision::kBf16, DType::kBf16};
  for (const std::string_view target : adam_simd_targets()) {
    run(fmt::format("adamw bf16 {}", target),
        [&machine, bf16, target](benchmark::State& s) { adam(s, machine, bf16, adam_simd_for(bf16, target)); });
  }
  run("adamw bf16 reference", [&machine, bf16](benchmark::State& s) { adam(s, machine, bf16, adam_scalar(bf16)); });
  for (const AdamFormat format :
       {AdamFormat{Precision::kBf16, DType::kFp32}, AdamFormat{Precision::kFp16, DType::kFp16},
        AdamFormat{Precision::kFp32, DType::kFp32}}) {
    run(fmt::format("adamw {} gradient {}", name_of(format.precision), name_of(format.gradient)),
        [&machine, format](benchmark::State& s) { adam(s, machine, format, adam_simd(format)); });
  }
  for (const DType dtype : {DType::kBf16, DType::kFp16, DType::kFp32}) {
    run(fmt::format("add_gradient {}", name_of(dtype)),
        [&machine, dtype](benchmark::State& s) { add(s, machine, dtype); });
    run(fmt::format("close_gradient {}", name_of(dtype)),
        [&machine, dtype](benchmark::State& s) { close(s, machine, dtype); });
  }
}

// The console's table, and its figures once more as one JSON line.
class TableAndLine final : public benchmark::ConsoleReporter {
 public:
  TableAndLine() : ConsoleReporter(OO_Tabular) {}
  void ReportRuns(const std::vector<Run>& runs) override {
    ConsoleReporter::ReportRuns(runs);
    for (const Run& run : runs) {
      line_ +=
          fmt::format(R"({}"{}": {{"ns_per_parameter": {:.4f}, "gb_per_s": {:.2f}, "percent_of_ceiling": {:.1f}}})",
                      line_.empty() ? "" : ", ", run.benchmark_name(), double(run.counters.at("ns_per_parameter")),
                      double(run.counters.at("gb_per_s")), double(run.counters.at("percent_of_ceiling")));
    }
  }
  const std::string& line() const { return line_; }

 private:
  std::string line_;
};

}  // namespace
}  // namespace sluice

int main(int count, char** arguments) {
  benchmark::Initialize(&count, arguments);
  sluice::Machine machine;
  std::vector<int> thread_counts = {1};
  if (const int all = static_cast<int>(std::thread::hardware_concurrency()); all > 1) thread_counts.push_back(all);
  std::string ceilings;
  for (const int threads : thread_counts) {
    machine.ceiling_gb_per_s[threads] = sluice::stream_ceiling_gb_per_s(machine.arena, threads);
    ceilings += fmt::format(R"("ceiling_gb_per_s threads:{}": {:.2f}, )", threads, machine.ceiling_gb_per_s[threads]);
    fmt::print("in-place read-modify-write stream, threads: {}: {:.1f} GB/s\n", threads,
               machine.ceiling_gb_per_s[threads]);
  }
  std::fflush(stdout);
  sluice::register_all(machine, thread_counts);
  sluice::TableAndLine reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  fmt::print("{{{}{}}}\n", ceilings, reporter.line());
}
