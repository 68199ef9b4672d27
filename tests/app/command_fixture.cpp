#include "tests/app/command_fixture.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "tests/fakes/beside.h"
#include "tests/fakes/message_of.h"

namespace sluice {
namespace {

constexpr const char* kConfig = R"({
    "model": {"type": "gpt2", "vocab_size": 331, "n_positions": 33, "n_embd": 72, "n_layer": 2, "n_head": 3},
    "data": {"tokenizer": "byte", "sequence_length": 33, "validation_fraction": 0.1},
    "train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "gradient_clipping": 1.0,
    "bf16": {"enabled": true}, "steps_per_print": 2,
    "sluice": {"device": "cpu", "device_memory": "2MiB", "host_memory": "1MiB", "compute_threads": 1, "update_threads": 1,
               "placement": {"weights": "host", "state": "nvme", "gradient": "host"}}
  })";

constexpr const char* kMachine = R"({
    "read_gb_per_s": 2, "write_gb_per_s": 2, "mixed_gb_per_s": 3, "upload_gb_per_s": 10, "download_gb_per_s": 10,
    "update_ns_per_element": 0.5, "checksum_gb_per_s": 20, "close_gb_per_s": 5, "compute_tflop_per_s": 0.05,
    "update_threads": 1, "cores": 2
  })";

}  // namespace

CommandTest::CommandTest() {
  std::ofstream text(file("text.txt"));
  for (int i = 0; i < 400; ++i) text << "line " << i << ": the quick brown fox counts to " << i * i << "\n";
  text.close();
  std::ofstream(file("run.json")) << config();
  std::ofstream(file("machine.json")) << kMachine;
}

std::vector<std::string> CommandTest::with_files(std::vector<std::string> arguments) const {
  for (std::string& argument : arguments) {
    if (!argument.empty() && argument.front() == '@') argument = file(argument.substr(1));
  }
  return arguments;
}

Ended CommandTest::sluice(const std::vector<std::string>& arguments) const {
  return run_forked([&] { return run_command(with_files(arguments)); });
}

Ended CommandTest::sluice_with(const CommandFault& fault, const std::vector<std::string>& arguments) const {
  return run_forked([&] { return run_command_with(fault, with_files(arguments)); });
}

Ended CommandTest::sluice_program(const std::vector<std::string>& arguments) const {
  std::vector<std::string> command = with_files(arguments);
  command.insert(command.begin(), beside_this_program("sluice"));
  return run_process(command);
}

Ended CommandTest::sluice_signalled(const std::string& signal, const std::vector<std::string>& arguments) const {
  // SIGNAL COMMAND...: ends as the command does.
  constexpr const char* kInterrupted = R"(
    env --default-signal=INT,PIPE "${@:2}" &
    until ls -l /proc/$!/fd 2>/dev/null | grep -q '/sluice-.*(deleted)' || ! kill -0 $!; do :; done
    kill -s "$1" $!
    wait $!)";
  std::vector<std::string> command = {"bash", "-c", kInterrupted, "interrupted", signal, beside_this_program("sluice")};
  std::ranges::move(with_files(arguments), std::back_inserter(command));
  return run_process(command);
}

std::vector<std::string> CommandTest::train_here_command(const std::string& out, std::vector<std::string> more) const {
  std::vector<std::string> arguments = {"train", "@run.json", "--data", "@text.txt", "--out", "@" + out};
  if (std::ranges::find(more, "--steps") == more.end()) arguments.insert(arguments.end(), {"--steps", "6"});
  std::ranges::move(more, std::back_inserter(arguments));
  return arguments;
}

Ended CommandTest::train(const std::string& out, std::vector<std::string> more) const {
  more.insert(more.end(), {"--machine", "@machine.json"});
  return train_here(out, std::move(more));
}

Ended CommandTest::train_here(const std::string& out, std::vector<std::string> more) const {
  return sluice(train_here_command(out, std::move(more)));
}

Ended CommandTest::train_with(const CommandFault& fault, const std::string& out, std::vector<std::string> more) const {
  more.insert(more.begin(), {"--set", kFixedHomes, "--machine", "@machine.json"});
  return sluice_with(fault, train_here_command(out, std::move(more)));
}

int64_t CommandTest::traffic_of(const Ended& counted) {
  return std::stoll(counted.out.substr(counted.out.rfind("traffic ") + 8));
}

bool CommandTest::has_transformers() {
  constexpr const char* kProbe =
      "import importlib.util as u, sys; sys.exit(None in [u.find_spec(name) for name in ('torch', 'transformers')])";
  return run_process({SLUICE_PYTHON, "-c", kProbe}).exit_code == 0;
}

void CommandTest::export_and_continue() const {
  const Ended exported = sluice({"checkpoint", "export", "@run", "@out"});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  const Ended ours = sluice({"generate", "@run", "--prompt", "line 1", "--tokens", "12", "--temperature", "0"});
  ASSERT_EQ(ours.exit_code, 0) << ours.err;
  const Ended theirs = run_process({SLUICE_PYTHON, SLUICE_CONTINUE, file("out"), "line 1", "12"});
  ASSERT_EQ(theirs.exit_code, 0) << theirs.err;
  EXPECT_EQ(ours.out, theirs.out);
}

CommandTest::Json CommandTest::json_of(const std::string& text) { return Json::parse(text); }
CommandTest::OrderedJson CommandTest::ordered_json_of(const std::string& text) { return OrderedJson::parse(text); }

std::vector<std::string> CommandTest::keys_of(const OrderedJson& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

std::string CommandTest::text_in(const std::string& name) const { return read_whole(file(name)); }

std::vector<CommandTest::Json> CommandTest::metrics(const std::string& out) const {
  std::vector<Json> lines;
  std::ifstream stream(file(out + "/metrics.jsonl"));
  for (std::string line; std::getline(stream, line);) lines.push_back(json_of(line));
  return lines;
}

std::string CommandTest::numbers(const std::vector<Json>& lines) {
  std::string text;
  for (const Json& line : lines) {
    for (const char* key : {"step", "loss", "grad_norm", "tokens", "weights_crc32c", "state_crc32c"}) {
      if (line.contains(key)) text += line[key].dump() + " ";
    }
    text += "\n";
  }
  return text;
}

void CommandTest::leave_homes_to_the_planner() const {
  OrderedJson config = ordered_json_of(text_in("run.json"));
  config["sluice"].erase("placement");
  std::ofstream(file("run.json")) << config.dump(2);
}

std::string CommandTest::config() {
  const char* const device = std::getenv("SLUICE_TEST_DEVICE");
  if (device == nullptr || std::string(device) == "cpu") return kConfig;
  OrderedJson config = ordered_json_of(kConfig);
  config["sluice"].update({{"device", device}, {"device_memory", "256MiB"}});
  return config.dump();
}

}  // namespace sluice
