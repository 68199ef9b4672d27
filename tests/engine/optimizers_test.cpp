// Optimizers and the types of their moments: the bits of the reference wherever they live; stores of others are
// refused.
#include <gmock/gmock.h>

#include "tests/engine/placement_fixture.h"

namespace sluice::testing {
namespace {

class Optimizers : public Variation {
 protected:
  // Of a store that was created with the one, to a run with the other.
  template <typename Change>
  std::string refusal_after(Change created, Change resumed) {
    TempFolder folder;
    EngineOptions options = engine_options(folder, reference_);
    created(options);
    Engine(model_, options, toy_source()).drain();
    options.open = OpenMode::kResume;
    resumed(options);
    return refusal(options);
  }
};

TEST_F(Optimizers, optimizers_with_one_moment_move_a_plane_less_and_have_the_bits_of_the_reference) {
  for (const AdamKind kind : {AdamKind::kAdagrad, AdamKind::kLion, AdamKind::kSgd}) {
    for (const Precision precision : {Precision::kBf16, Precision::kFp32}) {
      ReferenceOptions reference = reference_options(precision);
      reference.adam = {.kind = kind, .weight_decay = 0.1, .momentum = 0.9};
      const ModelSpec model = toy_model({.visits = 7, .shape = ToyShape::kBoth}, precision);
      const RunRecord expected = train_reference(model, reference);
      for (const HomeKind home : {HomeKind::kDevice, HomeKind::kHost, HomeKind::kNvme}) {
        TempFolder folder;
        EngineOptions options = engine_options(folder, reference);
        options.plan.placement.state = {{home, 1}};
        Engine engine(model, options, toy_source());
        EXPECT_EQ(train_engine(engine, model, reference), expected) << name_of(optimizer_of(kind));
        if (home != HomeKind::kNvme) continue;
        EXPECT_EQ(engine.last_lanes().bytes(Lane::kRead, Group::kState),
                  engine.geometry().padded_elements() * (precision == Precision::kBf16 ? 6 : 4));
      }
    }
  }
}

TEST_F(Optimizers, moments_in_bf16_are_rounded_to_the_same_bits_wherever_they_live) {
  for (const Precision precision : {Precision::kBf16, Precision::kFp16, Precision::kFp32}) {
    ReferenceOptions reference = reference_options(precision);
    reference.moments = DType::kBf16;
    reference.adam.rounding_seed = 11;
    const ModelSpec model = toy_model({.visits = 7, .shape = ToyShape::kBoth}, precision);
    const RunRecord expected = train_reference(model, reference);
    for (const int64_t chunk : {128, 200, 100000}) {
      for (const HomeKind home : {HomeKind::kDevice, HomeKind::kHost, HomeKind::kNvme}) {
        for (const UpdateMode mode : {UpdateMode::kDeferred, UpdateMode::kReplay}) {
          TempFolder folder;
          EngineOptions options = engine_options(folder, reference);
          options.plan.placement.state = {{home, 1}};
          options.plan.chunk_elements = chunk;
          options.plan.update = mode;
          Engine engine(model, options, toy_source());
          EXPECT_EQ(train_engine(engine, model, reference), expected) << chunk << " " << name_of(mode);
        }
      }
    }
  }
}

TEST_F(Optimizers, moments_in_bf16_depend_on_the_seed_and_go_on_when_the_run_does) {
  reference_.moments = DType::kBf16;
  const RunRecord expected = train_reference(model_, reference_);
  ReferenceOptions other = reference_;
  other.adam.rounding_seed = 1;
  EXPECT_NE(train_reference(model_, other).state_crc32c, expected.state_crc32c);
  TempFolder folder;
  EngineOptions options = engine_options(folder, reference_);
  {
    Engine engine(model_, options, toy_source());
    for (int64_t step = 1; step <= 2; ++step) engine.train_step(reference_.learning_rate, toy_compute(model_, step));
    engine.drain();
  }
  options.open = OpenMode::kResume;
  Engine resumed(model_, options, toy_source());
  EXPECT_EQ(train_engine(resumed, model_, reference_).state_crc32c, expected.state_crc32c);
}

TEST_F(Optimizers, a_store_with_moments_of_another_type_is_refused) {
  const auto moments = [](DType type) { return [type](EngineOptions& options) { options.plan.moments = type; }; };
  EXPECT_THAT(refusal_after(moments(DType::kBf16), moments(DType::kFp32)),
              ::testing::HasSubstr("state_dtype: the store has bf16, this run fp32"));
}

TEST_F(Optimizers, a_store_of_another_optimizer_is_refused_by_name) {
  const auto kind = [](AdamKind which) { return [which](EngineOptions& options) { options.adam.kind = which; }; };
  EXPECT_THAT(refusal_after(kind(AdamKind::kLion), kind(AdamKind::kSgd)),
              ::testing::HasSubstr("optimizer: the store has Lion, this run SGD"));
}

}  // namespace
}  // namespace sluice::testing
