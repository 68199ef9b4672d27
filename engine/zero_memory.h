// What the model's state takes on each of several devices that train the same model on different data: ZeRO
// (Rajbhandari et al. 2020, section 3 and figure 1), which cuts one part more among the ranks at every stage.
// Activations and temporaries come on top. A pure function.
#pragma once
#include <cstdint>

namespace sluice {

enum class ZeroStage : uint8_t {
  kNone,                   // each rank has all
  kState,                  // 1: the optimizer's state is cut
  kStateGradients,         // 2: gradients too
  kStateGradientsWeights,  // 3: weights too
};

struct ZeroModel {
  int64_t parameters = 0;
  int ranks = 1;
  // Of one parameter; with 16-bit weights, an fp32 master and two moments.
  double weights_bytes = 2, gradient_bytes = 2, state_bytes = 12;
};
double bytes_per_device(const ZeroModel& model, ZeroStage stage);

}  // namespace sluice
