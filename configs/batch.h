// The equation of batch sizes.
#pragma once
#include <string>

#include "configs/run_config.h"

namespace sluice {

// Fills in what is 0 from train_batch_size = micro x accumulation x ranks (one rank). With only the train or the micro
// size given, accumulation is 1. Throws ConfigError with the equation where it cannot hold, or where nothing is given.
void derive_batch(BatchConfig& batch, const std::string& name);

}  // namespace sluice
