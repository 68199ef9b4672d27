// What is read of parameters between steps, and what lies between them where weights come to a turn.
#include <algorithm>

#include "core/bytes.h"
#include "core/geometry.h"
#include "tests/engine/lifecycle_fixture.h"

namespace sluice::testing {
namespace {

class Parameters : public Lifecycle {};

TEST_F(Parameters, masters_are_read_in_every_precision_from_any_element_on_and_across_chunks) {
  for (const Precision precision : {Precision::kBf16, Precision::kFp16, Precision::kFp32}) {
    reference_.precision = precision;
    reference_.gradient_dtype = weights_dtype(precision);
    model_ = toy_model({.visits = 5, .shape = ToyShape::kBoth}, precision);
    EngineOptions with = options();
    with.plan.chunk_elements = 128;
    with.plan.placement.state = {{HomeKind::kNvme, 1}};
    auto running = engine(with);
    const int parameter = running->geometry().find_parameter("b1.weight");
    const int64_t elements = running->geometry().parameters()[static_cast<size_t>(parameter)].elements;
    ASSERT_GT(elements, 2 * with.plan.chunk_elements);
    for (const int64_t first : {int64_t{0}, int64_t{1}, elements - 7}) {
      std::vector<float> master(static_cast<size_t>(elements - first)), expected;
      for (int64_t i = first; i < elements; ++i) expected.push_back(toy_initial("b1.weight", i));
      running->read_master(parameter, first, master);
      EXPECT_EQ(master, expected) << name_of(precision) << " from " << first;
    }
  }
}

// Buffers have held other chunks before.
TEST_F(Parameters, what_lies_between_parameters_is_zero_wherever_weights_come_from) {
  for (const HomeKind home : {HomeKind::kDevice, HomeKind::kHost, HomeKind::kNvme}) {
    EngineOptions with = options();
    with.plan.chunk_elements = 4096;
    put_records(with.plan, home);
    auto running = engine(with);
    for (int64_t number = 1; number <= 2; ++number) {
      running->train_step(reference_.learning_rate, [&, good = toy_compute(model_, number)](Use& use) {
        good(use);
        for (const WeightView& weights : use.weights()) {
          const Parameter& is = *weights.parameter;
          const std::byte* const end = weights.address + 2 * is.elements;
          const int64_t padding =
              round_up(is.offset + is.elements, kParameterAlignmentElements) - is.offset - is.elements;
          EXPECT_TRUE(std::all_of(end, end + 2 * padding, [](std::byte each) { return each == std::byte(); }))
              << "behind " << is.name << ", " << name_of(home);
        }
      });
    }
  }
}

}  // namespace
}  // namespace sluice::testing
