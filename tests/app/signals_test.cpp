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
        std::signal(SIGHUP, SIG_DFL);  // whatever this test was started with
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

TEST(StopRequestsDeath, a_job_in_the_background_hears_the_interrupt_that_its_shell_ignores_for_it) {
  EXPECT_EXIT(
      {
        std::signal(SIGINT, SIG_IGN);
        const StopRequests requests;
        std::raise(SIGINT);
        _exit(requests.signal());
      },
      testing::ExitedWithCode(SIGINT), "");
}

TEST(StopRequests, leave_the_handlers_as_they_were) {
  struct sigaction before {};
  sigaction(SIGTERM, nullptr, &before);
  {
    const StopRequests requests;
    struct sigaction meanwhile {};
    sigaction(SIGTERM, nullptr, &meanwhile);
    EXPECT_NE(meanwhile.sa_handler, before.sa_handler);
  }
  struct sigaction after {};
  sigaction(SIGTERM, nullptr, &after);
  EXPECT_EQ(after.sa_handler, before.sa_handler);
}

}  // namespace
}  // namespace sluice
