#include "app/signals.h"

#include <csignal>
#include <initializer_list>

namespace sluice {
namespace {

// A handler can reach nothing but this.
volatile std::sig_atomic_t noted_signal = 0;

extern "C" void note_signal(int number) { noted_signal = number; }

void install(int number, void (*handler)(int), int flags) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  sigaction(number, &action, nullptr);
}

}  // namespace

StopRequests::StopRequests() {
  noted_signal = 0;
  // Reset by the kernel before the handler runs: the second signal meets the default action.
  for (const int number : {SIGINT, SIGTERM}) install(number, note_signal, SA_RESTART | SA_RESETHAND);
}

StopRequests::~StopRequests() {
  for (const int number : {SIGINT, SIGTERM}) install(number, SIG_DFL, 0);
}

int StopRequests::signal() const { return noted_signal; }

}  // namespace sluice
