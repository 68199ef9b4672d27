// `sluice bench adam`: command line and printing; bench/adam.h measures.
#pragma once
namespace CLI {
class App;
}

namespace sluice {

void add_bench_adam(CLI::App& bench);

}  // namespace sluice
