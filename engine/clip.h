// Global norm, clipping and skipping. Pure functions (numerics: ARCHITECTURE.md, "Numerics").
#pragma once
#include <cstdint>
#include <span>

namespace sluice {

struct ClipResult {
  double norm = 0;   // before clipping, unscaled
  double scale = 1;  // clip / loss_scale: what every gradient is multiplied with
  bool finite = true;
};

// `parts` are sums of squares per parameter, added in the order of `canonical`. max_norm 0: no clipping.
// norm = sqrt(sum) / loss_scale; clip = min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_.
struct ClipOptions {
  double max_norm = 0;
  double loss_scale = 1;
};
ClipResult clip_gradients(std::span<const double> parts, std::span<const int> canonical, const ClipOptions& options);

}  // namespace sluice
