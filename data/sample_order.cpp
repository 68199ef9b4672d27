#include "data/sample_order.h"

#include <fmt/format.h>

#include <bit>

#include "core/errors.h"
#include "core/random.h"

namespace sluice {

namespace {

constexpr uint32_t kFeistelRounds = 8;
constexpr uint32_t kPurpose = 0x73687566;  // keeps these numbers apart from other uses of the same seed

}  // namespace

int64_t permuted_index(int64_t index, int64_t count, uint64_t seed, uint64_t round) {
  SLUICE_CHECK(index >= 0 && index < count, "an index of the permutation");
  // Two halves of `half_bits`: the smallest such square that holds `count`, at most 4 x count + 3 wide, so the walk
  // below takes a few turns on average.
  const int bits = std::bit_width(static_cast<uint64_t>(count - 1));
  const int half_bits = (bits + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t value = static_cast<uint64_t>(index);
  do {
    uint64_t left = value >> half_bits, right = value & mask;
    for (uint32_t i = 0; i < kFeistelRounds; ++i) {
      const auto noise = philox4x32({static_cast<uint32_t>(right), static_cast<uint32_t>(round),
                                     static_cast<uint32_t>(round >> 32), kPurpose + i},
                                    {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
      const uint64_t mixed = left ^ (noise[0] & mask);
      left = right;
      right = mixed;
    }
    value = (left << half_bits) | right;
  } while (value >= static_cast<uint64_t>(count));
  return static_cast<int64_t>(value);
}

SampleOrder::SampleOrder(const Options& options) : options_(options) {
  SLUICE_CHECK(options.batch_size > 0, "a batch has samples");
  if (options.samples < options.batch_size) {
    throw ConfigError(
        fmt::format("the text holds {} training samples, fewer than one batch of {}: take more text, a "
                    "shorter data.sequence_length or a smaller train_batch_size",
                    options.samples, options.batch_size));
  }
}

int64_t SampleOrder::sample_at(int64_t position) const {
  const int64_t index = position % samples_per_epoch();
  if (options_.shuffle == Shuffle::kNo) return index;
  return permuted_index(index, options_.samples, options_.seed, static_cast<uint64_t>(epoch_of(position)));
}

}  // namespace sluice
