#include "app/signals.h"

#include <time.h>

#include <atomic>
#include <csignal>
#include <cstdint>

namespace sluice {
namespace {

// A handler can reach nothing but these.
volatile std::sig_atomic_t noted_signal = 0;
std::atomic<int64_t> noted_at_ms = 0;
static_assert(std::atomic<int64_t>::is_always_lock_free);

int64_t clock_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1000000;
}

// timeout(1) and terminals send a signal to a process and once more to its group: that is one request.
extern "C" void note_signal(int number) {
  constexpr int64_t kOneRequestMs = 200;
  const int64_t now_ms = clock_ms();
  if (noted_signal == 0) {
    noted_at_ms = now_ms;
    noted_signal = number;
  } else if (number != SIGHUP && now_ms - noted_at_ms > kOneRequestMs) {
    std::signal(number, SIG_DFL);
    raise(number);  // once this handler has returned
  }
}

}  // namespace

StopRequests::StopRequests() {
  noted_signal = 0;
  struct sigaction ignored = {};
  ignored.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignored, &pipe_before_);
  for (Handled& each : handled_) {
    struct sigaction action = {};
    action.sa_handler = note_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(each.number, &action, &each.before);
    // nohup(1) has asked for a closed terminal to be ignored.
    if (each.number == SIGHUP && each.before.sa_handler == SIG_IGN) sigaction(each.number, &each.before, nullptr);
  }
}

StopRequests::~StopRequests() {
  sigaction(SIGPIPE, &pipe_before_, nullptr);
  for (const Handled& each : handled_) sigaction(each.number, &each.before, nullptr);
}

int StopRequests::signal() const { return noted_signal; }

}  // namespace sluice
