#include "app/bench_adam.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/choice.h"
#include "app/device_kinds.h"
#include "app/whole_number.h"
#include "bench/adam.h"
#include "core/bytes.h"
#include "engine/device_probe.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

struct AdamArguments {
  AdamBenchOptions options;
  std::optional<DeviceKind> device;  // not said: the host's kernels
  enum class Print { kTable, kJson } print = Print::kTable;
};

Json json_of(const AdamBench& bench, const AdamRow& row) {
  return {{"ns_per_param", row.ns_per_param},
          {"gb_per_s", row.gb_per_s},
          {"ceiling_gb_per_s", bench.ceiling_gb_per_s},
          {"percent_of_ceiling", row.percent_of_ceiling},
          {"isa", bench.isa},
          {"threads", bench.threads},
          {"elements", bench.elements}};
}

void print_row(const char* name, const AdamRow& row) {
  fmt::print("  {:<24}{:>8.3f} ns per parameter {:>7.1f} GB/s {:>6.1f} % of the ceiling\n", name, row.ns_per_param,
             row.gb_per_s, row.percent_of_ceiling);
}

void print_text(const AdamArguments& arguments, const AdamBench& bench) {
  fmt::print("AdamW {}, moments {}, {} parameters, {} thread(s), {}; medians\n", name_of(arguments.options.precision),
             name_of(arguments.options.moments), bench.elements, bench.threads, bench.isa);
  fmt::print(
      "  ceiling {:.1f} GB/s: the best of reading and writing the same planes in place ({:.1f}), a triad ({:.1f}) and "
      "one whose stores pass the caches by ({:.1f})\n",
      bench.ceiling_gb_per_s, bench.stream_gb_per_s, bench.triad_gb_per_s, bench.past_caches_gb_per_s);
  print_row("update", bench.plain);
  print_row("update and checksum", bench.with_checksum);
  print_row("verified too", bench.verified);
  std::fflush(stdout);
  const AdamSurroundings around = measure_adam_surroundings(arguments.options, bench.ceiling_gb_per_s);
  for (const auto& gradient : around.gradients) {
    print_row(gradient.kernel.c_str(), {gradient.ns_per_param, gradient.gb_per_s, gradient.percent_of_ceiling});
  }
  fmt::print(
      "  {:<24}{:>8.3f} ns per parameter, one thread; two divisions and a root alone {:.3f} ({:.0f} % of that bound)\n",
      "in cache, 2 MiB", around.in_cache_ns, around.bound_ns, 100 * around.bound_ns / around.in_cache_ns);
  fmt::print("  {:<24}{:>8.1f} GB/s of 16 KiB, {:.1f} of 256 KiB, {:.1f} of memory, one thread\n", "checksum",
             around.checksum_l1_gb_per_s, around.checksum_l2_gb_per_s, around.checksum_memory_gb_per_s);
  fmt::print("  {:<24}{:>8.3f} ns per parameter; {:.3f} where the pass itself touches them first\n", "4 KiB pages",
             around.small_pages_ns, around.first_touch_ns);
  fmt::print("  {:<24}{:>8.1f} % of an ideal split; the first of equal chunks is ready after {:.2f} ms of {:.2f} ms\n",
             "chunks of many sizes", around.percent_of_ideal_split, around.first_chunk_ms, around.all_chunks_ms);
}

struct DeviceRow {
  const char* kernel;
  double gb_per_s;
};

// Of the device's memory, one kernel at a time; the ceiling is a copy within it.
void run_on_device(const AdamArguments& arguments) {
  const Precision precision = arguments.options.precision;
  const DeviceProbeOptions options{.device = *arguments.device,
                                   .format = {precision, Optimizer::kAdam, arguments.options.moments},
                                   .gradient_dtype = weights_dtype(precision)};
  const std::string device = make_device(options.device, kMiB)->describe();
  const DeviceSpeeds speeds = probe_device(options);
  const DeviceRow rows[] = {{"update", speeds.update_gb_per_s},
                            {"add_gradient", speeds.add_gb_per_s},
                            {"close_gradient", speeds.close_gb_per_s}};
  const double ceiling = speeds.copy_gb_per_s;
  const auto percent = [ceiling](const DeviceRow& row) { return 100 * row.gb_per_s / ceiling; };
  if (arguments.print == AdamArguments::Print::kTable) {
    fmt::print("{}; {}, moments {}; ceiling {:.1f} GB/s: a copy within its memory\n", device, name_of(precision),
               name_of(arguments.options.moments), ceiling);
    for (const DeviceRow& row : rows) {
      fmt::print("  {:<24}{:>8.1f} GB/s {:>6.1f} % of the ceiling\n", row.kernel, row.gb_per_s, percent(row));
    }
    return;
  }
  Json json = {{"device", device}, {"precision", name_of(precision)}, {"ceiling_gb_per_s", ceiling}};
  for (const DeviceRow& row : rows) {
    json[row.kernel] = {{"gb_per_s", row.gb_per_s}, {"percent_of_ceiling", percent(row)}};
  }
  fmt::print("{}\n", json.dump());
}

void run(const AdamArguments& arguments) {
  if (arguments.device) return run_on_device(arguments);
  const AdamBench bench = measure_adam(arguments.options);
  if (arguments.print == AdamArguments::Print::kTable) return print_text(arguments, bench);
  Json json = json_of(bench, bench.plain);
  json["with_checksum"] = json_of(bench, bench.with_checksum);
  json["verified"] = json_of(bench, bench.verified);
  fmt::print("{}\n", json.dump());
}

}  // namespace

void add_bench_adam(CLI::App& bench) {
  auto arguments = std::make_shared<AdamArguments>();
  AdamBenchOptions& options = arguments->options;
  CLI::App* adam = bench.add_subcommand("adam", "The optimizer's pass on this CPU, beside what its memory gives");
  CLI::Option* const elements =
      adam->add_option("--elements", options.elements, "Parameters (26 B of traffic each in bf16)")
          ->check(whole_number(kLeastAdamBenchElements))
          ->capture_default_str();
  CLI::Option* const threads =
      adam->add_option("--threads", options.threads, "Threads; 0: one for each core that this process may use")
          ->check(whole_number(0, 1024))
          ->capture_default_str();
  add_choice<Precision>(*adam, {"--precision", "Of the weights and gradients"}, options.precision,
                        {{"bf16", Precision::kBf16}, {"fp16", Precision::kFp16}, {"fp32", Precision::kFp32}})
      ->default_str("bf16");
  add_choice<DType>(*adam, {"--moments", "Of the state; bf16: rounded by chance (18 B of traffic in bf16)"},
                    options.moments, {{"fp32", DType::kFp32}, {"bf16", DType::kBf16}})
      ->default_str("fp32");
  CLI::Option* const isa = adam->add_option("--isa", options.isa, "Instructions of the kernel; auto: the best one here")
                               ->transform(CLI::IsMember(adam_bench_isas(), CLI::ignore_case))
                               ->capture_default_str();
  add_choice(*adam,
             {"--device", "The device's own kernels, in its memory: auto (a GPU where one answers), cuda or cpu"},
             arguments->device, device_kinds())
      ->excludes(elements)
      ->excludes(threads)
      ->excludes(isa);
  adam->add_flag_callback(
      "--json", [arguments] { arguments->print = AdamArguments::Print::kJson; },
      "One JSON object in place of the table");
  adam->callback([arguments] { run(*arguments); });
}

}  // namespace sluice
