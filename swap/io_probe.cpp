#include "swap/io_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "core/bytes.h"
#include "core/errors.h"
#include "swap/bare_io.h"

namespace sluice {
namespace {

constexpr double kWorthChanging = 1.05;

// One direction of one trial.
struct Pass {
  IoOp op;
  int64_t limit_ns;
};

double move(IoQueue& queue, std::span<const ScratchFile> files, const IoProbeOptions& options, const IoSettings& with,
            Pass pass) {
  BareRun run{.op = pass.op == IoOp::kRead ? BareOp::kRead : BareOp::kWrite,
              .bytes = 2 * options.scratch_bytes * static_cast<int64_t>(files.size()),
              .block_bytes = with.block_bytes,
              .depth = with.depth,
              .memory = options.memory,
              .limit_ns = pass.limit_ns};
  for (const ScratchFile& file : files) run.ranges.push_back(file.whole());
  return run_bare(queue, run).gb_per_s();
}

IoTrial try_settings(IoQueue& queue, std::span<const ScratchFile> files, const IoProbeOptions& options,
                     const IoSettings& with, int64_t limit_ns) {
  IoTrial trial{.settings = with};
  trial.write_gb_per_s = move(queue, files, options, with, {IoOp::kWrite, limit_ns});
  trial.read_gb_per_s = move(queue, files, options, with, {IoOp::kRead, limit_ns});
  return trial;
}

// Where there are no trials: a backend's own words, or that nothing fits.
[[noreturn]] void refuse(const IoProbeOptions& options, const std::exception_ptr& why) {
  if (why) std::rethrow_exception(why);
  throw IoError({.action = "probe of I/O",
                 .path = options.folders.front().string(),
                 .reason = fmt::format("no candidate's block fits: {} of memory for {} drives, {} on each drive",
                                       format_bytes(static_cast<int64_t>(options.memory.size())),
                                       options.folders.size(), format_bytes(options.scratch_bytes)),
                 .advice = "try smaller blocks, or give more memory"});
}

}  // namespace

IoProbe probe_io(const IoProbeOptions& options) {
  std::vector<ScratchFile> files;
  files.reserve(options.folders.size());
  for (const std::filesystem::path& folder : options.folders) files.emplace_back(folder, options.scratch_bytes);
  const int64_t most_block_bytes =
      std::min(options.scratch_bytes, static_cast<int64_t>(options.memory.size()) / static_cast<int64_t>(files.size()));
  IoProbe probe;
  const int64_t passes = 2 * static_cast<int64_t>(options.candidates.size()) + 1;
  const int64_t limit_ns = options.limit_ns / passes;
  std::exception_ptr refused;  // by the first backend that cannot be had here
  for (const IoSettings& with : options.candidates) {
    if (with.block_bytes > most_block_bytes) continue;
    std::unique_ptr<IoQueue> queue;
    try {
      queue = options.make_queue(
          for_drives({.backend = with.backend, .depth = with.depth, .memory = {options.memory}, .log = {}},
                     static_cast<int>(files.size())));
    } catch (const IoError&) {
      if (!refused) refused = std::current_exception();
      continue;
    }
    // The first write of a block costs more than the next ones.
    if (probe.trials.empty()) try_settings(*queue, files, options, with, limit_ns / 2);
    probe.trials.push_back(try_settings(*queue, files, options, with, limit_ns));
  }
  if (probe.trials.empty()) refuse(options, refused);
  for (size_t i = 1; i < probe.trials.size(); ++i) {
    const double bar = probe.trials[probe.best].both_gb_per_s() * (probe.best == 0 ? kWorthChanging : 1);
    if (probe.trials[i].both_gb_per_s() > bar) probe.best = i;
  }
  return probe;
}

std::string describe(const IoTrial& trial) {
  return fmt::format("{}, blocks of {}, depth {}: reads {:.2f}, writes {:.2f} GB/s",
                     trial.settings.backend == IoBackend::kThreads ? "threads" : "io_uring",
                     format_bytes(trial.settings.block_bytes), trial.settings.depth, trial.read_gb_per_s,
                     trial.write_gb_per_s);
}

}  // namespace sluice
