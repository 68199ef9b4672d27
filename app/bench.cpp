#include "app/bench.h"

#include <CLI/CLI.hpp>

#include "app/bench_adam.h"
#include "app/bench_io.h"

namespace sluice {

void add_bench(CLI::App& app) {
  CLI::App* bench =
      app.add_subcommand("bench", "Measure this machine: one hop, or a whole step")->require_subcommand(1);
  add_bench_adam(*bench);
  add_bench_io(*bench);
}

}  // namespace sluice
