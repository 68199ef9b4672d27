// Which group of the update team each hop goes to.
#include <gtest/gtest.h>

#include <set>

#include "engine/update_nodes.h"
#include "tests/engine/engine_fixture.h"
#include "tests/fakes/binding_topology.h"

namespace sluice::testing {
namespace {

// Writes down what it is given.
class WrittenDown final : public UpdateTeam {
 public:
  WrittenDown(std::unique_ptr<UpdateTeam> real, std::vector<Task>& started)
      : real_(std::move(real)), started_(started) {}
  void start(const Task& task) override {
    started_.push_back(task);
    real_->start(task);
  }
  int threads() const override { return real_->threads(); }
  std::string describe() const override { return real_->describe(); }

 private:
  std::unique_ptr<UpdateTeam> real_;
  std::vector<Task>& started_;
};

TEST(UpdateGroups, update_the_chunks_whose_memory_lies_with_them_and_any_of_them_does_the_rest) {
  constexpr const char* kMachine = "numa:2 core:2 pu:1";
  const ModelSpec model = toy_model({.visits = 5, .shape = ToyShape::kBoth}, Precision::kBf16);
  const ReferenceOptions reference{.steps = 3};
  for (const HomeKind state : {HomeKind::kHost, HomeKind::kNvme}) {
    const TempFolder folder;
    Touched touched;
    std::vector<UpdateTeam::Task> started;
    EngineOptions options = engine_options(folder, reference);
    options.update_threads = 0;
    options.make_topology = [&] { return std::make_unique<BindingTopology>(kMachine, touched); };
    options.make_team = [&](const Topology& topology, int threads) {
      return std::make_unique<WrittenDown>(make_update_team(topology, threads), started);
    };
    options.plan.update = UpdateMode::kDeferred;
    options.plan.placement.state = {{state, 1}};
    Engine engine(model, options, toy_source());
    const Plan& plan = engine.plan();
    std::vector<UnitProgram> units;
    for (const UnitKind kind : unit_kinds(plan)) units.push_back(build_unit(model, plan, kind));
    const UpdateNodes nodes(update_ranges(plan, units), team_groups(*make_topology_synthetic(kMachine), 0));

    started.clear();
    int64_t step = 1;
    const Compute compute = toy_compute(model, step);
    for (; step <= reference.steps; ++step) engine.train_step(reference.learning_rate, compute);
    const UnitProgram unit = build_unit(model, plan, unclipped_kind(plan));
    std::set<int> updating;
    for (const UpdateTeam::Task& task : started) {
      const Hop& hop = unit.program.hops()[task.index];
      if (hop.verb != Verb::kUpdate) {
        EXPECT_EQ(task.group, UpdateTeam::kAnyGroup) << name_of(hop.verb);
        continue;
      }
      EXPECT_EQ(task.group, nodes.group_at(unit.updates[hop.operands].state)) << hop.chunk;
      updating.insert(task.group);
    }
    EXPECT_EQ(updating, (std::set<int>{0, 1}));
  }
}

}  // namespace
}  // namespace sluice::testing
