// SIGINT and SIGTERM ask a run to stop after its step. The one place that touches the process's signal handlers.
#pragma once

namespace sluice {

// While it lives, the first SIGINT or SIGTERM is only noted, and a second one of the same kind ends the process at
// once. One at a time in a process.
class StopRequests {
 public:
  StopRequests();
  ~StopRequests();
  StopRequests(const StopRequests&) = delete;
  StopRequests& operator=(const StopRequests&) = delete;

  int signal() const;  // 0: none
};

}  // namespace sluice
