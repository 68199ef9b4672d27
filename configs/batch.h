// The equation of batch sizes.
#pragma once
#include <cstdint>
#include <string>

#include "configs/run_config.h"

namespace sluice {

// Of a micro-batch, and in a step: beyond any run, and their product fits 64 bits.
constexpr int64_t kMostSamples = 1 << 20, kMostMicroBatches = 1 << 16;

// Fills in what is 0 from train_batch_size = micro x accumulation x ranks (one rank). With only the train or the micro
// size given, accumulation is 1. Throws ConfigError with the equation where it cannot hold, where nothing is given, or
// where the limits above are passed.
void derive_batch(BatchConfig& batch, const std::string& name);

}  // namespace sluice
