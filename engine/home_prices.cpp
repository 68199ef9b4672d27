#include "engine/home_prices.h"

#include <memory>

#include "core/errors.h"
#include "engine/planner.h"
#include "engine/predict.h"
#include "engine/step.h"

namespace sluice {
namespace {

constexpr int64_t kWholePartitions = int64_t{1} << 50;  // elements a chunk, more than any partition has

LaneTimes minus(LaneTimes a, const LaneTimes& b) {
  for (size_t lane = 0; lane < a.size(); ++lane) a[lane] -= b[lane];
  return a;
}

class Pricer {
 public:
  Pricer(const ModelSpec& model, const PlanOptions& options, int commit_interval)
      : model_(model),
        options_(options),
        uses_(model),
        known_(Planner::know(model)),
        micro_batches_(options.micro_batches) {
    options_.commit_interval = commit_interval;
    options_.micro_batches = 1;
    options_.chunk_elements = kWholePartitions;
    options_.workspace_bytes = 0;
    options_.graph_bytes.clear();  // a prediction counts what they save
    for (const Group group : kGroups) place(group, homes_of(group).back());
  }

  HomePrices all() {
    HomePrices prices;
    prices.machine = options_.speeds->machine;
    const Bill rest = bill();
    for (size_t lane = 0; lane < kLaneCount; ++lane) {
      prices.rest_ms[lane] = rest.all[lane] + (micro_batches_ - 1) * rest.of_micro_batches[lane];
    }
    for (const Group group : kGroups) prices.groups[static_cast<size_t>(group)] = of(group, rest);
    return prices;
  }

 private:
  static constexpr Group kGroups[] = {Group::kWeights, Group::kState, Group::kGradient, Group::kActivations};
  // Who a step's work is for.
  struct Bill {
    std::vector<LaneTimes> partitions, tensors;
    LaneTimes all{}, of_micro_batches{};
    LaneTimes* of_item(const Hop& hop);  // null: the hop is for no item
  };

  void place(Group group, HomeKind home) {
    Placement& placement = options_.placement;
    HomeShares* const shares[] = {&placement.weights, &placement.state, &placement.gradient, &placement.activations};
    *shares[static_cast<size_t>(group)] = {{home, 1}};
  }
  Bill bill() const;
  HomePrices::OfGroup of(Group group, const Bill& rest);

  const ModelSpec& model_;
  PlanOptions options_;
  const ModelUses uses_;
  const std::shared_ptr<Planner::Known> known_;
  int micro_batches_;
};

// One chunk a partition and one micro-batch: chunks are partitions, and a tensor has one number.
LaneTimes* Pricer::Bill::of_item(const Hop& hop) {
  if (hop.verb == Verb::kCompute || hop.verb == Verb::kClip || hop.verb == Verb::kCommit) return nullptr;
  if (hop.group == Group::kActivations) return &tensors[hop.tensor_number];
  return &partitions[hop.visit < 0 ? hop.chunk : hop.partition];
}

Pricer::Bill Pricer::bill() const {
  const Plan plan = Planner(model_, options_, known_).roomy();
  const UnitKind kind = unclipped_kind(plan);
  const UnitProgram unit = build_unit({model_, uses_, plan}, kind);
  const std::vector<double> work_ms = UnitCosts(plan, *options_.speeds, unit, kind).average_work_ms();
  Bill bill{.partitions = std::vector<LaneTimes>(model_.partitions.size()),
            .tensors = std::vector<LaneTimes>(model_.tensors.size())};
  for (size_t i = 0; i < work_ms.size(); ++i) {
    const Hop& hop = unit.program.hops()[i];
    const auto lane = static_cast<size_t>(hop.lane());
    bill.all[lane] += work_ms[i];
    if (of_a_micro_batch(hop)) bill.of_micro_batches[lane] += work_ms[i];
    if (LaneTimes* const of = bill.of_item(hop)) (*of)[lane] += work_ms[i];
  }
  return bill;
}

HomePrices::OfGroup Pricer::of(Group group, const Bill& rest) {
  const std::span<const HomeKind> homes = homes_of(group);
  const bool tensors = group == Group::kActivations;
  const std::vector<LaneTimes>& last = tensors ? rest.tensors : rest.partitions;
  HomePrices::OfGroup prices{.items = std::vector(last.size(), std::vector<LaneTimes>(homes.size()))};
  for (size_t home = 0; home + 1 < homes.size(); ++home) {
    place(group, homes[home]);
    const Bill there = bill();
    for (size_t item = 0; item < last.size(); ++item) {
      prices.items[item][home] = minus(tensors ? there.tensors[item] : there.partitions[item], last[item]);
    }
  }
  place(group, homes.back());
  return prices;
}

}  // namespace

std::span<const HomeKind> homes_of(Group group) {
  using enum HomeKind;
  static constexpr HomeKind kWeights[] = {kHostAndDevice, kNvmeAndDevice, kHost, kNvme},
                            kOthers[] = {kDevice, kHost, kNvme};
  switch (group) {
    case Group::kWeights:
      return kWeights;
    case Group::kState:
    case Group::kGradient:
    case Group::kActivations:
      return kOthers;
  }
  check_failed("group", __FILE__, __LINE__, "an unknown group");
}

HomePrices price_homes(const ModelSpec& model, const PlanOptions& options, int commit_interval) {
  SLUICE_CHECK(options.speeds.has_value(), "a price is a time");
  return Pricer(model, options, commit_interval).all();
}

}  // namespace sluice
