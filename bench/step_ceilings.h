// What the machine reaches with the work of a step's replays when nothing of the engine is in the way.
#pragma once
#include <cstdint>
#include <memory>

#include "engine/engine.h"

namespace sluice {

class StepCeilings {
 public:
  // Takes 512 MiB of scratch files in the store's folders, or half of what is free there (two requests a drive at the
  // least), and memory of its own, of it up to 64 MiB a drive for requests. `plan` must outlive it.
  StepCeilings(const EngineOptions& options, const Plan& plan);
  ~StepCeilings();

  // Milliseconds for the bytes that a replay has moved, measured now.
  //   kNvme: requests of the store's size, as many under way on each drive as it has (64 MiB at the most), reads and
  //          writes in the replay's proportion; of several drives each takes as many as it can.
  //   kCpu: the update's sweep (checksums, AdamW, checksums) by as many threads, each over memory of its own; a median.
  //   kCopies: memcpy by one thread a direction, through as much memory as the step copies from and to.
  // kCompute has no ceiling, nor has a resource that moved nothing: 0.
  double ms(LaneGroup resource, const Replay& replayed);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
