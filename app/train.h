// `sluice train`: a run from its configuration to its last step.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/console.h"
#include "core/clock.h"
#include "engine/engine.h"
#include "swap/io_queue.h"

namespace sluice {

struct TrainOptions {
  std::string config;
  std::vector<std::string> overrides;  // --set
  std::optional<std::string> data;
  std::optional<int64_t> steps;  // from the start of the run; not given: one epoch
  std::string out;               // empty: runs/<name of the configuration>
  OpenMode open = OpenMode::kCreate;
  std::optional<int64_t> from_step;  // to go on from, with OpenMode::kResume; not given: the last committed one
  std::optional<uint64_t> seed;
  std::string machine;  // --machine; empty: this one is measured
  std::string trace;    // file of the trace of hops, in place of sluice.trace; empty: as configured
  std::string sample;   // a prompt to continue at the end; empty: none
  int64_t sample_tokens = 96;
  IoQueueFactory make_queue = make_io_queue;  // tests wrap a real one
  Clock clock = now_ns;                       // for when rare commits are due
};

struct TrainEnd {
  int64_t step = 0;
  int signal = 0;  // that stopped the run; 0: all steps are done
  // kBeforeAStep: a store that goes on is as it was, and of a new one nothing is left.
  enum class Stopped : uint8_t { kAfterStep, kBeforeAStep } stopped = Stopped::kAfterStep;  // kAfterStep: committed
  Digests digests;
};

// Throws what the layers below throw. Handles SIGINT, SIGTERM and SIGHUP from the store's making to the last step.
TrainEnd run_training(const TrainOptions& options, Console& console);

}  // namespace sluice
