// What a configuration's "tensorboard" asks for: each step's numbers in an event file, under the names and at the steps
// (samples) that DeepSpeed gives them where it has them.
#pragma once
#include <cstdint>
#include <optional>

#include "app/event_file.h"
#include "app/metrics.h"
#include "configs/run_config.h"
#include "core/log.h"

namespace sluice {

class StepEvents {
 public:
  // Of steps after the first; writes nothing where the configuration names no folder. Throws IoError.
  StepEvents(const RunConfig& config, int64_t first_step, const Log& log);
  // Where it cannot be written a warning says so, and no more is: the run's own lines have these numbers.
  void add(const StepMetrics& metrics);

 private:
  const int64_t samples_;  // of a step
  const Precision precision_;
  const Log log_;
  std::optional<EventFile> file_;
};

}  // namespace sluice
