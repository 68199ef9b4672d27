// A variable of the environment for as long as this lives; then it is what it was. No other thread may look meanwhile.
#pragma once
#include <cstdlib>
#include <optional>
#include <string>

namespace sluice {

class SetVariable {
 public:
  SetVariable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~SetVariable() {
    if (before_) {
      setenv(name_.c_str(), before_->c_str(), 1);
    } else {
      unsetenv(name_.c_str());
    }
  }
  SetVariable(SetVariable&&) = delete;

 private:
  std::string name_;
  std::optional<std::string> before_;
};

}  // namespace sluice
