#include "app/device_option.h"

#include <CLI/CLI.hpp>

#include "app/device_kinds.h"

namespace sluice {

void add_device(CLI::App& command, std::vector<std::string>& overrides) {
  const auto choose = [&overrides](const std::string& device) { overrides.push_back("sluice.device=" + device); };
  command
      .add_option_function<std::string>("--device", choose, "Where to compute, in place of the file's sluice.device")
      ->check([](const std::string& text) {
        return device_kinds().contains(text) ? "" : text + " is no device: allowed are auto, cuda and cpu";
      });
}

}  // namespace sluice
