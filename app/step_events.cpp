#include "app/step_events.h"

#include <fmt/format.h>

#include <vector>

#include "core/errors.h"

namespace sluice {

StepEvents::StepEvents(const RunConfig& config, int64_t first_step, const Log& log)
    : samples_(config.batch.train), precision_(config.precision), log_(log) {
  if (config.tensorboard.empty()) return;
  file_.emplace(config.tensorboard);
  say(log_, LogLevel::kInfo, fmt::format("for tensorboard: {}", file_->path().string()));
  if (first_step > 0) file_->begin_again_at((first_step + 1) * samples_);
}

// DeepSpeedEngine._write_monitor (deepspeed/runtime/engine.py) has the first two, and the last.
void StepEvents::add(const StepMetrics& metrics) {
  if (!file_) return;
  std::vector<EventScalar> scalars = {{"Train/Samples/train_loss", metrics.end.loss},
                                      {"Train/Samples/lr", metrics.learning_rate},
                                      {"Train/Samples/grad_norm", metrics.end.grad_norm},
                                      {"Train/Samples/samples_per_s", metrics.samples_per_s}};
  if (precision_ == Precision::kFp16) scalars.push_back({"Train/Samples/loss_scale", metrics.end.loss_scale});
  try {
    file_->add(metrics.end.step * samples_, scalars);
  } catch (const IoError& error) {
    say(log_, LogLevel::kWarning, fmt::format("no more is written for tensorboard: {}", error.what()));
    file_.reset();
  }
}

}  // namespace sluice
