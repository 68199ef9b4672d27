// `sluice bench`: one sub-command for each benchmark, each in a file of its own (app/bench_NAME.cpp). They take command
// lines and print; what they measure is in bench/.
#pragma once
namespace CLI {
class App;
}

namespace sluice {

void add_bench(CLI::App& app);

}  // namespace sluice
