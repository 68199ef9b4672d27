#include "configs/batch.h"

#include <fmt/format.h>

#include "core/errors.h"

namespace sluice {
namespace {

std::string word(int64_t count) { return count > 0 ? fmt::format("{}", count) : "auto"; }

[[noreturn]] void refuse(const BatchConfig& batch, const std::string& name, std::string_view why) {
  throw ConfigError(fmt::format(
      "{}: train_batch_size {} = train_micro_batch_size_per_gpu {} x gradient_accumulation_steps {} x 1 rank {}", name,
      word(batch.train), word(batch.micro), word(batch.accumulation), why));
}

}  // namespace

void derive_batch(BatchConfig& batch, const std::string& name) {
  const BatchConfig given = batch;
  if (batch.train == 0 && batch.micro == 0) {
    refuse(given, name, "has no solution: give train_batch_size or train_micro_batch_size_per_gpu");
  }
  if (batch.accumulation == 0 && (batch.train == 0 || batch.micro == 0)) batch.accumulation = 1;
  if (batch.train == 0) batch.train = batch.micro * batch.accumulation;
  if (batch.micro == 0) batch.micro = batch.train / batch.accumulation;
  if (batch.accumulation == 0) batch.accumulation = batch.train / batch.micro;
  if (batch.micro > kMostSamples || batch.accumulation > kMostMicroBatches) {
    refuse(given, name,
           fmt::format("takes {} micro-batches of {}: at most {} of {} are allowed", batch.accumulation, batch.micro,
                       kMostMicroBatches, kMostSamples));
  }
  if (batch.micro * batch.accumulation == batch.train) return;
  const bool all_given = given.train > 0 && given.micro > 0 && given.accumulation > 0;
  refuse(given, name,
         all_given ? fmt::format("does not hold: the right side is {}", batch.micro * batch.accumulation)
                   : "has no solution in whole numbers");
}

}  // namespace sluice
