// What a run takes of the host does not grow with the model: weights and state live where the budgets say.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/bytes.h"
#include "tests/app/process.h"
#include "tests/fakes/beside.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

// Trains two steps of a model of width 1024 under fixed budgets, which weights and state exceed.
int64_t peak_resident_bytes(int layers) {
  TempFolder folder;
  const std::string text = (folder.path() / "text.txt").string(), config = (folder.path() / "run.json").string();
  std::ofstream(text) << std::string(4000, 'a') << "the end\n";
  std::ofstream(config) << fmt::format(R"({{
    "model": {{"type": "gpt2", "vocab_size": 256, "n_positions": 16, "n_embd": 1024, "n_layer": {}, "n_head": 8}},
    "data": {{"tokenizer": "byte", "sequence_length": 16}},
    "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1,
    "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}, "bf16": {{"enabled": true}},
    "sluice": {{"device": "cpu", "device_memory": "192MiB", "host_memory": "512MiB"}}}})",
                                       layers);
  const Ended ended = run_process({beside_this_program("sluice"), "train", config, "--data", text, "--steps", "2",
                                   "--out", (folder.path() / "run").string()});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  return ended.peak_resident_bytes;
}

TEST(Memory, a_gibibyte_more_of_weights_and_state_takes_no_more_of_the_host) {
  constexpr int kFewLayers = 4, kMoreLayers = 12;
  constexpr int64_t kBlockBytes = int64_t{12} * 1024 * 1024 * 12;  // 12 width^2 parameters of 12 bytes
  static_assert((kMoreLayers - kFewLayers) * kBlockBytes >= kGiB);
  const int64_t smaller = peak_resident_bytes(kFewLayers), larger = peak_resident_bytes(kMoreLayers);
  RecordProperty("smaller_bytes", std::to_string(smaller));
  RecordProperty("larger_bytes", std::to_string(larger));
  EXPECT_GT(smaller, 512 * kMiB);  // the budgets were used
  EXPECT_LE(static_cast<double>(larger), 1.03 * static_cast<double>(smaller));
}

}  // namespace
}  // namespace sluice
