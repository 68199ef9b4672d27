// Moving bytes moves no bits: every placement trains like the reference that keeps everything in memory.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "core/errors.h"
#include "tests/engine/placement_fixture.h"
#include "tests/fakes/cached_pages.h"
#include "tests/fakes/message_of.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

struct PlacementCase {
  HomeKind weights, state, gradient, activations;
  ToyShape shape;
  Precision precision;
};

std::vector<PlacementCase> all_placements() {
  using enum HomeKind;
  std::vector<PlacementCase> cases;
  for (Precision precision : {Precision::kBf16, Precision::kFp16, Precision::kFp32}) {
    for (HomeKind weights : {kHost, kNvme, kHostAndDevice, kNvmeAndDevice}) {
      for (HomeKind state : {kHost, kNvme}) {
        for (HomeKind gradient : {kDevice, kHost, kNvme}) {
          for (HomeKind activations : {kDevice, kHost, kNvme}) {
            const auto shape = static_cast<ToyShape>(cases.size() % 4);
            cases.push_back({weights, state, gradient, activations, shape, precision});
          }
        }
      }
    }
    for (HomeKind weights : {kHostAndDevice, kNvmeAndDevice}) {
      for (HomeKind activations : {kDevice, kHost, kNvme}) {
        const auto shape = static_cast<ToyShape>(cases.size() % 4);
        cases.push_back({weights, kDevice, kDevice, activations, shape, precision});
      }
    }
  }
  return cases;
}

std::vector<bool> graphs_kept(const Plan& plan) {
  std::vector<bool> kept;
  for (int visit = 0; visit < static_cast<int>(plan.graphs.size()); ++visit) kept.push_back(plan.keeps_graph(visit));
  return kept;
}
bool weights_are_kept(const PlacementCase& which) {
  return which.weights == HomeKind::kHostAndDevice || which.weights == HomeKind::kNvmeAndDevice;
}
// In half of the cases whose weights pass through the device no visit may keep its graph.
bool may_keep_graphs(const PlacementCase& which) {
  return weights_are_kept(which) || static_cast<int>(which.shape) % 2 == 0;
}
// Only where inputs stay on the device; the first visit has none, the last is a sink.
std::vector<bool> graphs_wanted(const PlacementCase& which) {
  if (!may_keep_graphs(which)) return std::vector<bool>(6, false);
  const bool inputs_stay = which.activations == HomeKind::kDevice;
  return {true, inputs_stay, inputs_stay, false, inputs_stay, false};
}

// In the table that a plan prints of what a step moves.
int64_t planned_bytes(const Plan& plan, std::string_view link, std::string_view what) {
  const auto row =
      std::ranges::find_if(plan.moves, [&](const MoveRow& each) { return each.link == link && each.what == what; });
  return row == plan.moves.end() ? 0 : row->bytes;
}

class EveryPlacement : public ::testing::TestWithParam<PlacementCase> {};

TEST_P(EveryPlacement, trains_to_the_bits_of_the_reference) {
  const PlacementCase& which = GetParam();
  const ReferenceOptions reference = reference_options(which.precision);
  const ModelSpec model = toy_model({.visits = 6, .shape = which.shape}, which.precision);
  TempFolder folder;
  EngineOptions options = engine_options(folder, reference);
  options.plan.placement = {.weights = {{which.weights, 1}},
                            .state = {{which.state, 1}},
                            .gradient = {{which.gradient, 1}},
                            .activations = {{which.activations, 1}}};
  if (may_keep_graphs(which)) options.plan.graph_bytes = {300, 256, 1000, 0, 77, 5000};
  Engine engine(model, options, toy_source());
  EXPECT_EQ(train_engine(engine, model, reference), train_reference(model, reference));
  EXPECT_EQ(graphs_kept(engine.plan()), graphs_wanted(which));
  for (int visit = 0; visit < 6; ++visit) {  // a graph's weights stay with it
    if (!engine.plan().keeps_graph(visit)) continue;
    for (const int p : model.visits[visit].partitions) EXPECT_GE(engine.plan().kept_offset[p], 0);
  }

  const StepLanes& lanes = engine.last_lanes();
  const int64_t state = engine.geometry().padded_elements() * bytes_per_element(which.precision, Group::kState);
  const int64_t weights = engine.geometry().padded_elements() * bytes_per_element(which.precision, Group::kWeights);
  // With a commit every step, state is written every step wherever its home is, and read where that is NVMe.
  EXPECT_EQ(lanes.bytes(Lane::kRead, Group::kState), which.state == HomeKind::kNvme ? state : 0);
  EXPECT_EQ(lanes.bytes(Lane::kWrite, Group::kState), engine.plan().commit_interval == 1 ? state : 0);
  EXPECT_EQ(planned_bytes(engine.plan(), "nvme read", "state"), lanes.bytes(Lane::kRead, Group::kState));
  if (engine.plan().commit_interval == 1) {
    EXPECT_EQ(planned_bytes(engine.plan(), "nvme write", "state"), state);
  }
  const bool kept = weights_are_kept(which);
  const bool weights_on_nvme =
      which.weights == HomeKind::kNvme ||
      (which.weights == HomeKind::kNvmeAndDevice && which.state != HomeKind::kDevice);  // else with their state
  if (!weights_on_nvme) {
    EXPECT_EQ(lanes.bytes(Lane::kRead, Group::kWeights), 0);
  }
  if (weights_on_nvme && kept) {
    EXPECT_EQ(lanes.bytes(Lane::kRead, Group::kWeights), weights);
  }
  if (weights_on_nvme && !kept) {
    EXPECT_GT(lanes.bytes(Lane::kRead, Group::kWeights), weights);
  }
  // A gradient goes to its home once and to its update once.
  const int64_t gradient = engine.geometry().padded_elements() * bytes_of(weights_dtype(which.precision));
  const bool gradient_on_nvme = which.gradient == HomeKind::kNvme;
  EXPECT_EQ(lanes.bytes(Lane::kWrite, Group::kGradient), gradient_on_nvme ? gradient : 0);
  EXPECT_EQ(lanes.bytes(Lane::kRead, Group::kGradient), gradient_on_nvme ? gradient : 0);
  EXPECT_EQ(lanes.bytes(Lane::kWrite, Group::kActivations) > 0, which.activations == HomeKind::kNvme);
  EXPECT_EQ(lanes.bytes(Lane::kRead, Group::kActivations) > 0, which.activations == HomeKind::kNvme);
  EXPECT_EQ(cached_pages(folder.path() / "sluice-0.swap"), 0);
}

std::string placement_name(const ::testing::TestParamInfo<PlacementCase>& info) {
  const auto word = [](HomeKind kind) {
    std::string name(name_of(kind));
    for (char& c : name) c = c == '+' ? '_' : c;
    return name;
  };
  return fmt::format("{}_weights_{}_state_{}_gradient_{}_activations_{}_shape_{}", name_of(info.param.precision),
                     word(info.param.weights), word(info.param.state), word(info.param.gradient),
                     word(info.param.activations), static_cast<int>(info.param.shape));
}
INSTANTIATE_TEST_SUITE_P(, EveryPlacement, ::testing::ValuesIn(all_placements()), placement_name);

TEST(RandomModels, train_to_the_bits_of_the_reference) {
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    const ModelSpec model = random_model(seed, Precision::kBf16);
    ReferenceOptions reference = reference_options(Precision::kBf16);
    reference.micro_batches = 1 + static_cast<int>(seed % 4);
    reference.steps = 3;
    TempFolder folder;
    EngineOptions options = engine_options(folder, reference);
    options.plan.device_bytes = options.plan.host_bytes = 64 * kMiB;
    options.plan.commit_interval = 1 + static_cast<int>(seed % 3);
    if (seed % 2 == 0) {
      const Planner planner(model, options.plan);
      options.plan.host_bytes = planner.smallest_host(options.plan.device_bytes).value();
      options.plan.device_bytes = planner.smallest_device(options.plan.host_bytes).value();
    }
    Engine engine(model, options, toy_source());
    EXPECT_EQ(train_engine(engine, model, reference), train_reference(model, reference)) << "seed " << seed;
  }
}

// --- what is asked for ----------------------------------------------------------------------------------------------

std::string refusal_of(const Placement& placement) {
  return message_of<ConfigError>([&] { placement.validate(); });
}

TEST(SharesOfHomes, below_0_above_1_and_that_are_no_numbers_are_refused_though_their_sum_is_1) {
  using enum HomeKind;
  EXPECT_THAT(refusal_of({.state = {{kHost, -0.5}, {kNvme, 0.75}, {kDevice, 0.75}}}),
              HasSubstr("state: the share of \"host\" is -0.5; allowed: 0 to 1"));
  EXPECT_THAT(refusal_of({.weights = {{kHost, 1.5}, {kNvme, -0.5}}}), HasSubstr("the share of \"host\" is 1.5"));
  EXPECT_THAT(refusal_of({.gradient = {{kHost, std::nan("")}}}), HasSubstr("the share of \"host\" is nan"));
}

TEST(SharesOfHomes, sum_to_1_but_for_what_adding_them_loses) {
  using enum HomeKind;
  EXPECT_NO_THROW((Placement{.state = {{kDevice, 0.7}, {kHost, 0.2}, {kNvme, 0.1}}}).validate());
  EXPECT_THAT(refusal_of({.state = {{kHost, 0.5}, {kNvme, 0.25}}}), HasSubstr("sum to 0.75, not to 1"));
  EXPECT_THAT(refusal_of({.state = {{kHost, 0.75}, {kNvme, 0.5}}}), HasSubstr("sum to 1.25, not to 1"));
}

TEST(SharesOfHomes, are_of_homes_that_the_group_can_have) {
  using enum HomeKind;
  for (const auto group : {&Placement::state, &Placement::gradient, &Placement::activations}) {
    Placement placement;
    placement.*group = {{kHostAndDevice, 1}};
    EXPECT_THAT(refusal_of(placement), HasSubstr("\"host+device\" is not possible; allowed: auto | device | host"));
  }
  EXPECT_THAT(refusal_of({.weights = {{kDevice, 1}}}), HasSubstr("\"device\" is not possible"));
  EXPECT_THAT(refusal_of({.activations = {{kAuto, 0.5}, {kHost, 0.5}}}), HasSubstr("\"auto\" stands alone"));
}

TEST(SharesOfHomes, beside_state_on_the_device_are_there_or_left_to_the_planner) {
  using enum HomeKind;
  const HomeShares there = {{kDevice, 0.5}, {kHost, 0.5}};
  EXPECT_NO_THROW((Placement{.weights = {{kAuto, 1}}, .state = there, .gradient = {{kAuto, 1}}}).validate());
  EXPECT_NO_THROW((Placement{.weights = {{kNvmeAndDevice, 1}}, .state = there, .gradient = {{kDevice, 1}}}).validate());
  EXPECT_THAT(refusal_of({.weights = {{kHost, 1}}, .state = there}), HasSubstr("placement.weights: \"host\" does not"));
  EXPECT_THAT(refusal_of({.state = there, .gradient = {{kHost, 1}}}), HasSubstr("placement.gradient: \"host\" does"));
  const HomeShares none_there = {{kDevice, 0}, {kHost, 1}};
  EXPECT_NO_THROW((Placement{.weights = {{kHost, 1}}, .state = none_there, .gradient = {{kHost, 1}}}).validate());
}

}  // namespace
}  // namespace sluice::testing
