// The steps of a run whose engine and folder are there: each is trained, written down and told.
#pragma once
#include <cstdint>
#include <functional>

#include "app/batches.h"
#include "app/carried.h"
#include "app/console.h"
#include "app/metrics.h"
#include "app/run_folder.h"
#include "app/setup.h"
#include "app/signals.h"
#include "app/step_events.h"
#include "app/step_predictions.h"
#include "core/clock.h"
#include "data/dataset.h"
#include "data/sample_order.h"
#include "engine/engine.h"

namespace sluice {

// All must outlive the loop.
struct LoopedRun {
  RunSetup& setup;
  const RunFolder& folder;
  const Dataset& data;
  const SampleOrder& order;
};

// One thread.
class StepLoop {
 public:
  // kPaced: rare ones come earlier where steps take longer than was predicted (app/commit_pace.h).
  enum class Commits : uint8_t { kAsPlanned, kPaced };
  struct Options {
    int64_t steps = 0;  // of the run: with it the loop ends
    Commits commits = Commits::kAsPlanned;
    Carried carried;  // with each commit
    StepPredictions predictions;
    Clock clock = now_ns;  // for when rare commits are due
  };
  // Goes on with the folder's metrics.jsonl, and with the events that the configuration asks for, from the step where
  // the engine is. Engine and console must outlive it. Throws IoError.
  StepLoop(Engine& engine, const LoopedRun& run, Options options, Console& console);

  // Until the last step, or that in which a signal came, is committed: returns the signal, or 0. Throws what the engine
  // throws, and IoError where no line can be written: the last step is committed then.
  int train(const StopRequests& requests);

  int64_t first_step() const { return first_step_; }  // the last one that others have trained
  MetricsFile& metrics() { return metrics_; }
  // Of the steps of a train() that no signal has ended.
  double seconds() const { return static_cast<double>(ended_ns_ - began_ns_) / 1e9; }
  int64_t written_bytes() const { return written_bytes_; }  // to the drives

 private:
  StepMetrics one_step(Batches& batches);
  void report(const StepMetrics& metrics);
  void write_or_commit(const std::function<void()>& write);
  const BatchConfig& batch() const { return run_.setup.config.batch; }
  int64_t tokens_per_step() const { return batch().train * run_.setup.config.data.sequence_length; }

  Engine& engine_;
  const LoopedRun run_;
  Options options_;
  Console& console_;
  const int64_t first_step_;
  MetricsFile metrics_;
  StepEvents events_;
  int64_t began_ns_ = 0, ended_ns_ = 0, written_bytes_ = 0;
};

}  // namespace sluice
