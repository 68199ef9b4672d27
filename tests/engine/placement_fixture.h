// Engines with their bytes anywhere, to be compared with the reference that keeps everything in memory.
#pragma once
#include <functional>
#include <string>

#include "tests/engine/engine_fixture.h"
#include "tests/fakes/message_of.h"

namespace sluice::testing {

inline ReferenceOptions reference_options(Precision precision) {
  ReferenceOptions options{.precision = precision,
                           .gradient_dtype = weights_dtype(precision),
                           .micro_batches = 2,
                           .steps = 4,
                           .max_norm = 0.05};
  // Some of the steps are skipped.
  if (precision == Precision::kFp16) {
    options.loss_scale = {.kind = LossScaleOptions::Kind::kDynamic, .first = 0x1p18, .window = 3, .hysteresis = 1};
  }
  return options;
}

// One thing varied at a time, all against one reference.
class Variation : public ::testing::Test {
 protected:
  void expect_same(const std::function<void(EngineOptions&)>& change) {
    TempFolder folder;
    EngineOptions options = engine_options(folder, reference_);
    change(options);
    Engine engine(model_, options, toy_source());
    EXPECT_EQ(train_engine(engine, model_, reference_), expected_);
  }

  std::string refusal(const EngineOptions& options) const {
    return message_or<ConfigError>("opened", [&] { Engine(model_, options, toy_source()); });
  }

  static void all_on_nvme(EngineOptions& o) {
    const HomeShares nvme = {{HomeKind::kNvme, 1}};
    o.plan.placement = {.weights = nvme, .state = nvme, .gradient = nvme, .activations = nvme};
  }

  ReferenceOptions reference_ = reference_options(Precision::kBf16);
  ModelSpec model_ = toy_model({.visits = 7, .shape = ToyShape::kBoth}, Precision::kBf16);
  RunRecord expected_ = train_reference(model_, reference_);
};

}  // namespace sluice::testing
