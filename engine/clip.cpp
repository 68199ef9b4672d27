#include "engine/clip.h"

#include <algorithm>
#include <cmath>

namespace sluice {

ClipResult clip_gradients(std::span<const double> parts, std::span<const int> canonical, const ClipOptions& options) {
  double sum = 0;
  for (int parameter : canonical) sum += parts[parameter];
  ClipResult result;
  result.norm = std::sqrt(sum) / options.loss_scale;
  result.finite = std::isfinite(result.norm);
  const double clip = options.max_norm > 0 ? std::min(1.0, options.max_norm / (result.norm + 1e-6)) : 1.0;
  result.scale = clip / options.loss_scale;
  return result;
}

}  // namespace sluice
