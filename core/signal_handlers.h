// Handlers of signals for a while. They are the whole process's: no two owners of one signal at a time.
#pragma once
#include <signal.h>

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace sluice {

// While it lives, these signals go to `handler`, then again to whom they went before. Calls that a signal meets go on.
class SignalHandlers {
 public:
  // What becomes of a signal that the process has been told to ignore, as nohup(1) tells it.
  enum class Ignored : uint8_t { kStaysIgnored, kIsHandled };
  struct Signal {
    int number;
    Ignored ignored = Ignored::kStaysIgnored;
  };
  SignalHandlers(std::initializer_list<Signal> signals, void (*handler)(int));
  ~SignalHandlers();
  SignalHandlers(const SignalHandlers&) = delete;
  SignalHandlers& operator=(const SignalHandlers&) = delete;

 private:
  struct Before {
    int number;
    struct sigaction action;
  };
  std::vector<Before> before_;
};

// While it lives, all signals to this thread wait, and to those that it starts.
class SignalsHeld {
 public:
  SignalsHeld();
  ~SignalsHeld();
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

 private:
  sigset_t before_;
};

}  // namespace sluice
