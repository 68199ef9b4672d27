// A run of its own for each test, and the reference that it must end like.
#pragma once
#include <memory>

#include "tests/engine/engine_fixture.h"

namespace sluice::testing {

class Lifecycle : public ::testing::Test {
 protected:
  EngineOptions options() const { return engine_options(folder_, reference_); }
  std::unique_ptr<Engine> engine(const EngineOptions& with) const {
    return std::make_unique<Engine>(model_, with, toy_source());
  }
  StepEnd step(Engine& engine) const {
    const int64_t number = engine.step() + 1;
    return engine.train_step(reference_.learning_rate, toy_compute(model_, number));
  }
  RunRecord finish(Engine& engine) const { return train_engine(engine, model_, reference_); }

  TempFolder folder_;
  ReferenceOptions reference_{.micro_batches = 2, .steps = 6, .max_norm = 0.05};
  ModelSpec model_ = toy_model({.visits = 5, .shape = ToyShape::kBoth}, Precision::kBf16);
  RunRecord expected_ = train_reference(model_, reference_);
};

}  // namespace sluice::testing
