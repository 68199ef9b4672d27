// What reference.py wrote, made once for a test program.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "models/safetensors.h"
#include "tests/fakes/temp_folder.h"

namespace sluice::testing {

constexpr int64_t kBatch = 3, kSequence = 33, kSteps = 20, kAccumulation = 3, kPrompt = 9;
constexpr int64_t kMicroBatchTokens = kBatch * kSequence;
constexpr double kLearningRate = 1e-3, kClip = 1.0;

class Reference {
 public:
  Reference();  // runs the script; throws where it fails

  static const Reference& get();  // of the environment that main's gtest runs in
  std::string folder(const std::string& name) const { return (folder_.path() / name).string(); }
  std::vector<float> values(const std::string& name) const;
  std::vector<int64_t> ids() const { return integers("ids"); }
  std::vector<int64_t> targets() const { return integers("targets"); }

 private:
  std::vector<int64_t> integers(const std::string& name) const;
  TempFolder folder_;  // what the script wrote
  std::unique_ptr<SafetensorsFile> file_;
};

// Runs reference.py with arguments; its exit status.
int run_reference_script(const std::string& arguments);

}  // namespace sluice::testing
