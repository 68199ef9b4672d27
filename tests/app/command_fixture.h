// A folder with a small configuration and a text, and the command to run on them.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/app/command_with_faults.h"
#include "tests/app/process.h"
#include "tests/fakes/test_store.h"

namespace sluice {

class CommandTest : public testing::Test {
 protected:
  using Json = nlohmann::json;
  using OrderedJson = nlohmann::ordered_json;

  CommandTest();

  std::string file(const std::string& name) const { return (folder_.path() / name).string(); }

  // `sluice` with arguments, in a child of this process; words that start with @ are files of the test's folder.
  Ended sluice(const std::vector<std::string>& arguments) const;
  Ended sluice_with(const CommandFault& fault, const std::vector<std::string>& arguments) const;
  // The same by the program itself, started anew.
  Ended sluice_program(const std::vector<std::string>& arguments) const;
  // The same, sent the signal ("INT") once it writes to a file without a name.
  Ended sluice_signalled(const std::string& signal, const std::vector<std::string>& arguments) const;
  // `sluice train run.json --data text.txt --out OUT --steps 6 --machine machine.json` and more: the machine of a file,
  // for to measure this one's takes longer than the run.
  Ended train(const std::string& out, std::vector<std::string> more = {}) const;
  // The same on this machine, measured.
  Ended train_here(const std::string& out, std::vector<std::string> more = {}) const;

  // Do not depend on how fast the machine is at the moment: every run moves the same bytes.
  static constexpr const char* kFixedHomes =
      R"(sluice.placement={"weights": "nvme", "state": "nvme", "gradient": "host"})";

  Ended train_with(const CommandFault& fault, const std::string& out, std::vector<std::string> more = {}) const;
  static int64_t traffic_of(const Ended& counted);

  // Without importing them, which takes seconds.
  static bool has_transformers();
  // Exports "run" to "out": transformers opens it, and continues a prompt with the same likeliest tokens.
  void export_and_continue() const;

  // Here once, because the parser takes a compiler seconds in every file that has it.
  static Json json_of(const std::string& text);
  static OrderedJson ordered_json_of(const std::string& text);
  static std::vector<std::string> keys_of(const OrderedJson& object);  // in their order
  std::string text_in(const std::string& name) const;                  // a file of the test's folder
  Json json_in(const std::string& name) const { return json_of(text_in(name)); }
  std::vector<Json> metrics(const std::string& out) const;
  // What must not depend on interruptions: losses, norms and digests.
  static std::string numbers(const std::vector<Json>& lines);

  // Of run.json, which names them otherwise: to search for the best takes longer than a run.
  void leave_homes_to_the_planner() const;

  // On a machine with a GPU its suite says SLUICE_TEST_DEVICE=cuda, where LibTorch's products take tens of MiB.
  static std::string config();

  TempFolder folder_;

 private:
  std::vector<std::string> with_files(std::vector<std::string> arguments) const;
  std::vector<std::string> train_here_command(const std::string& out, std::vector<std::string> more) const;
};

}  // namespace sluice
