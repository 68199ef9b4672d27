// `--set` and `--device`, which every command with a configuration has.
#pragma once
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

}  // namespace sluice
