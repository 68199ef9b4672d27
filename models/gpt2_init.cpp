// Initial values of a GPT-2.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "core/random.h"
#include "models/gpt2.h"

namespace sluice {

ParameterSource Gpt2::initial_values(uint64_t seed) const {
  const double deviation = config().initializer_range;
  const double residual = deviation / std::sqrt(2.0 * static_cast<double>(config().n_layer));
  return tiles().cut([seed, deviation, residual](const Parameter& parameter, int64_t first, std::span<float> into) {
    const std::string_view name = parameter.name;
    if (name.ends_with(".bias")) {
      std::fill(into.begin(), into.end(), 0.0f);
    } else if (parameter.shape.size() == 1) {
      std::fill(into.begin(), into.end(), 1.0f);
    } else {
      const double scale = name.ends_with(".c_proj.weight") ? residual : deviation;
      const uint64_t stream = stream_of(name);
      for (size_t i = 0; i < into.size(); ++i) {
        into[i] = static_cast<float>(scale * normal_at(seed, stream, static_cast<uint64_t>(first) + i));
      }
    }
  });
}

}  // namespace sluice
