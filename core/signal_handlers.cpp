#include "core/signal_handlers.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>

namespace sluice {

SignalHandlers::SignalHandlers(std::initializer_list<Signal> signals, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigfillset(&action.sa_mask);
  for (const Signal& signal : signals) {
    Before before{.number = signal.number, .action = {}};
    sigaction(signal.number, &action, &before.action);
    if (before.action.sa_handler == SIG_IGN && signal.ignored == Ignored::kStaysIgnored) {
      sigaction(signal.number, &before.action, nullptr);
    }
    before_.push_back(before);
  }
}

SignalHandlers::~SignalHandlers() {
  for (const Before& before : before_) sigaction(before.number, &before.action, nullptr);
}

void SignalHandlers::take_over(SignalHandlers& earlier) {
  for (Before& own : before_) {
    const auto both = std::ranges::find(earlier.before_, own.number, &Before::number);
    if (both == earlier.before_.end()) continue;
    own.action = both->action;
    earlier.before_.erase(both);
  }
}

SignalsHeld::SignalsHeld() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before_);
}

SignalsHeld::~SignalsHeld() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

void end_by_signal(int number) {
  signal(number, SIG_DFL);
  sigset_t held;  // while its handler runs
  sigemptyset(&held);
  sigaddset(&held, number);
  pthread_sigmask(SIG_UNBLOCK, &held, nullptr);
  raise(number);
  _exit(128 + number);
}

}  // namespace sluice
