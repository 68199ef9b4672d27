// Hyper-parameters by group: who has which, and that where groups begin and end is nobody else's business.
#include "engine/parameter_groups.h"

#include <gmock/gmock.h>

#include "tests/engine/engine_fixture.h"
#include "tests/fakes/message_of.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;
using enum HomeKind;

Geometry geometry() {
  const PartitionSpec partitions[] = {
      {"p0", {{"a.bias", {5}}, {"a.weight", {300}}, {"b.weight", {7}}, {"b.bias", {129}}}},
      {"p1", {{"c.weight", {9}}}}};
  return {partitions, 128};
}

std::vector<std::pair<int64_t, int>> runs(const ParameterGroups& groups, int partition) {
  std::vector<std::pair<int64_t, int>> list;
  for (const GroupRun& run : groups.runs_of(partition)) list.emplace_back(run.end, run.group);
  return list;
}

std::string refusal(const std::vector<ParameterGroup>& groups) {
  return message_or<ConfigError>("taken", [&] { ParameterGroups(geometry(), {}, groups); });
}

TEST(ParameterGroups, are_runs_of_elements_and_padding_goes_with_the_parameter_before_it) {
  using Runs = std::vector<std::pair<int64_t, int>>;
  const std::vector<ParameterGroup> biases = {{.parameters = {"b.bias", "a.bias"}}};
  const ParameterGroups groups(geometry(), {}, biases);
  EXPECT_EQ(groups.count(), 2);
  EXPECT_EQ(runs(groups, 0), (Runs{{128, 1}, {640, 0}, {896, 1}}));
  EXPECT_EQ(runs(groups, 1), (Runs{{128, 0}}));
  const ParameterGroups none(geometry(), {}, {});
  EXPECT_EQ(none.count(), 1);
  EXPECT_EQ(runs(none, 0), (Runs{{896, 0}}));
}

TEST(ParameterGroups, have_the_steps_rate_times_their_factor) {
  const std::vector<ParameterGroup> biases = {
      {.parameters = {"a.bias"}, .adam = {.beta1 = 0.5, .weight_decay = 0}, .learning_rate_factor = 2}};
  const ParameterGroups groups(geometry(), {.weight_decay = 0.1}, biases);
  std::vector<AdamStep> steps(2);
  groups.fill_steps({.learning_rate = 0.25, .t = 1, .scale = 0.125}, steps);
  EXPECT_EQ(steps[0].decay, 1 - 0.25f * 0.1f);
  EXPECT_EQ(steps[1].decay, 1);
  EXPECT_EQ(steps[1].step_size, 0.5f / 0.5f);
  EXPECT_EQ(steps[1].scale, 0.125f);
}

TEST(ParameterGroups, refuse_names_that_are_not_there_or_there_twice_and_other_optimizers) {
  EXPECT_EQ(refusal({{.parameters = {"a.bais"}}}),
            "a group names parameter a.bais, which the model does not have; the nearest is a.bias");
  EXPECT_THAT(refusal({{.parameters = {"a.bias"}}, {.parameters = {"a.bias"}}}), HasSubstr("a.bias is named by two"));
  EXPECT_THAT(refusal({{.parameters = {"a.bias"}, .adam = {.kind = AdamKind::kLion}}}), HasSubstr("one kind"));
}

class GroupedTraining : public ::testing::Test {
 protected:
  static ReferenceOptions grouped(Precision precision) {
    ReferenceOptions options{.precision = precision,
                             .gradient_dtype = weights_dtype(precision),
                             .micro_batches = 2,
                             .steps = 4,
                             .max_norm = 0.05,
                             .adam = {.weight_decay = 0.1}};
    AdamOptions plain = options.adam, quick = options.adam;
    plain.weight_decay = 0;
    quick.beta1 = 0.5, quick.beta2 = 0.9, quick.epsilon = 1e-3;
    options.groups = {{.parameters = {"b0.bias", "b1.bias", "b2.bias", "b4.bias"}, .adam = plain},
                      {.parameters = {"b3.weight", "b1.weight"}, .adam = quick, .learning_rate_factor = 0.25}};
    return options;
  }
  static ModelSpec model(Precision precision) {
    return toy_model({.visits = 5, .shape = ToyShape::kBoth, .elements = 1500}, precision);
  }
};

TEST_F(GroupedTraining, is_that_of_the_reference_whatever_the_chunks_homes_modes_and_precision) {
  for (const Precision precision : {Precision::kBf16, Precision::kFp16, Precision::kFp32}) {
    const ReferenceOptions reference = grouped(precision);
    const RunRecord expected = train_reference(model(precision), reference);
    for (const int64_t chunk : {128, 200, 1000, 100000}) {
      for (const HomeKind home : {kDevice, kHost, kNvme}) {
        for (const UpdateMode mode : {UpdateMode::kDeferred, UpdateMode::kSpeculative, UpdateMode::kReplay}) {
          TempFolder folder;
          EngineOptions options = engine_options(folder, reference);
          options.plan.chunk_elements = chunk;
          put_records(options.plan, home);
          options.plan.update = mode;
          Engine engine(model(precision), options, toy_source());
          EXPECT_EQ(train_engine(engine, model(precision), reference), expected) << chunk << " " << name_of(mode);
        }
      }
    }
  }
}

TEST_F(GroupedTraining, may_begin_in_the_middle_of_a_run) {
  ReferenceOptions reference = grouped(Precision::kBf16);
  reference.groups_from = 3;
  const ModelSpec spec = model(Precision::kBf16);
  TempFolder folder;
  EngineOptions options = engine_options(folder, reference);
  const std::vector<ParameterGroup> groups = std::exchange(options.groups, {});
  {
    Engine engine(spec, options, toy_source());
    for (int64_t step = 1; step < reference.groups_from; ++step) {
      engine.train_step(reference.learning_rate, toy_compute(spec, step));
    }
    engine.drain();
  }
  options.open = OpenMode::kResume;
  options.groups = groups;
  Engine resumed(spec, options, toy_source());
  EXPECT_EQ(train_engine(resumed, spec, reference).state_crc32c, train_reference(spec, reference).state_crc32c);
}

}  // namespace
}  // namespace sluice::testing
