// SIGINT, SIGTERM and SIGHUP ask a run to stop after its step. The one place that touches the process's signal handlers
// for them, but for those of `bench io` (bench/scratch_folder.h), which end it at once.
#pragma once
#include <array>
#include <csignal>

namespace sluice {

// While it lives, the first of these signals is only noted, and SIGINT or SIGTERM more than a fifth of a second later
// ends the process at once. Nor does it end with whoever reads its output: Ctrl-C ends a `tee` behind it as well. One
// at a time in a process.
class StopRequests {
 public:
  StopRequests();
  ~StopRequests();
  StopRequests(const StopRequests&) = delete;
  StopRequests& operator=(const StopRequests&) = delete;

  int signal() const;  // 0: none

 private:
  struct Handled {
    int number;
    struct sigaction before {};
  };
  struct sigaction pipe_before_ {};
  std::array<Handled, 3> handled_{Handled{SIGINT}, Handled{SIGTERM}, Handled{SIGHUP}};
};

}  // namespace sluice
