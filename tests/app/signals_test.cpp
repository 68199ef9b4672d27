// Which signals a run takes for a request to stop, and which end it. In processes of their own.
#include "app/signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "core/clock.h"

namespace sluice {
namespace {

// Longer than what is taken for one request; by the same clock, so that nobody sleeps.
void pass_a_request() {
  const int64_t began = now_ns();
  while (now_ns() - began < 250'000'000) {
  }
}

TEST(StopRequestsDeath, a_second_request_ends_the_process_at_once) {
  for (const int number : {SIGINT, SIGTERM}) {
    EXPECT_EXIT(
        {
          const StopRequests requests;
          std::raise(number);
          pass_a_request();
          std::raise(number);
          _exit(0);
        },
        testing::KilledBySignal(number), "");
  }
}

// A terminal that closes may say so more than once, long after the first.
TEST(StopRequestsDeath, a_terminal_that_is_closed_never_ends_the_process) {
  EXPECT_EXIT(
      {
        const StopRequests requests;
        std::raise(SIGHUP);
        pass_a_request();
        std::raise(SIGHUP);
        _exit(requests.signal());
      },
      testing::ExitedWithCode(SIGHUP), "");
}

TEST(StopRequestsDeath, a_closed_terminal_that_nohup_has_ignored_is_no_request) {
  EXPECT_EXIT(
      {
        std::signal(SIGHUP, SIG_IGN);
        const StopRequests requests;
        std::raise(SIGHUP);
        _exit(requests.signal());
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace sluice
