#include "app/step_loop.h"

#include <fmt/format.h>

#include <utility>

#include "app/commit_pace.h"
#include "app/kept_timeline.h"
#include "app/report.h"
#include "core/errors.h"

namespace sluice {

StepLoop::StepLoop(Engine& engine, const LoopedRun& run, Options options, Console& console)
    : engine_(engine),
      run_(run),
      options_(std::move(options)),
      console_(console),
      first_step_(engine.step()),
      metrics_(run.folder.metrics_file(), first_step_, console.log()),
      events_(run.setup.config, first_step_, console.log()) {}

StepMetrics StepLoop::one_step(Batches& batches) {
  const int64_t began = now_ns();
  const int64_t position = engine_.step() * batch().train;
  const TokenBatches tokens = batches.fill(Batches::Part::kTraining, batch().train,
                                           [&](int64_t j) { return run_.order.sample_at(position + j); });
  StepMetrics metrics;
  const RunConfig& config = run_.setup.config;
  metrics.learning_rate = learning_rate_at(config.schedule, config.optimizer.learning_rate, engine_.applied_steps());
  metrics.end = engine_.train_step(metrics.learning_rate, run_.setup.model.compute(tokens));
  engine_.set_progress(position + batch().train, options_.carried.bytes());
  metrics.lanes = engine_.last_lanes();
  metrics.predicted = options_.predictions.next(metrics.end);
  metrics.device = run_.setup.device;
  metrics.tokens = metrics.end.step * tokens_per_step();
  const double seconds = static_cast<double>(now_ns() - began) / 1e9;
  metrics.step_ms = seconds * 1e3;
  metrics.samples_per_s = static_cast<double>(batch().train) / seconds;
  metrics.tokens_per_s = static_cast<double>(tokens_per_step()) / seconds;
  return metrics;
}

void StepLoop::report(const StepMetrics& metrics) {
  const int64_t step = metrics.end.step, steps = options_.steps;
  console_.progress(step, steps, fmt::format("step {}/{}  loss {:.4f}", step, steps, metrics.end.loss));
  if (step % run_.setup.config.steps_per_print != 0 && step != first_step_ + 1 && step != steps) return;
  const double seconds = static_cast<double>(now_ns() - began_ns_) / 1e9;
  const double average = static_cast<double>((step - first_step_) * batch().train) / seconds;
  say(console_.log(), LogLevel::kInfo,
      step_line(metrics,
                {.steps = steps,
                 .average_samples_per_s = average,
                 .flops_per_token = run_.setup.model.training_flops_per_token()},
                engine_.ledger()));
}

// Where that fails, the steps that were trained are committed before the run ends.
void StepLoop::write_or_commit(const std::function<void()>& write) {
  try {
    write();
  } catch (const Error& error) {
    console_.finish_progress();
    if (engine_.step() > first_step_) {
      say(console_.log(), LogLevel::kError,
          fmt::format("no line can be written: committing step {}, to end there: {}", engine_.step(), error.what()));
      engine_.drain();
    }
    throw;
  }
}

int StepLoop::train(const StopRequests& requests) {
  Batches batches(run_.data, batch().train);
  began_ns_ = now_ns();
  const int64_t written_before_bytes = engine_.written_bytes();
  const bool paced = options_.commits == Commits::kPaced && engine_.plan().commit_interval > kCommitRarely;
  CommitPace pace(options_.clock());
  KeptTimeline timeline(run_.folder.timeline_file(), console_.log());
  while (engine_.step() < options_.steps) {
    if (paced && pace.is_due(options_.clock(), engine_.committed().step)) engine_.commit_beside_next_step();
    write_or_commit([&] { metrics_.make_room(); });  // a step whose line would be lost is not begun
    const StepMetrics metrics = one_step(batches);
    write_or_commit([&] { metrics_.step(metrics, engine_.ledger()); });
    events_.add(metrics);
    report(metrics);
    timeline.after_step(engine_, metrics.end.step - first_step_);
    if (requests.signal() == 0) continue;
    console_.finish_progress();
    say(console_.log(), LogLevel::kInfo, fmt::format("stopping after step {}: committing", metrics.end.step));
    engine_.drain();
    return requests.signal();
  }
  engine_.drain();
  ended_ns_ = now_ns();
  written_bytes_ = engine_.written_bytes() - written_before_bytes;
  console_.finish_progress();
  return 0;
}

}  // namespace sluice
