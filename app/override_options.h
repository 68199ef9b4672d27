// `--set` and `--device`, which every command with a configuration has.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace sluice {

// They add "path.to.key=value" to `overrides`, which outlive the command, in place of what the configuration `of` says
// ("file", "run").
void add_overrides(CLI::App& command, std::vector<std::string>& overrides, std::string_view of);

// Whether one of them is of this key ("sluice.trace"), which the configuration's file may have for another command.
bool sets(std::span<const std::string> overrides, std::string_view key);
// For commands that write none. Throws ConfigError.
void refuse_trace(std::span<const std::string> overrides);

}  // namespace sluice
