#include "engine/zero_memory.h"

#include "core/errors.h"

namespace sluice {

double bytes_per_device(const ZeroModel& model, ZeroStage stage) {
  SLUICE_CHECK(model.ranks > 0, "a rank");
  const auto share = [&](ZeroStage cut_from) { return stage >= cut_from ? 1.0 / model.ranks : 1.0; };
  const double each = model.state_bytes * share(ZeroStage::kState) +
                      model.gradient_bytes * share(ZeroStage::kStateGradients) +
                      model.weights_bytes * share(ZeroStage::kStateGradientsWeights);
  return each * static_cast<double>(model.parameters);
}

}  // namespace sluice
