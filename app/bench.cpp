#include "app/bench.h"

#include <CLI/CLI.hpp>

#include "app/bench_adam.h"
#include "app/bench_copy.h"
#include "app/bench_io.h"
#include "app/bench_step.h"

namespace sluice {

void add_bench(CLI::App& app, int& exit_code) {
  CLI::App* bench =
      app.add_subcommand("bench", "Measure this machine: one hop, or a whole step")->require_subcommand(1);
  add_bench_adam(*bench);
  add_bench_copy(*bench);
  add_bench_io(*bench);
  add_bench_step(*bench, exit_code);
}

}  // namespace sluice
