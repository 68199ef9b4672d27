// SIGINT, SIGTERM and SIGHUP ask a run to stop: after its step or, before the first, where its work can end.
#pragma once
#include "core/signal_handlers.h"

namespace sluice {

// While it lives, a reader of the log that has ended does not end the process.
class BrokenPipesIgnored {
 public:
  BrokenPipesIgnored();
  void take_over(SignalHandlers& earlier) { handlers_.take_over(earlier); }

 private:
  SignalHandlers handlers_;
};

// While it lives, the first of these signals is only noted, and SIGINT or SIGTERM more than a fifth of a second later
// ends the process at once. Nor does it end with whoever reads its output: Ctrl-C ends a `tee` behind it as well. One
// at a time in a process.
class StopRequests {
 public:
  StopRequests();

  int signal() const;  // 0: none
  // Of what had these signals before: no moment lies between the two.
  void take_over(SignalHandlers& earlier);

 private:
  SignalHandlers requests_;
  BrokenPipesIgnored broken_pipes_;
};

// Ends a command's work where a signal asked for it; no error.
struct Stopped {
  int signal = 0;
};
void stop_where_asked(const StopRequests& requests);  // throws Stopped

}  // namespace sluice
