// Handlers of signals for a while. They are the whole process's: no two owners of one signal at a time.
#pragma once
#include <signal.h>

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace sluice {

// While it lives, these signals go to `handler`, then again to whom they went before. Calls that a signal meets go on;
// no other signal meets the handler on its thread.
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

  // Of the signals that both have: `earlier`, which was there when this one was made, has them no more, and after this
  // one they go to whom they went before it. No moment lies between the two.
  void take_over(SignalHandlers& earlier);

 private:
  struct Before {
    int number;
    struct sigaction action;
  };
  std::vector<Before> before_;
};

// While it lives, all signals to this thread wait, and to those that it starts. Other threads may get those that are
// for the whole process.
class SignalsHeld {
 public:
  SignalsHeld();
  ~SignalsHeld();
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

 private:
  sigset_t before_;
};

// For a handler: ends the process as this signal does by itself. As process 1 of a container, for which signals do
// nothing by themselves, with the exit code that a shell gives to it.
[[noreturn]] void end_by_signal(int number);

}  // namespace sluice
