// Which signals a run takes for a request to stop, and which end it. In processes of their own.
#include "app/signals.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "app/folders_of_run.h"
#include "core/clock.h"
#include "tests/fakes/temp_folder.h"

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

// Another thread, as one that plans, hears the signal while this one makes folders.
TEST(StopRequestsDeath, folders_go_with_a_signal_that_comes_while_one_of_them_is_made) {
  const TempFolder folder;
  const std::filesystem::path first = folder.path() / "run" / "inner", second = folder.path() / "drive";
  for (const std::filesystem::path& seen : {folder.path() / "run", first, second}) {
    EXPECT_EXIT(
        {
          std::signal(SIGTERM, SIG_DFL);
          std::optional<FoldersOfRun> folders(std::in_place);
          std::thread([&seen] {
            while (!std::filesystem::exists(seen)) {
            }
            kill(getpid(), SIGTERM);
          }).detach();
          folders->make(first, "");
          folders->make_for_stores({&second, 1}, {});
          StopRequests requests;
          folders->leave_signals_to(requests);
          while (requests.signal() == 0) {
          }
          folders.reset();  // it came after all that
          std::signal(SIGTERM, SIG_DFL);
          std::raise(SIGTERM);
        },
        testing::KilledBySignal(SIGTERM), "");
    EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << seen;
  }
}

// Signals that nobody handles do nothing to process 1 of a container.
TEST(StopRequestsDeath, folders_go_with_a_signal_to_process_1_and_so_does_the_process) {
  constexpr int kNotPermitted = 77;
  const TempFolder folder;
  const pid_t outside = fork();
  if (outside == 0) {
    if (unshare(CLONE_NEWPID) != 0) _exit(kNotPermitted);
    alarm(60);  // ends both where the signal did not
    const pid_t first = fork();
    if (first == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      FoldersOfRun folders;
      folders.make(folder.path() / "run", "");
      std::raise(SIGTERM);
      _exit(0);
    }
    int status = 0;
    waitpid(first, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(outside, &status, 0), outside);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNotPermitted) GTEST_SKIP() << "no process namespace can be made here";
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(StopRequestsDeath, take_over_from_what_takes_folders_away) {
  const TempFolder folder;
  const std::filesystem::path made = folder.path() / "run";
  EXPECT_EXIT(
      {
        std::signal(SIGTERM, SIG_DFL);
        std::signal(SIGPIPE, SIG_DFL);
        std::optional<FoldersOfRun> folders(std::in_place);
        folders->make(made, "");
        std::optional<StopRequests> requests(std::in_place);
        folders->leave_signals_to(*requests);
        std::raise(SIGTERM);
        std::raise(SIGPIPE);
        if (requests->signal() != SIGTERM || !std::filesystem::exists(made)) _exit(1);
        folders.reset();
        if (std::filesystem::exists(made)) _exit(2);
        requests.reset();
        for (const int number : {SIGTERM, SIGPIPE}) {
          struct sigaction after {};
          sigaction(number, nullptr, &after);
          if (after.sa_handler != SIG_DFL) _exit(3);
        }
        _exit(0);
      },
      testing::ExitedWithCode(0), "");
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
