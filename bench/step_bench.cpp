#include "bench/step_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "bench/step_ceilings.h"
#include "core/clock.h"
#include "core/interval_steps.h"
#include "core/median.h"
#include "engine/speculation.h"

namespace sluice {
namespace {

class StepBench {
 public:
  StepBench(Engine& engine, const EngineOptions& options, const Compute& compute, const StepBenchOptions& bench)
      : engine_(engine), options_(options), compute_(compute), bench_(bench), ceilings_(options, engine.plan()) {}

  StepFigures run() {
    for (int step = 0; step < settling_steps(); ++step) one_step();
    for (int round = 0; round < bench_.rounds; ++round) {
      for (int step = 0; step < kFillingSteps; ++step) one_step();
      const int at_once = steps_to_measure(engine_.plan().commit_interval);
      for (int step = 0; step < bench_.steps; step += at_once) measure_interval();
      for (int resource = 0; resource < kLaneGroupCount; ++resource) replay(static_cast<LaneGroup>(resource));
    }
    return finished();
  }

 private:
  // Until `auto` has seen the steps from which it chooses when chunks are updated.
  int settling_steps() const {
    const bool chooses = options_.plan.update == UpdateMode::kAuto && engine_.plan().any_speculated();
    return chooses ? Speculation::kWindow : 0;
  }

  void measure_interval() {
    const int interval = engine_.plan().commit_interval, steps = steps_to_measure(interval);
    IntervalSteps ms;
    std::array<IntervalSteps, kLaneCount> exposed_ms;
    if (steps < interval) engine_.commit_beside_next_step();
    for (int step = 0; step < steps; ++step) {
      const int64_t committed = engine_.committed().step;
      const double step_ms = one_step();
      const auto part = engine_.committed().step != committed ? &IntervalSteps::committing : &IntervalSteps::others;
      (ms.*part).push_back(step_ms);
      for (size_t lane = 0; lane < kLaneCount; ++lane) {
        (exposed_ms[lane].*part).push_back(engine_.last_lanes().uses[lane].exposed_ms);
      }
      ++figures_.measured_steps;
      if (end_.speculated != Speculated::kNone) ++figures_.early_steps;
      if (end_.speculated == Speculated::kWrong) ++figures_.wrong_steps;
      if (end_.skipped) {
        ++figures_.skipped_steps;
      } else if (options_.max_norm > 0 && end_.grad_norm > options_.max_norm) {
        ++figures_.clipped_steps;
      }
    }
    figures_.steps_ms.push_back(ms.mean(interval));
    for (size_t lane = 0; lane < kLaneCount; ++lane) {
      exposed_ms_[lane].push_back(exposed_ms[lane].mean(interval));
    }
  }

  double one_step() {
    if (bench_.between) bench_.between();
    const int64_t begin = now_ns();
    end_ = engine_.train_step(bench_.learning_rate, compute_);
    if (!end_.skipped) figures_.grad_norm = end_.grad_norm;
    return static_cast<double>(now_ns() - begin) / 1e6;
  }

  // Short ones several times: what else the machine does for a moment would be most of one.
  void replay(LaneGroup resource) {
    constexpr int kMost = 5;
    constexpr double kEnoughMs = 500;
    double ms = 0;
    for (int i = 0; i < kMost && ms < kEnoughMs; ++i) ms += replay_once(resource);
  }

  double replay_once(LaneGroup resource) {
    if (bench_.between) bench_.between();
    const auto which = static_cast<size_t>(resource);
    const Replay end = engine_.replay(resource, compute_);
    figures_.replays[which].lanes = end.lanes;
    replays_ms_[which].push_back(end.ms);
    ceilings_ms_[which].push_back(ceilings_.ms(resource, end));
    return end.ms;
  }

  StepFigures finished() {
    std::sort(figures_.steps_ms.begin(), figures_.steps_ms.end());
    figures_.step_ms = median(figures_.steps_ms);
    figures_.commit_interval = engine_.plan().commit_interval;
    for (size_t lane = 0; lane < kLaneCount; ++lane) figures_.exposed_ms[lane] = median(exposed_ms_[lane]);
    const bool again = 2 * figures_.wrong_steps > figures_.measured_steps;
    if (again && options_.plan.update == UpdateMode::kReplay) figures_.passes = 2;
    for (size_t which = 0; which < figures_.replays.size(); ++which) {
      ReplayFigure& figure = figures_.replays[which];
      figure.ms = figures_.passes * median(replays_ms_[which]);
      figure.ceiling_ms = figures_.passes * median(ceilings_ms_[which]);
      if (figures_.passes == 2) figure.lanes += StepLanes(figure.lanes);
      if (figure.ms > figures_.replays[static_cast<size_t>(figures_.binding)].ms) {
        figures_.binding = static_cast<LaneGroup>(which);
      }
    }
    figures_.overlap_efficiency = figures_.replays[static_cast<size_t>(figures_.binding)].ms / figures_.step_ms;
    return std::move(figures_);
  }

  Engine& engine_;
  const EngineOptions& options_;
  const Compute& compute_;
  const StepBenchOptions& bench_;
  StepCeilings ceilings_;
  StepFigures figures_;
  StepEnd end_;  // of the last step
  std::array<std::vector<double>, kLaneGroupCount> replays_ms_, ceilings_ms_;
  std::array<std::vector<double>, kLaneCount> exposed_ms_;
};

}  // namespace

int steps_to_measure(int interval) { return std::min(interval, kCommitRarely); }

StepFigures bench_step(Engine& engine, const EngineOptions& options, const Compute& compute,
                       const StepBenchOptions& bench) {
  return StepBench(engine, options, compute, bench).run();
}

Compute waiting_compute(const ModelSpec& model, double ms_per_visit) {
  size_t parameters = 0;
  for (const PartitionSpec& partition : model.partitions) parameters += partition.parameters.size();
  const double value = kWaitingNorm / std::sqrt(static_cast<double>(parameters));
  const int last = static_cast<int>(model.visits.size()) - 1;
  return [=](Use& use) {
    const bool backward = use.pass() == Pass::kBackward;
    const double times = !backward ? 1 : use.visit() == last ? 4 : 3;
    const auto until =
        std::chrono::steady_clock::now() + std::chrono::duration<double, std::milli>(ms_per_visit * times);
    if (backward) {
      const auto scaled = static_cast<float>(value * use.loss_scale());
      for (size_t i = 0; i < use.weights().size(); ++i) use.open_gradient(static_cast<int>(i))[0] += scaled;
    }
    std::this_thread::sleep_until(until);
  };
}

}  // namespace sluice
