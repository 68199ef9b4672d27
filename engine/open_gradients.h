// Which open gradients of a backward hold something: the first contribution to one is stored over what lies there, and
// later ones are added.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "offload/device.h"

namespace sluice {

// One thread. A gradient is named by its number; where it lies on the device is the caller's to know.
class OpenGradients {
 public:
  // So many, in all of which nothing is.
  explicit OpenGradients(size_t count) : held_(count, Held::kNothing) {}
  // As a backward begins.
  void empty() { std::ranges::fill(held_, Held::kNothing); }

  void add(Device& device, size_t number, float* open, const GradientView& gradient) {
    const bool first = held_[number] == Held::kNothing;
    device.add_gradient(open, gradient, first ? Contribution::kFirst : Contribution::kLater);
    held_[number] = Held::kSum;
  }
  // Zeroes what holds nothing, for contributions to parts of it, or where none came.
  void fill(Device& device, size_t number, std::span<float> open) {
    if (held_[number] == Held::kNothing) {
      device.zero(reinterpret_cast<std::byte*>(open.data()), static_cast<int64_t>(open.size_bytes()));
    }
    held_[number] = Held::kSum;
  }

 private:
  enum class Held : uint8_t { kNothing, kSum };
  std::vector<Held> held_;
};

}  // namespace sluice
