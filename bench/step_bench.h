// A whole step against its resources alone: how well the lanes overlap.
//
// Rounds of: a few steps to fill the pipeline, some measured ones, then every resource's hops replayed alone
// (Engine::replay), each beside what the machine reaches with the same work (StepCeilings). Medians over all rounds.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "engine/engine.h"

namespace sluice {

// The unit before a steady one leaves it an update to apply and the first reads done; two units write both slots of
// every record once, so that no measured write meets an extent that was never written.
constexpr int kFillingSteps = 2;

// How many steps to measure for the mean of a step: an interval's, or where that is longer kCommitRarely, with a commit
// that is asked for.
int steps_to_measure(int interval);

struct StepBenchOptions {
  double learning_rate = 1e-4;
  int rounds = 3, steps = 3;      // measured steps a round, up to a whole commit interval
  std::function<void()> between;  // called between steps and replays; what it throws ends the benchmark
};

struct ReplayFigure {
  double ms = 0;
  double ceiling_ms = 0;  // 0: none
  StepLanes lanes;
};
struct StepFigures {
  // Sorted: of each step, or where commits are rare the mean over each interval (IntervalSteps). Replays have a
  // commit where every step has one.
  std::vector<double> steps_ms;
  double step_ms = 0;  // their median
  int measured_steps = 0, commit_interval = 1;
  // Of each lane, while nothing was computed: medians, as step_ms. Compute's is 0.
  std::array<double, kLaneCount> exposed_ms{};
  std::array<ReplayFigure, kLaneGroupCount> replays;
  LaneGroup binding = LaneGroup::kCompute;  // the longest replay
  double overlap_efficiency = 0;            // longest replay / step
  double grad_norm = 0;                     // of the last step that was not skipped; 0: there is none
  int clipped_steps = 0;                    // of the measured ones
  int skipped_steps = 0;                    // of them: a gradient was not finite, nothing was updated
  int early_steps = 0;                      // of them: with updates in the backward
  int wrong_steps = 0;                      // of them: whose early updates were undone
  int passes = 1;                           // 2: most steps ran again (UpdateMode::kReplay); replays count twice
};
// `options` are those that the engine was made with.
StepFigures bench_step(Engine& engine, const EngineOptions& options, const Compute& compute,
                       const StepBenchOptions& bench);

// Compute that waits, using no CPU: a visit's forward X ms for each micro-batch, its backward 3 X, the last visit 4 X.
// Its gradients are zero but for one element of every parameter; their norm is kWaitingNorm, with any number of
// micro-batches and any loss scale, and a little more where several visits use one partition.
constexpr double kWaitingNorm = 0.1;
Compute waiting_compute(const ModelSpec& model, double ms_per_visit);

}  // namespace sluice
