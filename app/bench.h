// `sluice bench`: one sub-command for each benchmark, each in a file of its own (app/bench_NAME.cpp). They take command
// lines and print; what they measure is in bench/.
#pragma once
namespace CLI {
class App;
}

namespace sluice {

// A command that a signal ended sets exit_code.
void add_bench(CLI::App& app, int& exit_code);

}  // namespace sluice
