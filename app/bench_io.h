// `sluice bench io`: command line and printing; bench/io_bench.h measures.
#pragma once
namespace CLI {
class App;
}

namespace sluice {

void add_bench_io(CLI::App& bench);

}  // namespace sluice
