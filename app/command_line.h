// The `sluice` command as a function: everything of the program but its main().
#pragma once
#include "swap/io_queue.h"

namespace sluice {

// Returns the exit code: 0; 1 for what failed; 2 for input that cannot be used (command line, configuration, data,
// budgets); 128 + the signal that stopped training after a committed step. An error is one line on standard error.
// `make_queue` makes the store's queue of `train`, `tune` and `checkpoint verify`; tests wrap a real one.
int run_command_line(int argc, const char* const* argv, const IoQueueFactory& make_queue);

}  // namespace sluice
