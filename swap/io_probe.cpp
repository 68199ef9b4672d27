#include "swap/io_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "core/bytes.h"
#include "core/errors.h"
#include "core/median.h"
#include "swap/bare_io.h"

namespace sluice {
namespace {

constexpr double kWorthChanging = 1.05;
constexpr int kRounds = 3;

// What the rounds gave for one candidate; nothing where it could not be tried.
struct Figures {
  IoSettings settings;
  std::vector<double> read, write;
};

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

// All candidates in turn, again and again: what disturbs the machine for a while meets all of them.
class Rounds {
 public:
  explicit Rounds(const IoProbeOptions& options) : options_(options), begin_ns_(options.clock()) {
    SLUICE_CHECK(!options.folders.empty(), "a probe without a drive");
    for (const std::filesystem::path& folder : options.folders)
      files_.emplace_back(folder, options.scratch_bytes, *options.words);
    const auto memory_bytes = static_cast<int64_t>(options.memory.size());
    const int64_t most_block_bytes =
        std::min(options.scratch_bytes, memory_bytes / static_cast<int64_t>(files_.size()));
    for (const IoSettings& with : options.candidates) {
      SLUICE_CHECK(with.block_bytes > 0, "a candidate whose requests have no bytes");
      if (with.block_bytes <= most_block_bytes) figures_.push_back({.settings = with, .read = {}, .write = {}});
    }
    const int64_t passes = 2 * kRounds * static_cast<int64_t>(figures_.size()) + 1;
    pass_ns_ = options.limit_ns / 3 * 2 / passes;  // the rest is for what is in flight at a pass's end, and for queues
  }

  std::vector<IoTrial> run() {
    round();
    std::erase_if(figures_, [](const Figures& each) { return each.read.empty(); });
    if (figures_.empty()) refuse(options_, refused_);
    for (int rounds = 1; rounds < kRounds && has_time_after(rounds); ++rounds) round();
    std::vector<IoTrial> trials;
    for (const Figures& each : figures_) {
      trials.push_back({.settings = each.settings,
                        .speed = {.read_gb_per_s = median(each.read), .write_gb_per_s = median(each.write)}});
    }
    return trials;
  }

 private:
  // For one more like those before.
  bool has_time_after(int rounds) const {
    const int64_t passed_ns = options_.clock() - begin_ns_;
    return passed_ns + passed_ns / rounds <= options_.limit_ns;
  }

  void round() {
    const int64_t whole = options_.scratch_bytes * static_cast<int64_t>(files_.size());
    const Pass pass{.bytes = 2 * whole, .limit_ns = pass_ns_};
    for (Figures& each : figures_) {
      std::unique_ptr<IoQueue> queue;
      try {
        queue = options_.make_queue(for_drives({.backend = each.settings.backend,
                                                .depth = each.settings.depth,
                                                .memory = {options_.memory},
                                                .log = {},
                                                .words = options_.words},
                                               static_cast<int>(files_.size())));
      } catch (const IoError&) {  // what an earlier round gave stays
        if (!refused_) refused_ = std::current_exception();
        continue;
      }
      // The first write of a block costs more than the next ones, and what was never written is read without the drive.
      if (!is_warm_) move(*queue, each.settings, BareOp::kWrite, {.bytes = whole, .limit_ns = INT64_MAX});
      is_warm_ = true;
      each.write.push_back(move(*queue, each.settings, BareOp::kWrite, pass));
      each.read.push_back(move(*queue, each.settings, BareOp::kRead, pass));
    }
  }

  struct Pass {
    int64_t bytes = 0, limit_ns = 0;
  };
  double move(IoQueue& queue, const IoSettings& with, BareOp op, Pass pass) const {
    BareRun run{.op = op,
                .bytes = pass.bytes,
                .block_bytes = with.block_bytes,
                .depth = with.depth,
                .memory = options_.memory,
                .limit_ns = pass.limit_ns,
                .clock = options_.clock};
    for (const ScratchFile& file : files_) run.ranges.push_back(file.whole());
    return run_bare(queue, run).gb_per_s();
  }

  const IoProbeOptions& options_;
  int64_t begin_ns_, pass_ns_ = 0;
  std::vector<ScratchFile> files_;
  std::vector<Figures> figures_;
  std::exception_ptr refused_;  // by the first backend that cannot be had here
  bool is_warm_ = false;
};

}  // namespace

IoProbe probe_io(const IoProbeOptions& options) {
  IoProbe probe{.trials = Rounds(options).run()};
  double bar = kWorthChanging * probe.trials.front().speed.both_gb_per_s();
  for (size_t i = 1; i < probe.trials.size(); ++i) {
    if (probe.trials[i].speed.both_gb_per_s() <= bar) continue;
    bar = probe.trials[i].speed.both_gb_per_s();
    probe.best = i;
  }
  return probe;
}

std::string describe(const IoTrial& trial) {
  return fmt::format("{}, blocks of {}, depth {}: reads {:.2f}, writes {:.2f} GB/s",
                     trial.settings.backend == IoBackend::kThreads ? "threads" : "io_uring",
                     format_bytes(trial.settings.block_bytes), trial.settings.depth, trial.speed.read_gb_per_s,
                     trial.speed.write_gb_per_s);
}

}  // namespace sluice
