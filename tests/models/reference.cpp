#include "tests/models/reference.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>

namespace sluice::testing {
namespace {

std::unique_ptr<Reference> made;

class Environment final : public ::testing::Environment {
 public:
  void SetUp() override { made = std::make_unique<Reference>(); }
  void TearDown() override { made.reset(); }
};
const ::testing::Environment* const kEnvironment = ::testing::AddGlobalTestEnvironment(new Environment);

}  // namespace

int run_reference_script(const std::string& arguments) {
  const std::string command = std::string("'" SLUICE_PYTHON "' '" SLUICE_REFERENCE_SCRIPT "' ") + arguments;
  return std::system(command.c_str());
}

Reference::Reference() {
  if (run_reference_script(fmt::format("'{}'", folder_.path().string())) != 0)
    throw std::runtime_error("the reference script failed: see above");
  file_ = std::make_unique<SafetensorsFile>(folder("reference.safetensors"));
}
const Reference& Reference::get() { return *made; }

std::vector<float> Reference::values(const std::string& name) const {
  const SafetensorsEntry* const entry = file_->find(name);
  if (entry == nullptr) throw std::runtime_error("the reference has no " + name);
  std::vector<float> values(static_cast<size_t>(entry->bytes / 4));
  file_->read(*entry, 0, values);
  return values;
}

std::vector<int64_t> Reference::integers(const std::string& name) const {
  const std::vector<float> read = values(name);
  return {read.begin(), read.end()};
}

}  // namespace sluice::testing
