// `--device`, which every command that computes has.
#pragma once
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace sluice {

// Adds "sluice.device=..." to `overrides`, which outlive the command. After the options that fill them: those replace
// what is there.
void add_device(CLI::App& command, std::vector<std::string>& overrides);

}  // namespace sluice
