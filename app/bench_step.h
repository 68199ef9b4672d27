// `sluice bench step CONFIG`: a whole step against its resources alone.
#pragma once
namespace CLI {
class App;
}

namespace sluice {

void add_bench_step(CLI::App& bench, int& exit_code);

}  // namespace sluice
