#include "app/bench_io.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/choice.h"
#include "app/comma_list.h"
#include "app/console.h"
#include "app/measured_folders.h"
#include "app/store_words.h"
#include "app/whole_number.h"
#include "bench/io_bench.h"
#include "configs/run_config.h"
#include "core/bytes.h"
#include "core/errors.h"
#include "data/utf8.h"
#include "swap/drive_folders.h"
#include "swap/io_probe.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

struct IoArguments {
  std::string path;
  std::string size = "4GiB", block = "1MiB", record = "64MiB";
  IoStoreOptions options{.depth = 64};
  int rounds = 5;
  enum class Print { kText, kJson } print = Print::kText;
  enum class Task { kMeasure, kSweep } task = Task::kMeasure;
};

int64_t bytes_of(const char* option, const std::string& text) {
  try {
    return parse_bytes(text);
  } catch (const ConfigError&) {
    throw ConfigError(fmt::format("{} is \"{}\": allowed are bytes, as \"4GiB\" or \"1048576\"", option, text));
  }
}

std::string check_folders(const std::string& path) {
  const bool named = std::ranges::none_of(words_between_commas(path), &std::string::empty);
  return named ? "" : fmt::format("a folder has no name in \"{}\"", path);
}

// A drive slower than the least would take hours.
std::string check_throttle(const std::string& text) {
  constexpr double kLeast = 0.001;
  double value = 0;
  const bool is_number = CLI::detail::lexical_cast(text, value) && std::isfinite(value);
  return is_number && (value == 0 || value >= kLeast) ? "" : text + " is not 0 (no limit), nor GB/s from 0.001 up";
}

void read_options(IoArguments& arguments) {
  IoStoreOptions& options = arguments.options;
  for (const std::string& folder : words_between_commas(arguments.path))
    options.folders.push_back(fs::absolute(folder).lexically_normal());
  options.size_bytes = bytes_of("--size", arguments.size);
  options.block_bytes = bytes_of("--block", arguments.block);
  options.record_bytes = bytes_of("--record", arguments.record);
  if (options.record_bytes < 64 * kKiB || options.record_bytes > kGiB)
    throw ConfigError(fmt::format("--record is {}: allowed are 64KiB to 1GiB", arguments.record));
  if (options.size_bytes < 16 * kMiB)
    throw ConfigError(fmt::format("--size is {}: allowed are 16MiB and more", arguments.size));
  if (options.block_bytes % 4096 != 0 || options.block_bytes < 4096 || options.block_bytes > kMaxIoBlockBytes)
    throw ConfigError(fmt::format("--block is {}: allowed are multiples of 4096 up to 64MiB", arguments.block));
  if (options.folders.size() > kMaxDrives) throw ConfigError("--path names more than 16 folders");
  check_distinct(options.folders);
  if (options.depth > kMaxQueueDepth / static_cast<int>(options.folders.size()))
    throw ConfigError(fmt::format("--depth is {}: allowed are up to 4096 for all drives together", options.depth));
  Throttle& throttle = options.throttle;
  if (throttle.gb_per_s.empty()) return;
  if (throttle.gb_per_s.size() != options.folders.size())
    throw ConfigError("--throttle takes one number for each folder of --path");
  throttle.folders = options.folders;
}

// Records have two slots. Known before they are laid out, which takes memory for each.
void check_room(const IoArguments& arguments) {
  const int64_t free = free_drive_bytes(arguments.options.folders);
  if (arguments.options.size_bytes <= free / 2) return;
  throw ConfigError(
      fmt::format("--size is {}: twice that is taken, and {} ({} bytes) are free in {}: give a smaller one",
                  arguments.size, format_bytes(free), free, fmt::join(words_between_commas(arguments.path), ", ")));
}

// A sweep's file on each drive. A trial moves twice that: no less than is in flight.
constexpr int64_t kSweepMemoryBytes = 64 * kMiB;  // for each drive
constexpr int64_t kLeastSweepFileBytes = kSweepMemoryBytes / 2;
int64_t sweep_file_bytes(const IoArguments& arguments) {
  return std::clamp<int64_t>(arguments.options.size_bytes / 4, kLeastSweepFileBytes, 512 * kMiB);
}

// The configuration that a sweep prints is JSON.
void check_names(const IoArguments& arguments) {
  for (const fs::path& folder : arguments.options.folders) {
    if (utf8_valid_prefix(folder.native()) == folder.native().size()) continue;
    throw ConfigError(
        fmt::format("--path: {} is not UTF-8, and the configuration that --sweep prints cannot name it: give the "
                    "folder another name, or a link to it",
                    folder.string()));
  }
}

// Of each file system for the files of all folders on it.
void check_sweep_room(const IoArguments& arguments) {
  const int64_t each = sweep_file_bytes(arguments);
  for (const fs::path& folder : arguments.options.folders) {
    const int64_t files = count_beside(folder, arguments.options.folders);
    const int64_t needed = each * files, free = free_drive_bytes({&folder, 1});
    if (needed <= free) continue;
    throw ConfigError(fmt::format(
        "--sweep takes a quarter of --size on each drive, 32 MiB to 512 MiB: {} of that file system, and {} ({} bytes) "
        "are free in {}: {}",
        format_bytes(needed), format_bytes(free), free, folder.string(),
        kLeastSweepFileBytes * files <= free ? "give a smaller --size, or make room" : "make room"));
  }
}

Json json_of(const IoFigure& figure) {
  return {{"gb_per_s", figure.gb_per_s},
          {"ceiling_gb_per_s", figure.ceiling_gb_per_s},
          {"percent_of_ceiling", figure.percent_of_ceiling()},
          {"cpu_ms_per_gb", figure.cpu_ms_per_gb},
          {"p50_us", figure.p50_us},
          {"p99_us", figure.p99_us}};
}

std::string row(const char* name, const IoFigure& figure) {
  return fmt::format(
      "  {:<8}{:>8.2f} GB/s {:>7.1f} % of {:.2f} GB/s {:>8.1f} ms of CPU per GB {:>9.0f} us p50 {:>9.0f} us p99", name,
      figure.gb_per_s, figure.percent_of_ceiling(), figure.ceiling_gb_per_s, figure.cpu_ms_per_gb, figure.p50_us,
      figure.p99_us);
}

void measure(const IoArguments& arguments) {
  check_room(arguments);
  Console console;
  const MeasuredFolders folders(arguments.options.folders, console.log());
  IoStoreOptions options = arguments.options;
  options.log = console.log();
  options.words = &kBenchIoWords;
  const IoBenchEnd end =
      run_io_bench(options, arguments.rounds, [&](int done, int total) { console.progress(done, total, "measuring"); });
  console.finish_progress();
  if (arguments.record != IoArguments().record && end.record_bytes < arguments.options.record_bytes * 99 / 100) {
    say(options.log, LogLevel::kWarning,
        fmt::format("--record is {}: with --size {} the largest are of {}", arguments.record, arguments.size,
                    format_bytes(end.record_bytes)));
  }
  if (arguments.print == IoArguments::Print::kJson) {
    const Json json = {{"queue", end.queue},
                       {"read", json_of(end.read)},
                       {"write", json_of(end.write)},
                       {"mixed", json_of(end.mixed)}};
    return console.print(json.dump());
  }
  console.print(fmt::format(
      "{} of records of up to {}, requests of up to {}, checksums {}; {}\nmedians of {} rounds; the ceiling is bare "
      "requests on the same files in the same rounds; latencies are those of single requests with up to {} in flight "
      "on each drive",
      format_bytes(arguments.options.size_bytes), format_bytes(end.record_bytes), format_bytes(end.request_bytes),
      arguments.options.verify == Verify::kOn ? "on" : "off", end.queue, arguments.rounds, arguments.options.depth));
  console.print(row("read", end.read));
  console.print(row("write", end.write));
  console.print(row("mixed", end.mixed));
}

// The settings of a configuration that uses what was found.
Json sluice_section(const IoArguments& arguments, const IoSettings& best) {
  Json folders = Json::array();
  for (const fs::path& folder : arguments.options.folders) folders.push_back(folder.string());
  return {{"nvme", folders},
          {"io_backend", std::string(name_of(best.backend))},
          {"io_block", best.block_bytes},
          {"io_depth", best.depth}};
}

void sweep(const IoArguments& arguments) {
  constexpr int64_t kLimitNs = 20'000'000'000;
  check_names(arguments);
  check_sweep_room(arguments);
  Console console;
  const MeasuredFolders folders(arguments.options.folders, console.log());
  const Arena memory(kSweepMemoryBytes * static_cast<int64_t>(arguments.options.folders.size()));
  IoProbeOptions options{.folders = arguments.options.folders,
                         .memory = memory.span(),
                         .scratch_bytes = sweep_file_bytes(arguments),
                         .limit_ns = kLimitNs,
                         .words = &kSweepWords};
  RequestTimes ignored;
  options.make_queue = timed_queue_factory(&ignored, arguments.options.throttle);
  std::vector<IoBackend> backends = {IoBackend::kUring, IoBackend::kThreads};
  if (arguments.options.backend != IoBackend::kAuto) backends = {arguments.options.backend};
  for (const IoBackend backend : backends) {
    for (const int64_t block : {kMiB, 256 * kKiB, 512 * kKiB, 2 * kMiB, 4 * kMiB}) {
      for (const int depth : {64, 32, 16, 8, 4}) {
        if (block * depth > kSweepMemoryBytes) continue;  // would run with fewer in flight than it says
        options.candidates.push_back({.backend = backend, .block_bytes = block, .depth = depth});
      }
    }
  }
  const IoProbe probe = probe_io(options);
  const Json section = {{"sluice", sluice_section(arguments, probe.trials[probe.best].settings)}};
  if (arguments.print == IoArguments::Print::kJson) {
    Json trials = Json::array();
    for (const IoTrial& trial : probe.trials) {
      trials.push_back({{"backend", std::string(name_of(trial.settings.backend))},
                        {"block", trial.settings.block_bytes},
                        {"depth", trial.settings.depth},
                        {"read_gb_per_s", trial.speed.read_gb_per_s},
                        {"write_gb_per_s", trial.speed.write_gb_per_s}});
    }
    Json json = section;
    json["sweep"] = trials;
    return console.print(json.dump());
  }
  for (size_t i = 0; i < probe.trials.size(); ++i)
    console.print(fmt::format("{} {}", i == probe.best ? "*" : " ", describe(probe.trials[i])));
  console.print("\nIn the configuration:\n" + section.dump(2));
}

void run(IoArguments& arguments) {
  read_options(arguments);
  if (arguments.task == IoArguments::Task::kSweep) return sweep(arguments);
  measure(arguments);
}

}  // namespace

void add_bench_io(CLI::App& bench) {
  auto arguments = std::make_shared<IoArguments>();
  IoStoreOptions& options = arguments->options;
  CLI::App* io = bench.add_subcommand("io", "The store that training uses, beside bare requests on the same files");
  io->add_option(
        "--path", arguments->path,
        "Folders, one for each drive; twice --size is taken and given back (by --sweep a quarter of it on each "
        "drive, 32MiB to 512MiB)")
      ->required()
      ->type_name("FOLDER[,FOLDER...]")
      ->check(check_folders);
  io->add_option("--size", arguments->size, "Bytes of all records")->capture_default_str();
  CLI::Option* const record =
      io->add_option("--record", arguments->record, "Bytes of the largest record")->capture_default_str();
  CLI::Option* const block =
      io->add_option("--block", arguments->block, "Bytes of a request at the most")->capture_default_str();
  CLI::Option* const depth = io->add_option("--depth", options.depth, "Requests in flight, for each drive")
                                 ->check(whole_number(1, kMaxQueueDepth))
                                 ->capture_default_str();
  CLI::Option* const pattern = add_choice<IoPattern>(
      *io,
      {"--pattern",
       "sequential: records of one size in file order. chunks: of the sizes that a model gives (default). mixed: these "
       "in random order, reads and writes together"},
      options.pattern,
      {{"sequential", IoPattern::kSequential}, {"chunks", IoPattern::kChunks}, {"mixed", IoPattern::kMixed}});
  add_choice<IoBackend>(*io, {"--backend", "auto, uring or threads (default: auto)"}, options.backend,
                        {{"auto", IoBackend::kAuto}, {"uring", IoBackend::kUring}, {"threads", IoBackend::kThreads}});
  CLI::Option* const verify = add_choice<Verify>(*io, {"--verify", "Checksums as in training (default: on)"},
                                                 options.verify, {{"on", Verify::kOn}, {"off", Verify::kOff}});
  CLI::Option* const rounds = io->add_option("--rounds", arguments->rounds, "Of which the median is taken")
                                  ->check(whole_number(1, 1000))
                                  ->capture_default_str();
  io->add_option("--throttle", options.throttle.gb_per_s,
                 "GB/s for each drive at the most, 0.001 and more (0: no limit): plays a slower one")
      ->delimiter(',')
      ->check(check_throttle);
  CLI::Option* const sweeps = io->add_flag_callback(
      "--sweep", [arguments] { arguments->task = IoArguments::Task::kSweep; },
      "Find the best backend, block and depth with bare requests, and print the configuration that uses them");
  for (CLI::Option* const of_the_store : {record, block, depth, pattern, verify, rounds})
    sweeps->excludes(of_the_store);
  io->add_flag_callback(
      "--json", [arguments] { arguments->print = IoArguments::Print::kJson; }, "One JSON object in place of the text");
  io->callback([arguments] { run(*arguments); });
}

}  // namespace sluice
