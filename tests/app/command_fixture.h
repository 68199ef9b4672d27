// A folder with a small configuration and a text, and the command to run on them.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/app/process.h"
#include "tests/fakes/beside.h"
#include "tests/fakes/test_store.h"

namespace sluice {

class CommandTest : public testing::Test {
 protected:
  using Json = nlohmann::json;

  CommandTest() {
    std::ofstream text(file("text.txt"));
    for (int i = 0; i < 400; ++i) text << "line " << i << ": the quick brown fox counts to " << i * i << "\n";
    text.close();
    std::ofstream(file("run.json")) << config();
  }

  std::string file(const std::string& name) const { return (folder_.path() / name).string(); }

  // `sluice` with arguments; words that start with @ are files of the test's folder.
  Ended sluice(std::vector<std::string> arguments) const {
    for (std::string& argument : arguments) {
      if (!argument.empty() && argument.front() == '@') argument = file(argument.substr(1));
    }
    arguments.insert(arguments.begin(), beside_this_program("sluice"));
    return run_process(arguments);
  }
  // `sluice train run.json --data text.txt --out OUT --steps 6` and more.
  Ended train(const std::string& out, std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {"train", "@run.json", "--data", "@text.txt", "--out", "@" + out};
    if (std::find(more.begin(), more.end(), "--steps") == more.end())
      arguments.insert(arguments.end(), {"--steps", "6"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return sluice(arguments);
  }

  // Do not depend on how fast the machine is at the moment: every run moves the same bytes.
  static constexpr const char* kFixedHomes =
      R"(sluice.placement={"weights": "nvme", "state": "nvme", "gradient": "host"})";

  // The command with a store queue that does `fault` (sluice_with_faults.cpp) at `value`, for six steps; "count" does
  // nothing and prints the traffic as the last line.
  struct Fault {
    std::string name = "count";
    int64_t value = 0;
  };
  Ended train_with(const Fault& fault, const std::string& out, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {beside_this_program("sluice_with_faults"),
                                          fault.name,
                                          std::to_string(fault.value),
                                          "train",
                                          file("run.json"),
                                          "--data",
                                          file("text.txt"),
                                          "--steps",
                                          "6",
                                          "--out",
                                          file(out),
                                          "--set",
                                          kFixedHomes};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_process(arguments);
  }
  // Without importing them, which takes seconds.
  static bool has_transformers() {
    constexpr const char* kProbe =
        "import importlib.util as u, sys; sys.exit(None in [u.find_spec(name) for name in ('torch', 'transformers')])";
    return run_process({SLUICE_PYTHON, "-c", kProbe}).exit_code == 0;
  }
  // Exports "run" to "out": transformers opens it, and continues a prompt with the same likeliest tokens.
  void export_and_continue() const {
    const Ended exported = sluice({"checkpoint", "export", "@run", "@out"});
    ASSERT_EQ(exported.exit_code, 0) << exported.err;
    const Ended ours = sluice({"generate", "@run", "--prompt", "line 1", "--tokens", "12", "--temperature", "0"});
    ASSERT_EQ(ours.exit_code, 0) << ours.err;
    const Ended theirs = run_process({SLUICE_PYTHON, SLUICE_CONTINUE, file("out"), "line 1", "12"});
    ASSERT_EQ(theirs.exit_code, 0) << theirs.err;
    EXPECT_EQ(ours.out, theirs.out);
  }
  static int64_t traffic_of(const Ended& counted) {
    return std::stoll(counted.out.substr(counted.out.rfind("traffic ") + 8));
  }

  std::vector<Json> metrics(const std::string& out) const {
    std::vector<Json> lines;
    std::ifstream stream(file(out + "/metrics.jsonl"));
    for (std::string line; std::getline(stream, line);) lines.push_back(Json::parse(line));
    return lines;
  }
  // What must not depend on interruptions: losses, norms and digests.
  static std::string numbers(const std::vector<Json>& lines) {
    std::string text;
    for (const Json& line : lines) {
      for (const char* key : {"step", "loss", "grad_norm", "tokens", "weights_crc32c", "state_crc32c"}) {
        if (line.contains(key)) text += line[key].dump() + " ";
      }
      text += "\n";
    }
    return text;
  }

  // On a machine with a GPU its suite says SLUICE_TEST_DEVICE=cuda, where LibTorch's products take tens of MiB.
  static std::string config() {
    const char* const device = std::getenv("SLUICE_TEST_DEVICE");
    if (device == nullptr || std::string(device) == "cpu") return kConfig;
    auto config = nlohmann::ordered_json::parse(kConfig);
    config["sluice"].update({{"device", device}, {"device_memory", "256MiB"}});
    return config.dump();
  }

  static constexpr const char* kConfig = R"({
    "model": {"type": "gpt2", "vocab_size": 331, "n_positions": 33, "n_embd": 72, "n_layer": 2, "n_head": 3},
    "data": {"tokenizer": "byte", "sequence_length": 33, "validation_fraction": 0.1},
    "train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "gradient_clipping": 1.0,
    "bf16": {"enabled": true}, "steps_per_print": 2,
    "sluice": {"device": "cpu", "device_memory": "2MiB", "host_memory": "1MiB", "compute_threads": 1, "update_threads": 1}
  })";
  TempFolder folder_;
};

}  // namespace sluice
