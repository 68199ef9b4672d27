#include "data/unigram.h"

#include <cmath>

namespace sluice {

double unigram_nats(std::span<const int64_t> counts) {
  double total = 0;
  for (const int64_t count : counts) total += static_cast<double>(count);
  double nats = 0;
  for (const int64_t count : counts) {
    if (count > 0) nats -= static_cast<double>(count) / total * std::log(static_cast<double>(count) / total);
  }
  return nats;
}

}  // namespace sluice
