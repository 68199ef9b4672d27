// Steps on a store that is gone afterwards: what `bench step` and `tune` have in common.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "app/setup.h"
#include "app/signals.h"
#include "bench/scratch_folder.h"

namespace sluice {

// A step's tokens that the model's vocabulary holds, with nothing to learn from them.
class MadeUpTokens {
 public:
  explicit MadeUpTokens(const RunSetup& setup);
  TokenBatches batches() const { return {.ids = ids_, .targets = targets_}; }

 private:
  std::vector<int64_t> ids_, targets_;
};

// An engine and its store, in scratch folders inside those that the options name: never a store that is there. Its
// files have no names any more once they are made, so that nothing stays however the process ends.
class ScratchRun {
 public:
  using Progress = std::function<void(int64_t, int64_t)>;
  // The setup must outlive it, and has the engine's workspace. `progress` is told of the store's chunks as they are
  // made; what it throws passes through. Throws what the engine does.
  ScratchRun(RunSetup& setup, EngineOptions options, const ParameterSource& source, Progress progress);
  ~ScratchRun();  // takes the workspace from the setup again
  ScratchRun(const ScratchRun&) = delete;
  ScratchRun& operator=(const ScratchRun&) = delete;

  Engine& engine() { return *engine_; }
  const EngineOptions& options() const { return options_; }

 private:
  RunSetup& setup_;
  // The last that was made comes first, and goes first: it may lie in what one before it made.
  std::vector<std::unique_ptr<ScratchFolder>> folders_;
  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace sluice
