#include "core/stochastic_rounding.h"

#include "core/random.h"

namespace sluice {

uint32_t rounding_key(uint64_t seed, int64_t t) {
  const auto step = static_cast<uint64_t>(t);
  return philox4x32({static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32), 0, 0},
                    {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)})[0];
}

}  // namespace sluice
