#include "app/tune_trials.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/free_space.h"
#include "app/scratch_run.h"
#include "core/bytes.h"
#include "core/clock.h"
#include "core/interval_steps.h"
#include "core/median.h"
#include "engine/speculation.h"

namespace sluice {
namespace {

constexpr double kWorth = 1.02;  // how much faster a change must make steps

double creation_ms(const Trial& trial) {
  return static_cast<double>(trial.disk_bytes) / trial.plan.speeds.value().machine.write_gb_per_s / 1e6;
}
int steps_of_round(const Trial& trial, const TrialOptions& options) {
  const int at_once = steps_to_measure(trial.commit_interval);
  return trial.filling_steps + (options.steps + at_once - 1) / at_once * at_once;
}
double once_ms(const Trial& trial, const TrialOptions& options) {
  return creation_ms(trial) + steps_of_round(trial, options) * trial.candidate.step_ms;
}

class Trials {
 public:
  Trials(const TrialOptions& options, Console& console, double total_ms)
      : options_(options), console_(console), total_ms_(total_ms) {}

  void run(Trial& trial, const Log& log, const std::string& words) {
    EngineOptions engine = engine_options(*trial.setup, trial.plan, options_.drives, log);
    engine.made_plan = trial.made_plan;
    engine.max_norm = 0;
    engine.loss_scale = {};
    engine.store.make_queue = options_.make_queue;
    ScratchRun run(*trial.setup, std::move(engine),
                   trial.setup->model.initial_values(trial.setup->config.seed_or_default()),
                   [&](int64_t done, int64_t total) {
                     tell(creation_ms(trial) * static_cast<double>(done) / static_cast<double>(total), words);
                   });
    if (!trial.made_plan) trial.made_plan = {trial.plan, run.engine().plan()};
    done_ms_ += creation_ms(trial);
    const Compute compute = trial.setup->model.compute(options_.tokens);
    const auto steps_ms = [&](int count) {
      IntervalSteps ms;
      for (int step = 0; step < count; ++step) {
        tell(0, words);
        const int64_t committed = run.engine().committed().step, began = now_ns();
        run.engine().train_step(trial.setup->config.optimizer.learning_rate, compute);
        const double step_ms = static_cast<double>(now_ns() - began) / 1e6;
        (run.engine().committed().step != committed ? ms.committing : ms.others).push_back(step_ms);
        done_ms_ += trial.candidate.step_ms;
      }
      return ms;
    };
    steps_ms(trial.filling_steps);
    const int interval = trial.commit_interval, at_once = steps_to_measure(interval);
    for (int step = 0; step < options_.steps; step += at_once) {
      if (at_once < interval) run.engine().commit_beside_next_step();
      trial.steps_ms.push_back(steps_ms(at_once).mean(interval));
    }
  }

 private:
  void tell(double beyond_ms, const std::string& words) const {
    if (options_.between) options_.between();
    console_.progress(static_cast<int64_t>(done_ms_ + beyond_ms), static_cast<int64_t>(total_ms_), words);
  }

  const TrialOptions& options_;
  Console& console_;
  double total_ms_ = 0, done_ms_ = 0;
};

}  // namespace

double Trial::measured_ms() const { return median(steps_ms); }

Trial make_trial(const TuneCandidate& candidate, RunSetup& setup, const PlanOptions& plan) {
  const Plan made = make_plan(setup.model.spec(), plan);
  Trial trial{.candidate = candidate,
              .setup = &setup,
              .plan = plan,
              .made_plan = {},
              .chunk_elements = made.geometry.chunk_elements(),
              .disk_bytes = made.disk_bytes,
              .needs = drive_needs(made),
              .commit_interval = made.commit_interval,
              .filling_steps = kFillingSteps,
              .steps_ms = {}};
  trial.plan.chunk_elements = trial.chunk_elements;  // what is derived depends on what is predicted, and so on `update`
  if (plan.update != UpdateMode::kAuto || !made.any_speculated()) return trial;
  // "auto" comes to early updates after a run's first steps, which with a commit in every step need not be waited for.
  if (made.commit_interval == 1) {
    trial.plan.update = UpdateMode::kSpeculative;
  } else {
    trial.filling_steps += Speculation::kFirst;
  }
  return trial;
}

std::string steps_of_round_words(const std::vector<Trial>& trials, const TrialOptions& options) {
  const auto steps = [&](const Trial& trial) { return steps_of_round(trial, options); };
  const auto [least, most] = std::ranges::minmax_element(trials, {}, steps);
  return fmt::format("{}{} steps", steps(*least) == steps(*most) ? "" : "up to ", steps(*most));
}

double predicted_seconds(const std::vector<Trial>& trials, const TrialOptions& options) {
  double ms = 0;
  for (const Trial& trial : trials) ms += options.rounds * once_ms(trial, options);
  return ms / 1e3;
}

void run_trials(std::vector<Trial>& trials, const TrialOptions& options, Console& console) {
  Trials all(options, console, predicted_seconds(trials, options) * 1e3);
  for (int round = 0; round < options.rounds; ++round) {
    const Log log = round == 0 ? console.log() : Log{};
    for (size_t i = 0; i < trials.size(); ++i) {
      const std::string words =
          fmt::format("round {}/{}, candidate {}/{}", round + 1, options.rounds, i + 1, trials.size());
      all.run(trials[i], log, words);
    }
  }
  console.finish_progress();
}

const Trial& choose(const std::vector<Trial>& trials) {
  const auto with_handicap_ms = [](const Trial& trial) {
    return trial.measured_ms() * (trial.is_given() ? 1 : kWorth) * (trial.changes_bits() ? kWorth : 1);
  };
  return *std::min_element(trials.begin(), trials.end(),
                           [&](const Trial& a, const Trial& b) { return with_handicap_ms(a) < with_handicap_ms(b); });
}

}  // namespace sluice
