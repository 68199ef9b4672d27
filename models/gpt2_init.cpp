// Initial values of a GPT-2.
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <latch>
#include <string_view>

#include "core/random.h"
#include "core/vector_registers.h"
#include "models/gpt2.h"

namespace sluice {
namespace {

// Calls `fill`, which throws nothing, for every part of [0, count), several at once, on LibTorch's threads.
void fill_in_parts(size_t count, const std::function<void(size_t begin, size_t end)>& fill) {
  constexpr size_t kPart = 16384;  // a millisecond
  const size_t others = count > 0 ? (count - 1) / kPart : 0;
  std::latch ended(static_cast<ptrdiff_t>(others));
  size_t part = 1;
  try {
    for (; part <= others; ++part) {
      at::launch([&, part] {
        fill(part * kPart, std::min(count, (part + 1) * kPart));
        ended.count_down();
      });
    }
  } catch (...) {  // no memory for another: those that were launched use this frame
    ended.count_down(static_cast<ptrdiff_t>(others - part + 1));
    ended.wait();
    throw;
  }
  fill(0, std::min(count, kPart));
  ended.wait();
}

}  // namespace

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
      fill_in_parts(into.size(), [&](size_t begin, size_t end) {
        release_upper_halves();  // LibTorch's threads may have them in use
        for (size_t i = begin; i < end; ++i) {
          into[i] = static_cast<float>(scale * normal_at(seed, stream, static_cast<uint64_t>(first) + i));
        }
      });
    }
  });
}

}  // namespace sluice
