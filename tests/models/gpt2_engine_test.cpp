// A GPT-2 trained by the real engine, its bytes in all three tiers, against transformers and torch.optim.AdamW.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "core/bytes.h"
#include "models/hugging_face.h"
#include "tests/fakes/temp_folder.h"
#include "tests/models/reference.h"

namespace sluice::testing {
namespace {

// The reference's groups of the same name.
std::vector<ParameterGroup> groups_of(const ModelSpec& spec, const AdamOptions& adam) {
  std::vector<ParameterGroup> groups(2, {.adam = adam});
  groups[0].adam.weight_decay = 0;
  groups[0].learning_rate_factor = 2;
  groups[1].adam.weight_decay = 20;
  groups[1].adam.beta1 = 0.5, groups[1].adam.beta2 = 0.9;
  for (const PartitionSpec& partition : spec.partitions) {
    for (const auto& [name, shape] : partition.parameters) {
      const bool plain = name.ends_with(".bias") || name.find(".ln_") != std::string::npos;
      if (plain) groups[0].parameters.push_back(name);
      if (name.find(".wpe.") != std::string::npos) groups[1].parameters.push_back(name);
    }
  }
  return groups;
}

ModelSection in_tiles(ModelSection section, Gpt2Tiling tiling) {
  section.config.tiling = tiling;
  return section;
}

// A model on the engine, started from one of the reference's folders.
struct Training {
  Training(const std::string& name, Precision precision, int micro_batches, Gpt2Tiling tiling = {})
      : section(in_tiles(read_model_section("{\"path\": \"" + Reference::get().folder(name) + "\"}"), tiling)),
        model(section.config,
              {.precision = precision, .batch = kBatch, .sequence = kSequence, .loss_tile_tokens = 40}) {
    EngineOptions options;
    options.plan = {.precision = precision,
                    .gradient_dtype = weights_dtype(precision),
                    .device_bytes = 2 * kMiB,
                    .host_bytes = 3 * kMiB,
                    .workspace_bytes = model.measure_memory().workspace_bytes,
                    .micro_batches = micro_batches};
    options.plan.placement.state = {{.home = HomeKind::kNvme}};
    options.store.folder = folder.path() / "store";
    options.adam = {.learning_rate = kLearningRate, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
    if (name == "grouped") options.groups = groups_of(model.spec(), options.adam);
    options.max_norm = kClip;
    options.update_threads = 1;
    if (precision == Precision::kFp16) {
      options.loss_scale = {.kind = LossScaleOptions::Kind::kDynamic, .first = 0x1p18, .window = 4, .hysteresis = 1};
    }
    engine = std::make_unique<Engine>(model.spec(), options, hugging_face_source(section.folder, model));
    model.use_memory(*engine);
  }
  TempFolder folder;
  ModelSection section;
  Gpt2 model;
  std::unique_ptr<Engine> engine;
};

std::vector<int64_t> step_of(const std::vector<int64_t>& all, int64_t step, int64_t micro_batches) {
  const auto first = all.begin() + step * micro_batches * kMicroBatchTokens;
  return {first, first + micro_batches * kMicroBatchTokens};
}

struct Trained {
  const char* name;
  Gpt2Tiling tiling;
};
class Parity : public ::testing::TestWithParam<Trained> {};
INSTANTIATE_TEST_SUITE_P(Models, Parity,
                         ::testing::Values(Trained{"tied", {}}, Trained{"untied", {}}, Trained{"grouped", {}},
                                           Trained{"tied", {3, 4}}, Trained{"untied", {2, 7}}));

TEST_P(Parity, twenty_steps_with_clipping_and_accumulation_are_those_of_torch) {
  const std::string name = GetParam().name;
  Training run(name, Precision::kFp32, kAccumulation, GetParam().tiling);
  const std::vector<int64_t> ids = Reference::get().ids(), targets = Reference::get().targets();
  const std::vector<float> losses = Reference::get().values(name + ".losses"),
                           norms = Reference::get().values(name + ".norms");
  for (int64_t step = 0; step < kSteps; ++step) {
    const std::vector<int64_t> some = step_of(ids, step, kAccumulation), next = step_of(targets, step, kAccumulation);
    const StepEnd end = run.engine->train_step(kLearningRate, run.model.compute({.ids = some, .targets = next}));
    const auto i = static_cast<size_t>(step);
    EXPECT_NEAR(end.loss / losses[i], 1, step == 0 ? 1e-5 : 1e-4) << "step " << step;
    EXPECT_NEAR(end.grad_norm / norms[i], 1, 1e-3) << "step " << step;
  }
  EXPECT_GT(run.engine->last_lanes().bytes(Lane::kRead, Group::kState), 0);
  EXPECT_LE(run.model.workspace_peak_bytes(), static_cast<int64_t>(run.engine->workspace().size()));
  const ParameterSource trained =
      run.model.tiles().cut([&](const Parameter& parameter, int64_t first, std::span<float> into) {
        const std::vector<float> all = Reference::get().values(name + ".trained." + parameter.name);
        std::copy_n(all.begin() + first, into.size(), into.begin());
      });
  for (size_t p = 0; p < run.engine->geometry().parameters().size(); ++p) {
    const Parameter& parameter = run.engine->geometry().parameters()[p];
    std::vector<float> ours(static_cast<size_t>(parameter.elements)), wanted(ours.size());
    trained(parameter, 0, wanted);
    run.engine->read_master(static_cast<int>(p), 0, ours);
    double worst = 0;
    for (size_t i = 0; i < ours.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(ours[i]) - wanted[i]));
    EXPECT_LT(worst, 2e-3) << parameter.name;  // of 20 steps of up to 1e-3 each
  }
}

TEST(Gpt2OnTheEngine, trains_in_fp16_as_transformers_does_in_fp32_but_for_rounding) {
  Training run("tied", Precision::kFp16, kAccumulation);
  const std::vector<int64_t> ids = Reference::get().ids(), targets = Reference::get().targets();
  const std::vector<float> losses = Reference::get().values("tied.losses"),
                           norms = Reference::get().values("tied.norms");
  size_t applied = 0;
  std::set<double> scales;
  for (int64_t step = 0; applied < losses.size(); ++step) {
    ASSERT_LT(step, 2 * kSteps);
    const std::vector<int64_t> some = step_of(ids, static_cast<int64_t>(applied), kAccumulation),
                               next = step_of(targets, static_cast<int64_t>(applied), kAccumulation);
    const StepEnd end = run.engine->train_step(kLearningRate, run.model.compute({.ids = some, .targets = next}));
    scales.insert(end.loss_scale);
    EXPECT_NEAR(end.loss / losses[applied], 1, 1e-2) << "step " << step;
    if (end.skipped) continue;
    EXPECT_NEAR(end.grad_norm / norms[applied], 1, 2e-2) << "step " << step;
    ++applied;
  }
  EXPECT_GE(scales.size(), 2u);
}

TEST(Gpt2OnTheEngine, learns_a_batch_in_fp16) {
  Training run("untied", Precision::kFp16, 1);
  const std::vector<int64_t> ids = Reference::get().ids(), targets = Reference::get().targets();
  const std::vector<int64_t> some = step_of(ids, 0, 1), next = step_of(targets, 0, 1);
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    const StepEnd end = run.engine->train_step(kLearningRate, run.model.compute({.ids = some, .targets = next}));
    if (!end.skipped) losses.push_back(end.loss);
  }
  EXPECT_TRUE(std::is_sorted(losses.rbegin(), losses.rend()));
  EXPECT_LT(losses.back(), losses.front() - 1);
}

TEST(Gpt2OnTheEngine, evaluates_to_the_loss_of_transformers_and_changes_nothing) {
  Training run("tied", Precision::kFp32, 2);
  const std::vector<int64_t> ids = Reference::get().ids(), targets = Reference::get().targets();
  const std::vector<int64_t> some = step_of(ids, 0, 1), next = step_of(targets, 0, 1);
  const Digests before = run.engine->digests();
  const double loss = run.engine->evaluate(1, run.model.compute({.ids = some, .targets = next}));
  EXPECT_NEAR(loss / Reference::get().values("tied.loss.0")[0], 1, 1e-5);
  EXPECT_EQ(run.engine->digests().weights_crc32c, before.weights_crc32c);
}

TEST(Gpt2OnTheEngine, gives_the_logits_of_the_next_token) {
  Training run("untied", Precision::kFp32, 1);
  const std::vector<int64_t> ids = Reference::get().ids();
  const std::vector<float> wanted = Reference::get().values("untied.logits");
  std::vector<float> logits(wanted.size());
  run.engine->evaluate(1, run.model.next_token_logits(std::span(ids).first(static_cast<size_t>(kPrompt)), logits));
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(logits[i], wanted[i], 1e-4);
}

TEST(Gpt2OnTheEngine, runs_in_exactly_the_workspace_that_was_measured) {
  for (const auto& [precision, tiling] : {std::pair{Precision::kBf16, Gpt2Tiling{}},
                                          {Precision::kFp16, {}},
                                          {Precision::kFp32, {}},
                                          {Precision::kFp32, {2, 3}}}) {
    Training run("tied", precision, 2, tiling);
    const std::vector<int64_t> ids = Reference::get().ids(), targets = Reference::get().targets();
    const std::vector<int64_t> some = step_of(ids, 0, 2), next = step_of(targets, 0, 2);
    for (int step = 0; step < 3; ++step) {
      run.engine->train_step(kLearningRate, run.model.compute({.ids = some, .targets = next}));
    }
    EXPECT_EQ(run.model.workspace_peak_bytes(), run.model.measure_memory().workspace_bytes);
    run.model.leave_memory();
    EXPECT_EQ(run.model.workspace_peak_bytes(), 0);
  }
}

TEST(Export, opens_in_transformers_with_the_same_values) {
  std::string checks = "--check-export";
  Training tied("tied", Precision::kFp32, 1), untied("untied", Precision::kBf16, 1);
  Training cut("untied", Precision::kFp32, 1, {2, 7});
  for (Training* run : {&tied, &untied, &cut}) {
    const bool half = run == &untied;
    const std::string out = (run->folder.path() / "exported").string();
    export_hugging_face({.folder = out, .dtype = half ? DType::kBf16 : DType::kFp32}, run->model,
                        [&](int parameter, std::span<std::byte> into) { run->engine->read(parameter, into); });
    checks += " '" + out + "' '" + run->section.folder + (half ? "' bfloat16" : "' float32");
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(out), std::filesystem::directory_iterator()), 2);
    const ModelSection again = read_model_section("{\"path\": \"" + out + "\"}");
    EXPECT_EQ(model_section_text({.config = again.config, .folder = {}}),
              model_section_text(in_tiles({.config = run->model.config(), .folder = {}}, {})));
  }
  EXPECT_EQ(run_reference_script(checks), 0);
}

}  // namespace
}  // namespace sluice::testing
