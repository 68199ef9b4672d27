// Layers in tiles: tensors given by several visits and taken by several, partitions that several contribute to.
#include <algorithm>

#include "tests/engine/placement_fixture.h"

namespace sluice::testing {
namespace {

class Tiles : public ::testing::TestWithParam<Precision> {
 protected:
  static constexpr int kLayers = 5, kTiles = 3;
  RunRecord train(const std::function<void(EngineOptions&)>& change) {
    const TempFolder folder;
    EngineOptions options = engine_options(folder, reference_);
    change(options);
    Engine engine(model_, options, toy_source());
    const RunRecord record = train_engine(engine, model_, reference_);
    slots_ = engine.plan().open_slots;
    return record;
  }
  int64_t smallest_device() {
    TempFolder folder;
    return Planner(model_, engine_options(folder, reference_).plan).smallest_device(8 * kMiB).value();
  }
  int64_t sums_at_home(Home home) const {
    return std::count_if(slots_.begin(), slots_.end(), [home](const OpenSlot& slot) { return slot.home == home; });
  }

  ReferenceOptions reference_ = reference_options(GetParam());
  ModelSpec model_ = tiled_model(kLayers, kTiles, GetParam());
  RunRecord expected_ = train_reference(model_, reference_);
  std::vector<OpenSlot> slots_;
};
INSTANTIATE_TEST_SUITE_P(, Tiles, ::testing::Values(Precision::kBf16, Precision::kFp32),
                         [](const auto& precision) { return std::string(name_of(precision.param)); });

TEST_P(Tiles, train_to_the_bits_of_the_reference_from_every_home) {
  using enum HomeKind;
  for (const HomeKind weights : {kNvme, kHostAndDevice}) {
    for (const HomeKind gradient : {kDevice, kHost}) {
      for (const HomeShares& activations : {HomeShares{{kDevice, 1}}, {{kHost, 1}}, {{kHost, 0.5}, {kDevice, 0.5}}}) {
        EXPECT_EQ(train([&](EngineOptions& o) {
                    o.plan.placement = {{{weights, 1}}, {{kNvme, 1}}, {{gradient, 1}}, activations};
                  }),
                  expected_);
        EXPECT_EQ(sums_at_home(Home::kHost), 0);
      }
    }
  }
}

TEST_P(Tiles, train_to_the_bits_of_the_reference_when_sums_rest_in_host_memory_between_visits) {
  const int64_t least = smallest_device();
  for (const UpdateMode update : {UpdateMode::kDeferred, UpdateMode::kSpeculative, UpdateMode::kReplay}) {
    EXPECT_EQ(train([&](EngineOptions& o) {
                o.plan.device_bytes = least;
                o.plan.update = update;
              }),
              expected_);
    EXPECT_GT(sums_at_home(Home::kHost), 0);
  }
}

// The borrowed partitions' sums live through the whole backward, the others' through their layer's alone.
TEST_P(Tiles, of_more_layers_need_no_more_sums) {
  const auto slots = [&](int layers) {
    TempFolder folder;
    return make_plan(tiled_model(layers, kTiles, GetParam()), engine_options(folder, reference_).plan)
        .open_slots.size();
  };
  EXPECT_EQ(slots(5), slots(25));
  // Borrowed partitions; the layers' shared ones; tensors, one being read while the next is summed.
  EXPECT_EQ(slots(5), static_cast<size_t>(kTiles + 1 + 2 * reference_.micro_batches));
}

TEST_P(Tiles, of_more_layers_or_micro_batches_train_on_the_smallest_device_of_few) {
  const auto least = [&](int layers, int micro_batches) {
    TempFolder folder;
    ReferenceOptions reference = reference_;
    reference.micro_batches = micro_batches;
    const ModelSpec model = tiled_model(layers, kTiles, GetParam());
    return Planner(model, engine_options(folder, reference).plan).smallest_device(8 * kMiB).value();
  };
  EXPECT_EQ(least(30, 1), least(3, 1));
  EXPECT_EQ(least(3, 8), least(3, 1));
}

}  // namespace
}  // namespace sluice::testing
