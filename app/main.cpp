#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <string_view>

#include "app/command_line.h"

namespace {

// Commands that compute a model. Others run as they were started: sooner, and under an emulator too.
bool computes(std::span<char* const> arguments) {
  const auto word = [&](size_t i) {
    return i < arguments.size() ? std::string_view(arguments[i]) : std::string_view();
  };
  constexpr std::string_view kComputing[] = {"train", "plan", "tune", "generate"};
  return std::ranges::find(kComputing, word(1)) != std::end(kComputing) || (word(1) == "bench" && word(2) == "step");
}

// LibTorch's compute threads spin for milliseconds at their barriers unless told otherwise; where cores also run the
// update, the copies or other people's work that costs up to ten times the step. A thread that sleeps at once costs a
// wake at every operator. So they spin for about as long as a sleep and a wake take, then sleep (bench/README.md,
// "What waiting at a barrier costs"). The threading library reads this as it is loaded, before main: so the program
// starts itself anew once, as the same process.
void bound_spinning(char** argv) {
  if (getenv("OMP_WAIT_POLICY") != nullptr || getenv("GOMP_SPINCOUNT") != nullptr) return;
  setenv("GOMP_SPINCOUNT", "3000", 1);  // pauses of 15 to 40 ns
  execv("/proc/self/exe", argv);        // comes back only where it failed: slower, not wrong
}

// A standard stream that is closed would be the number of the next file that is opened, and that file get its text.
void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) < 0 && open("/dev/null", O_RDWR) != stream) _exit(1);
  }
}

// A shell tells its background jobs to ignore SIGINT, and one that is meant for a run comes by its number. While steps
// run it is a request to stop (app/signals.h).
void hear_interrupts() {
  struct sigaction now {};
  if (sigaction(SIGINT, nullptr, &now) == 0 && now.sa_handler == SIG_IGN) signal(SIGINT, SIG_DFL);
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  signal(SIGXFSZ, SIG_IGN);  // a file over the limit of `ulimit -f` is an error with a message, not the end
  if (computes({argv, static_cast<size_t>(argc)})) {
    hear_interrupts();
    bound_spinning(argv);
  }
  return sluice::run_command_line(argc, argv, sluice::make_io_queue);
}
