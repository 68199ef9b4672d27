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
    end_by_signal(number);
  }
}

auto noting_anew() {
  noted_signal = 0;
  return note_signal;
}

}  // namespace

BrokenPipesIgnored::BrokenPipesIgnored() : handlers_({{SIGPIPE}}, SIG_IGN) {}

// A shell's background jobs ignore SIGINT, and a run there is to hear it; nohup(1) means that a closed terminal is
// none.
StopRequests::StopRequests()
    : requests_({{SIGINT, SignalHandlers::Ignored::kIsHandled},
                 {SIGTERM, SignalHandlers::Ignored::kIsHandled},
                 {SIGHUP, SignalHandlers::Ignored::kStaysIgnored}},
                noting_anew()) {}

void StopRequests::take_over(SignalHandlers& earlier) {
  requests_.take_over(earlier);
  broken_pipes_.take_over(earlier);
}

int StopRequests::signal() const { return noted_signal; }

void stop_where_asked(const StopRequests& requests) {
  if (requests.signal() != 0) throw Stopped{requests.signal()};
}

}  // namespace sluice
