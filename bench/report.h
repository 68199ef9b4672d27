// What every benchmark prints: a line for people and one JSON line, both with GB/s (10^9 bytes) and percent of the
// ceiling that the same run measured.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"

namespace sluice {

// Best of several passes. Hop and ceiling take turns, so that both see the same neighbours on the machine.
class Rate {
 public:
  template <class Pass>
  void measure(int64_t bytes, const Pass& pass) {
    const int64_t begin_ns = now_ns();
    pass();
    best_gb_per_s_ = std::max(best_gb_per_s_, static_cast<double>(bytes) / static_cast<double>(now_ns() - begin_ns));
  }
  double gb_per_s() const { return best_gb_per_s_; }

 private:
  double best_gb_per_s_ = 0;
};

struct Figure {
  std::string hop;           // "swap_in"
  std::string what;          // "io_uring, depth 64", for people
  std::string ceiling_name;  // "bare reads of 1 MiB"
  double gb_per_s = 0;
  double ceiling_gb_per_s = 0;
};

inline void print(const Figure& figure) {
  const double percent = 100 * figure.gb_per_s / figure.ceiling_gb_per_s;
  fmt::print("{:<20} {:>7.2f} GB/s  {:>5.1f} % of {:.2f} GB/s ({})  {}\n", figure.hop, figure.gb_per_s, percent,
             figure.ceiling_gb_per_s, figure.ceiling_name, figure.what);
  fmt::print(
      "{{\"bench\": \"{}\", \"gb_per_s\": {:.4f}, \"ceiling_gb_per_s\": {:.4f}, \"percent\": {:.2f}, "
      "\"what\": \"{}\"}}\n",
      figure.hop, figure.gb_per_s, figure.ceiling_gb_per_s, percent, figure.what);
}

}  // namespace sluice
