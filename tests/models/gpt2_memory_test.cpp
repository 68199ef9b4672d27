// In whose memory a GPT-2's graphs are, and for how long.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>

#include "core/arena.h"
#include "core/bytes.h"
#include "core/errors.h"
#include "libtorch/process.h"
#include "libtorch/stand_in_turn.h"
#include "libtorch/workspace.h"
#include "models/gpt2.h"
#include "models/gpt2_visits.h"
#include "tests/fakes/message_of.h"
#include "tests/fakes/temp_folder.h"
#include "tests/models/compute_threads.h"

namespace sluice::testing {
namespace {

constexpr int64_t kBatch = 2, kSequence = 16;

Gpt2Config two_blocks() {
  Gpt2Config config;
  config.vocab_size = 50, config.n_positions = kSequence, config.n_embd = 32, config.n_layer = 2, config.n_head = 2;
  return config;
}

class GraphMemory : public ::testing::Test {
 protected:
  GraphMemory() { set_process({.compute_threads = kComputeThreads}); }
  const std::vector<int64_t> ids_ = std::vector<int64_t>(static_cast<size_t>(kBatch * kSequence), 7);
};

// A block that runs without an engine.
class BlocksGraph : public GraphMemory {
 protected:
  static constexpr int kVisit = 1;

  void run(Pass pass, std::span<std::byte> graph) {
    const WorkspaceScope scope(workspace_);
    turn_.begin(pass, graph);
    visits_.run(kVisit, turn_, {.batch = kBatch, .sequence = kSequence, .ids = ids_, .targets = ids_, .logits = {}});
  }

  Gpt2Visits visits_{
      two_blocks(),
      Gpt2(two_blocks(), {.precision = Precision::kFp32, .batch = kBatch, .sequence = kSequence}).options()};
  Geometry geometry_{visits_.layout().spec.partitions, 1 << 20};
  std::unique_ptr<Device> device_ = make_device_host(kMiB);
  PracticeTurn turn_{{.model = visits_.layout().spec, .geometry = geometry_, .visit = kVisit, .weights = DType::kFp32},
                     *device_,
                     device_->memory()};
  Arena temporaries_{4 * kMiB}, graphs_{4 * kMiB};
  Workspace workspace_{temporaries_.span()};
};

TEST_F(BlocksGraph, lies_in_the_memory_that_the_turn_gives_for_it_alone) {
  run(Pass::kForward, graphs_.span());
  EXPECT_GT(visits_.graph_peak_bytes(kVisit), 0);
  EXPECT_EQ(workspace_.bytes_in_use(), 0);
  run(Pass::kBackward, graphs_.span());
  EXPECT_EQ(workspace_.bytes_in_use(), 0);
  EXPECT_THROW(run(Pass::kBackward, graphs_.span()), std::logic_error) << "it is spent";
}

TEST_F(BlocksGraph, is_refused_in_memory_of_another_place_or_size_than_it_was_kept_in) {
  run(Pass::kForward, graphs_.span());
  const auto peak = static_cast<size_t>(visits_.graph_peak_bytes(kVisit));
  EXPECT_THROW(run(Pass::kBackward, graphs_.span().subspan(Workspace::kAlignmentBytes)), std::logic_error);
  EXPECT_THROW(run(Pass::kForward, graphs_.span().first(peak - 1)), std::logic_error);
  visits_.forget_graphs();
  EXPECT_THAT(message_of<DeviceError>([&] { run(Pass::kForward, graphs_.span().first(peak - 1)); }),
              ::testing::HasSubstr("workspace is full"));
  visits_.forget_graphs();
  run(Pass::kForward, graphs_.span().first(peak));
}

class EnginesGraph : public GraphMemory {
 protected:
  std::unique_ptr<Engine> make_engine(const TempFolder& folder) {
    const ComputeMemory memory = model_.measure_memory();
    EngineOptions options;
    options.plan = {.precision = Precision::kFp32,
                    .gradient_dtype = DType::kFp32,
                    .device_bytes = 8 * kMiB,
                    .host_bytes = 8 * kMiB,
                    .workspace_bytes = memory.workspace_bytes,
                    .graph_bytes = memory.graph_bytes};
    options.plan.placement.activations = {{HomeKind::kDevice, 1}};
    options.store.folder = folder.path();
    options.update_threads = 1;
    return std::make_unique<Engine>(model_.spec(), options, model_.initial_values(1));
  }
  // Of a step that is given up behind the first forward that keeps one.
  std::span<std::byte> graph_left_in(Engine& engine) {
    const Compute compute = model_.compute({.ids = ids_, .targets = ids_});
    std::span<std::byte> graph;
    EXPECT_THROW(engine.train_step(1e-3,
                                   [&](Use& use) {
                                     if (!graph.empty()) throw std::runtime_error("given up");
                                     compute(use);
                                     graph = use.graph();
                                   }),
                 std::runtime_error);
    return graph;
  }

  Gpt2 model_{two_blocks(), {.precision = Precision::kFp32, .batch = kBatch, .sequence = kSequence}};
};

// What is released here would be somebody's.
TEST_F(EnginesGraph, has_gone_when_the_model_leaves_the_engines_memory_or_takes_anothers) {
  const TempFolder first_folder, second_folder;
  const auto first = make_engine(first_folder), second = make_engine(second_folder);
  model_.use_memory(*first);
  const std::span<std::byte> in_first = graph_left_in(*first);
  ASSERT_FALSE(in_first.empty());
  model_.use_memory(*second);
  EXPECT_FALSE(Workspace::release(in_first.data()));
  EXPECT_FALSE(Workspace::release(first->workspace().data()));
  const std::span<std::byte> in_second = graph_left_in(*second);
  ASSERT_FALSE(in_second.empty());
  model_.leave_memory();
  EXPECT_FALSE(Workspace::release(in_second.data()));
  EXPECT_FALSE(Workspace::release(second->workspace().data()));
}

}  // namespace
}  // namespace sluice::testing
