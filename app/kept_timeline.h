// One step's lanes as a timeline, kept in the run's folder for its report.
#pragma once
#include <cstdint>
#include <filesystem>

#include "core/log.h"
#include "engine/engine.h"

namespace sluice {

class KeptTimeline {
 public:
  KeptTimeline(std::filesystem::path file, Log log) : file_(std::move(file)), log_(std::move(log)) {}

  // After the process's step of this number, from 1: of the first steps each takes the place of the one before, until
  // one in the middle of training is there, then the 10th's does, the 100th's ... A failure is warned of: a report is
  // not worth a run.
  void after_step(const Engine& engine, int64_t number);

 private:
  std::filesystem::path file_;
  Log log_;
};

}  // namespace sluice
