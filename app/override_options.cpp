#include "app/override_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "app/device_kinds.h"
#include "core/errors.h"

namespace sluice {

// --set first: an option that fills a list replaces what is there.
void add_overrides(CLI::App& command, std::vector<std::string>& overrides, std::string_view of) {
  command
      .add_option("--set", overrides,
                  fmt::format("In place of the {}'s value of this key; more keys, each with a --set of its own", of))
      ->option_text("PATH.TO.KEY=VALUE")
      ->allow_extra_args(false);
  const auto choose = [&overrides](const std::string& device) { overrides.push_back("sluice.device=" + device); };
  command
      .add_option_function<std::string>("--device", choose,
                                        fmt::format("Where to compute, in place of the {}'s sluice.device", of))
      ->check([](const std::string& text) {
        return device_kinds().contains(text) ? "" : text + " is no device: allowed are auto, cuda and cpu";
      });
}

bool sets(std::span<const std::string> overrides, std::string_view key) {
  return std::ranges::any_of(overrides, [key](std::string_view each) {
    return each.starts_with(key) && each.substr(key.size()).starts_with('=');
  });
}

void refuse_trace(std::span<const std::string> overrides) {
  if (sets(overrides, "sluice.trace")) {
    throw ConfigError("--set sluice.trace: this command writes no trace; train and bench step do");
  }
}

}  // namespace sluice
