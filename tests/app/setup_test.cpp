// What is said before planning takes minutes.
#include "app/setup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/bytes.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

std::string said_of(const ModelSpec& model, const PlanOptions& options) {
  std::string said;
  say_what_planning_takes(model, options, [&said](LogLevel, const std::string& line) { said += line + "\n"; });
  return said;
}

Gpt2Config gpt3() {
  Gpt2Config config;
  config.n_embd = 12288, config.n_layer = 96, config.n_head = 96, config.n_positions = 2048;
  return config;
}

TEST(SayWhatPlanningTakes, of_many_chunks_whether_their_size_is_given_or_derived) {
  const Gpt2 model(gpt3(), {});
  PlanOptions options{.host_bytes = 200 * kGiB};
  EXPECT_THAT(said_of(model.spec(), options),
              AllOf(HasSubstr("chunks of 4194304 elements (derived from sluice.host_memory)"), HasSubstr("minutes")));
  options.chunk_elements = 4194304;
  EXPECT_THAT(said_of(model.spec(), options), HasSubstr("chunks of 4194304 elements (sluice.chunk_elements)"));
  options.chunk_elements *= 4;
  EXPECT_THAT(said_of(model.spec(), options), IsEmpty());
}

TEST(SayWhatPlanningTakes, of_many_turns_and_nothing_of_what_is_planned_soon) {
  const Gpt2 model({}, {});
  PlanOptions options{.host_bytes = kGiB};
  EXPECT_THAT(said_of(model.spec(), options), IsEmpty());
  options.micro_batches = 10'000;  // in 14 visits
  EXPECT_THAT(said_of(model.spec(), options), HasSubstr("10000 micro-batches in 14 visits"));
}

// A run that goes on may be told so from another folder.
TEST(MakePathsAbsolute, of_all_that_a_run_keeps_of_where_its_files_are) {
  RunConfig config;
  config.data.path = "text";
  config.sluice.nvme = {"a/", "./b"};
  config.sluice.trace = "trace.json";
  config.tensorboard = "logs";
  config.model = R"({"path": "weights"})";
  make_paths_absolute(config);
  const std::filesystem::path here = std::filesystem::current_path();
  EXPECT_EQ(config.data.path, here / "text");
  EXPECT_THAT(config.sluice.nvme, testing::ElementsAre(here / "a", here / "b"));
  EXPECT_EQ(config.sluice.trace, here / "trace.json");
  EXPECT_EQ(config.tensorboard, here / "logs");
  EXPECT_EQ(folder_in(config.model), here / "weights");
}

TEST(PlanOptions, are_what_the_configuration_says) {
  RunSetup setup{.model = Gpt2({.vocab_size = 256, .n_positions = 32, .n_embd = 32, .n_layer = 1, .n_head = 2}, {})};
  SluiceConfig& sluice = setup.config.sluice;
  sluice.io_depth = 7;
  sluice.nvme = {"a", "b", "c"};
  setup.config.batch.accumulation = 5;
  const ComputeMemory memory{.workspace_bytes = 99, .graph_bytes = {1, 2, 3}};
  PlanOptions plan = plan_options(setup, memory);
  EXPECT_EQ(plan.io_depth, 7);
  EXPECT_EQ(plan.drives, 3);
  EXPECT_EQ(plan.micro_batches, 5);
  EXPECT_EQ(plan.workspace_bytes, 99);
  EXPECT_EQ(plan.graph_bytes, memory.graph_bytes);
  EXPECT_FALSE(plan.clips);
  sluice.recompute = SluiceConfig::Recompute::kAlways;
  sluice.nvme.clear();
  setup.config.gradient_clipping = 0.5;
  plan = plan_options(setup, memory);
  EXPECT_TRUE(plan.graph_bytes.empty());
  EXPECT_TRUE(plan.clips);
  EXPECT_EQ(plan.drives, 1) << "the run's folder";
}

}  // namespace
}  // namespace sluice
