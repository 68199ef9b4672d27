// A GPT-2 that trains on a GPU: where its bytes rest changes no bit, nor does running it twice. All of it is skipped
// where no GPU answers; scripts that run it elsewhere want the filter OnCuda*.
#include <fmt/format.h>

#include "tests/models/placement_fixture.h"

namespace sluice::testing {
namespace {

using enum HomeKind;

Gpt2Options on_cuda(Precision precision, int64_t batch, int64_t sequence) {
  return {.precision = precision, .batch = batch, .sequence = sequence, .device = DeviceKind::kCuda};
}

class OnCuda : public Gpt2Placement {
 protected:
  using Gpt2Placement::Gpt2Placement;
  OnCuda() : Gpt2Placement(config_of(5, 72), on_cuda(Precision::kBf16, 3, 33)) {}

  // Losses and norms of runs that sum in another order.
  void expect_near_the_cpus(double relative) {
    const Record gpu = expected(), cpu = on_cpu();
    for (size_t step = 0; step < gpu.losses.size(); ++step) {
      EXPECT_NEAR(gpu.losses[step], cpu.losses[step], relative * cpu.losses[step]);
      EXPECT_NEAR(gpu.norms[step], cpu.norms[step], 10 * relative * cpu.norms[step]);
    }
  }
};
class OnCudaInFp32 : public OnCuda {
 protected:
  OnCudaInFp32() : OnCuda(config_of(3, 60), on_cuda(Precision::kFp32, 2, 48)) {}
};
class OnCudaInFp16 : public OnCuda {
 protected:
  OnCudaInFp16() : OnCuda(config_of(3, 72), on_cuda(Precision::kFp16, 2, 48)) {}
};
class OnCudaInTiles : public OnCuda {
 protected:
  OnCudaInTiles() : OnCuda(in_tiles(config_of(2, 72), {2, 5}), on_cuda(Precision::kBf16, 3, 33)) {}
};

TEST_F(OnCuda, two_runs_give_the_same_bits) {
  const auto as_it_is = [](EngineOptions&) {};
  EXPECT_EQ(train(as_it_is).record, train(as_it_is).record);
}

// The context and what libraries load once are there after a first run.
TEST_F(OnCuda, takes_no_more_of_the_gpu_than_its_budget) {
  constexpr int64_t kGranule = 2 * kMiB;  // in which the driver hands out memory
  int64_t budget = 0;
  const auto note_budget = [&](EngineOptions& options) { budget = options.plan.device_bytes; };
  train(note_budget);
  const int64_t free_before = first_gpu().free_bytes;
  const int64_t taken = free_before - train(note_budget).gpu_free_bytes;
  EXPECT_GT(taken, 0);
  EXPECT_LE(taken, round_up(budget, kGranule));
}

TEST_F(OnCuda, trains_to_the_same_bits_from_every_combination_of_homes) {
  for_every_combination_of_homes([&](const FourHomes& homes) { expect_same(homes); });
}

TEST_F(OnCuda, trains_to_the_same_bits_with_state_on_the_device_whenever_it_is_updated_and_in_odd_chunks) {
  for (const HomeShares& state : {HomeShares{{kDevice, 1}}, {{kDevice, 0.3}, {kHost, 0.3}, {kNvme, 0.4}}}) {
    for (const UpdateMode update : {UpdateMode::kDeferred, UpdateMode::kSpeculative, UpdateMode::kReplay}) {
      expect_same([&](EngineOptions& o) {
        o.plan.placement.state = state;
        o.plan.update = update;
        o.plan.commit_interval = update == UpdateMode::kDeferred ? 10 : 1;
        if (state.size() > 1) o.plan.chunk_elements = 1000;
      });
    }
  }
}

TEST_F(OnCuda, is_near_the_cpu) { expect_near_the_cpus(1e-2); }

TEST_F(OnCudaInFp32, trains_to_the_same_bits_in_the_smallest_budgets_and_from_forced_homes) {
  expect_same(in_smallest_budgets());
  for (const HomeKind weights : {kHost, kNvmeAndDevice}) {
    expect_same([&](EngineOptions& o) {
      o.plan.placement = {{{weights, 1}}, {{kNvme, 1}}, {{kHost, 1}}, {{kHost, 1}}};
    });
  }
}

TEST_F(OnCudaInFp32, is_near_the_cpu) { expect_near_the_cpus(1e-4); }

TEST_F(OnCudaInFp16, trains_to_the_same_bits_from_forced_homes_near_the_cpu) {
  for (const HomeKind weights : {kHost, kNvmeAndDevice}) {
    expect_same([&](EngineOptions& o) {
      o.plan.placement = {{{weights, 1}}, {{kNvme, 1}}, {{kHost, 1}}, {{kHost, 1}}};
    });
  }
  expect_near_the_cpus(1e-2);
}

TEST_F(OnCudaInTiles, trains_to_the_same_bits_in_the_smallest_budgets_and_from_mixed_homes_near_the_cpu) {
  expect_same(in_smallest_budgets());
  expect_same([](EngineOptions& o) {
    o.plan.chunk_elements = 1000;
    o.plan.placement = {.weights = {{kHost, 0.5}, {kNvme, 0.5}},
                        .state = {{kNvme, 0.4}, {kHost, 0.6}},
                        .gradient = {{kHost, 0.5}, {kDevice, 0.5}},
                        .activations = {{kDevice, 0.5}, {kHost, 0.5}}};
  });
  expect_near_the_cpus(1e-2);
}

}  // namespace
}  // namespace sluice::testing
