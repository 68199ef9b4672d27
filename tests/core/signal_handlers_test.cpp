// Who gets a signal, and when. In processes of their own.
#include "core/signal_handlers.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <initializer_list>
#include <optional>
#include <thread>
#include <utility>

namespace sluice {
namespace {

using Signal = SignalHandlers::Signal;

volatile sig_atomic_t before_got = 0, first_got = 0, second_got = 0;
void before_gets(int) { before_got = before_got + 1; }
void first_gets(int) { first_got = first_got + 1; }
void second_gets(int) { second_got = second_got + 1; }
using Counts = std::array<int, 3>;  // of those three

// 0, or the number of the first of these that does not hold.
int first_broken(std::initializer_list<bool> promises) {
  int number = 0;
  for (const bool holds : promises) {
    ++number;
    if (!holds) return number;
  }
  return 0;
}

template <typename Act>
bool after(const Act& act, const Counts& counts) {
  act();
  return Counts{before_got, first_got, second_got} == counts;
}
bool after_raising(int number, const Counts& counts) {
  return after([&] { std::raise(number); }, counts);
}

void expect_promises(int (*broken)()) { EXPECT_EXIT(_exit(broken()), testing::ExitedWithCode(0), ""); }

TEST(SignalHandlersDeath, get_signals_as_long_as_they_live) {
  expect_promises([] {
    std::signal(SIGUSR1, before_gets);
    std::optional<SignalHandlers> handlers(std::in_place, std::initializer_list<Signal>{{SIGUSR1}}, first_gets);
    return first_broken({after_raising(SIGUSR1, {0, 1, 0}), after_raising(SIGUSR1, {0, 2, 0}),
                         after([&] { handlers.reset(); }, {0, 2, 0}), after_raising(SIGUSR1, {1, 2, 0})});
  });
}

TEST(SignalHandlersDeath, leave_what_the_process_ignores_or_handle_it_as_they_are_told) {
  expect_promises([] {
    for (const int number : {SIGUSR1, SIGUSR2}) std::signal(number, SIG_IGN);
    std::optional<SignalHandlers> handlers(
        std::in_place, std::initializer_list<Signal>{{SIGUSR1}, {SIGUSR2, SignalHandlers::Ignored::kIsHandled}},
        first_gets);
    return first_broken({after_raising(SIGUSR1, {0, 0, 0}), after_raising(SIGUSR2, {0, 1, 0}),
                         after([&] { handlers.reset(); }, {0, 1, 0}), after_raising(SIGUSR2, {0, 1, 0})});
  });
}

volatile sig_atomic_t is_in_handler = 0, times_met = 0, times_called = 0;
void raises_the_other(int number) {
  if (is_in_handler != 0) times_met = times_met + 1;
  is_in_handler = 1;
  times_called = times_called + 1;
  if (number == SIGUSR1) std::raise(SIGUSR2);
  is_in_handler = 0;
}

TEST(SignalHandlersDeath, are_met_by_no_other_signal) {
  expect_promises([] {
    const SignalHandlers handlers({{SIGUSR1}, {SIGUSR2}}, raises_the_other);
    std::raise(SIGUSR1);
    return first_broken({times_called == 2, times_met == 0});
  });
}

TEST(SignalHandlersDeath, let_calls_go_on_that_a_signal_meets) {
  expect_promises([] {
    const SignalHandlers handlers({{SIGUSR1}}, first_gets);
    struct sigaction action {};
    sigaction(SIGUSR1, nullptr, &action);
    return first_broken({(action.sa_flags & SA_RESTART) != 0});
  });
}

TEST(SignalHandlersDeath, that_take_over_keep_their_signals_when_the_earlier_ones_go) {
  expect_promises([] {
    for (const int number : {SIGUSR1, SIGUSR2}) std::signal(number, before_gets);
    std::optional<SignalHandlers> earlier(std::in_place, std::initializer_list<Signal>{{SIGUSR1}, {SIGUSR2}},
                                          first_gets);
    std::optional<SignalHandlers> later(std::in_place, std::initializer_list<Signal>{{SIGUSR1}}, second_gets);
    later->take_over(*earlier);
    return first_broken({after_raising(SIGUSR1, {0, 0, 1}), after_raising(SIGUSR2, {0, 1, 1}),
                         after([&] { earlier.reset(); }, {0, 1, 1}), after_raising(SIGUSR1, {0, 1, 2}),
                         after_raising(SIGUSR2, {1, 1, 2}), after([&] { later.reset(); }, {1, 1, 2}),
                         after_raising(SIGUSR1, {2, 1, 2})});
  });
}

bool is_held(int number) {
  sigset_t held;
  pthread_sigmask(SIG_BLOCK, nullptr, &held);
  return sigismember(&held, number) == 1;
}

TEST(SignalsHeldDeath, wait_until_they_are_let_go) {
  expect_promises([] {
    std::signal(SIGUSR1, before_gets);
    std::optional<SignalsHeld> held(std::in_place);
    return first_broken({after_raising(SIGUSR1, {0, 0, 0}), after([&] { held.reset(); }, {1, 0, 0}),
                         after_raising(SIGUSR1, {2, 0, 0})});
  });
}

TEST(SignalsHeldDeath, wait_on_the_threads_that_are_started_meanwhile_and_where_they_waited_before) {
  expect_promises([] {
    sigset_t before;
    sigemptyset(&before);
    sigaddset(&before, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &before, nullptr);
    bool on_thread = false;
    {
      const SignalsHeld held;
      std::thread([&] { on_thread = is_held(SIGUSR1); }).join();
    }
    return first_broken({on_thread, !is_held(SIGUSR1), is_held(SIGUSR2)});
  });
}

TEST(EndBySignalDeath, ends_a_process_whose_handler_calls_it) {
  EXPECT_EXIT(
      {
        const SignalHandlers handlers({{SIGTERM}}, end_by_signal);
        std::raise(SIGTERM);
        _exit(0);
      },
      testing::KilledBySignal(SIGTERM), "");
}

TEST(EndBySignalDeath, ends_a_process_that_ignores_the_signal) {
  EXPECT_EXIT(
      {
        std::signal(SIGTERM, SIG_IGN);
        end_by_signal(SIGTERM);
      },
      testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace sluice
