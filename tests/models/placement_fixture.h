// A small GPT-2 that trains for a few steps with its bytes wherever a test puts them, on the host twin or on a GPU.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/random.h"
#include "engine/planner.h"
#include "libtorch/compute_device.h"
#include "libtorch/process.h"
#include "models/gpt2.h"
#include "offload/gpu.h"
#include "tests/fakes/cached_pages.h"
#include "tests/fakes/temp_folder.h"
#include "tests/models/compute_threads.h"

namespace sluice::testing {

constexpr int kMicroBatches = 2, kSteps = 3;

// What a run gives; compared bit by bit.
struct Record {
  std::vector<double> losses, norms;
  uint32_t weights_crc32c = 0, state_crc32c = 0;
  bool operator==(const Record&) const = default;
};

struct Trained {
  Record record;
  StepLanes lanes;
  int64_t elements = 0;  // of the model, with padding
  int64_t graphs = 0;    // visits whose forward keeps one
  bool every_step_commits = false;
  int64_t gpu_free_bytes = 0;  // by the driver, as the run ends; on a GPU
};

class Gpt2Placement : public ::testing::Test {
 protected:
  Gpt2Placement(const Gpt2Config& config, const Gpt2Options& options) : config_(config), model_(config, options) {
    const int64_t tokens = options.batch * options.sequence * kMicroBatches * kSteps;
    for (int64_t i = 0; i <= tokens; ++i) {
      ids_.push_back(static_cast<int64_t>(uniform_at(5, 0, static_cast<uint64_t>(i)) * 30) * 11);
    }
    ids_[3] = 330;
  }

  void SetUp() override {
    if (model_.options().device == DeviceKind::kCuda) {
      if (const std::string missing = why_no_gpu_compute(); !missing.empty()) GTEST_SKIP() << "no GPU: " << missing;
    }
    set_process({.compute_threads = kComputeThreads});
    memory_ = model_.measure_memory();
  }

  EngineOptions options_in(const TempFolder& folder) const {
    EngineOptions options;
    const Precision precision = model_.options().precision;
    options.plan = {.precision = precision,
                    .gradient_dtype = weights_dtype(precision),
                    .device_bytes = 8 * kMiB + (on_gpu() ? memory_.workspace_bytes : 0),
                    .host_bytes = 16 * kMiB,
                    .workspace_bytes = memory_.workspace_bytes,
                    .own_device_bytes = own_device_bytes(model_.options().device),
                    .graph_bytes = memory_.graph_bytes,
                    .micro_batches = kMicroBatches};
    options.device = model_.options().device;
    options.store.folder = folder.path();
    options.adam.learning_rate = 1e-3;
    options.max_norm = 0.5;
    options.update_threads = 1;
    return options;
  }

  struct WhileEngineLives {  // whose memory the model must leave before it goes
    Gpt2& model;
    ~WhileEngineLives() { model.leave_memory(); }
  };
  Trained train(const std::function<void(EngineOptions&)>& change) {
    const TempFolder folder;
    EngineOptions options = options_in(folder);
    change(options);
    Engine engine(model_.spec(), options, model_.initial_values(1));
    const WhileEngineLives model_leaves{model_};
    model_.use_memory(engine);
    Trained run;
    const size_t tokens = (ids_.size() - 1) / static_cast<size_t>(kSteps);
    for (size_t step = 0; step < static_cast<size_t>(kSteps); ++step) {
      const auto ids = std::span(ids_).subspan(step * tokens, tokens),
                 next = std::span(ids_).subspan(step * tokens + 1, tokens);
      const StepEnd end = engine.train_step(1e-3, model_.compute({.ids = ids, .targets = next}));
      run.record.losses.push_back(end.loss);
      run.record.norms.push_back(end.grad_norm);
    }
    run.lanes = engine.last_lanes();
    run.elements = engine.geometry().padded_elements();
    run.graphs = std::ranges::count_if(engine.plan().graphs, [](int64_t at) { return at >= 0; });
    EXPECT_LE(model_.workspace_peak_bytes(), memory_.workspace_bytes);
    if (on_gpu()) run.gpu_free_bytes = first_gpu().free_bytes;
    run.every_step_commits = engine.plan().commit_interval == 1;
    const int64_t state_on_nvme = elements_with_state_on_nvme(engine.plan());
    const int64_t read = run.lanes.bytes(Lane::kRead, Group::kState),
                  written = run.lanes.bytes(Lane::kWrite, Group::kState);
    const int64_t read_once = state_bytes() * state_on_nvme,
                  written_once = state_bytes() * (run.every_step_commits ? run.elements : state_on_nvme);
    const UpdateMode update = options.plan.update;
    if (update == UpdateMode::kSpeculative || update == UpdateMode::kReplay) {  // the clip engages: all was done anew
      EXPECT_GE(read, read_once);
      EXPECT_LE(read, read_once + state_bytes() * run.elements);
      EXPECT_GE(written, written_once);
      EXPECT_LE(written, 2 * written_once);
    } else {
      EXPECT_EQ(read, read_once);
      EXPECT_EQ(written, written_once);
    }
    EXPECT_EQ(cached_pages(folder.path() / "sluice-0.swap"), 0);
    const Digests digests = engine.digests();
    run.record.weights_crc32c = digests.weights_crc32c;
    run.record.state_crc32c = digests.state_crc32c;
    EXPECT_LE(engine.ledger().peak(Tier::kDevice), options.plan.device_bytes);
    EXPECT_LE(engine.ledger().peak(Tier::kHost), options.plan.host_bytes);
    return run;
  }

  void expect_same(const std::function<void(EngineOptions&)>& change) { EXPECT_EQ(train(change).record, expected()); }
  std::function<void(EngineOptions&)> in_smallest_budgets() const {
    return [this](EngineOptions& options) {
      const Planner planner(model_.spec(), options.plan);
      options.plan.device_bytes = planner.smallest_device(options.plan.host_bytes).value();
      options.plan.host_bytes = planner.smallest_host(options.plan.device_bytes).value();
    };
  }
  // An element's: two moments in fp32, and in bf16 and fp16 what the master has beyond the weights.
  int64_t state_bytes() const {
    const Precision precision = model_.options().precision;
    return precision == Precision::kBf16 ? 10 : precision == Precision::kFp16 ? 12 : 8;
  }
  static int64_t elements_with_state_on_nvme(const Plan& plan) {
    int64_t elements = 0;
    for (size_t chunk = 0; chunk < plan.chunks.size(); ++chunk) {
      if (plan.chunks[chunk].state == Home::kNvme) elements += plan.geometry.chunks()[chunk].elements;
    }
    return elements;
  }
  bool on_gpu() const { return model_.options().device == DeviceKind::kCuda; }
  // The same model's run on the CPU, with everything as in expected().
  Record on_cpu() {
    Gpt2Options options = model_.options();
    options.device = DeviceKind::kHost;
    model_ = Gpt2(config_, options);
    memory_ = model_.measure_memory();
    return train([](EngineOptions&) {}).record;
  }
  const Record& expected() {
    if (expected_.losses.empty()) expected_ = train([](EngineOptions&) {}).record;
    return expected_;
  }

 private:
  Gpt2Config config_;
  Gpt2 model_;
  ComputeMemory memory_;
  std::vector<int64_t> ids_;
  Record expected_;
};

struct FourHomes {
  HomeKind weights, state, gradient, activations;
  void operator()(EngineOptions& options) const {
    options.plan.placement = {{{weights, 1}}, {{state, 1}}, {{gradient, 1}}, {{activations, 1}}};
  }
};
template <typename Each>
void for_every_combination_of_homes(Each each) {
  using enum HomeKind;
  int number = 0;
  for (const HomeKind weights : {kHost, kNvme, kHostAndDevice, kNvmeAndDevice}) {
    for (const HomeKind state : {kHost, kNvme}) {
      for (const HomeKind gradient : {kDevice, kHost, kNvme}) {
        for (const HomeKind activations : {kDevice, kHost, kNvme}) {
          if (number++ % SLUICE_EVERY_NTH_COMBINATION != 0) continue;
          SCOPED_TRACE(::testing::Message()
                       << "weights " << name_of(weights) << " state " << name_of(state) << " gradient "
                       << name_of(gradient) << " activations " << name_of(activations));
          each(FourHomes{weights, state, gradient, activations});
        }
      }
    }
  }
}

inline Gpt2Config config_of(int64_t layers, int64_t width) {
  Gpt2Config config;
  config.vocab_size = 331, config.n_positions = 48, config.n_embd = width, config.n_layer = layers, config.n_head = 3;
  return config;
}
inline Gpt2Config in_tiles(Gpt2Config config, Gpt2Tiling tiling) {
  config.tiling = tiling;
  return config;
}

}  // namespace sluice::testing
