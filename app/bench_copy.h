// `sluice bench copy`: command line and printing; bench/copy_bench.h measures.
#pragma once
namespace CLI {
class App;
}

namespace sluice {

void add_bench_copy(CLI::App& bench);

}  // namespace sluice
