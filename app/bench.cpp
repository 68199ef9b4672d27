#include "app/bench.h"

#include <CLI/CLI.hpp>

namespace sluice {

void add_bench(CLI::App& app) {
  CLI::App* bench [[maybe_unused]] =
      app.add_subcommand("bench", "Measure this machine: one hop, or a whole step")->require_subcommand(1);
}

}  // namespace sluice
