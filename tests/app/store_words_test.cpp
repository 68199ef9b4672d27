// What the store tells people names options of the command that they have given.
#include "app/store_words.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include "tests/app/command_fixture.h"
#include "tests/fakes/forbidden_call.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class StoreWordsOfCommands : public CommandTest {
 protected:
  // On a drive without a byte to spare.
  Ended on_a_full_drive(const std::vector<std::string>& arguments) const {
    Ended ended;
    std::thread([&] {
      forbid({.number = SYS_fallocate, .error_number = ENOSPC});
      ended = sluice_program(arguments);
    }).join();
    return ended;
  }
  static std::vector<std::string> training(std::vector<std::string> more) {
    more.insert(more.begin(),
                {"train", "@run.json", "--data", "@text.txt", "--out", "@run", "--machine", "@machine.json"});
    return more;
  }
  std::string drive() const { return "sluice.nvme=[\"" + file("drive") + "\"]"; }
};

TEST_F(StoreWordsOfCommands, are_a_runs_in_training) {
  const Ended full = on_a_full_drive(
      {"train", "@run.json", "--data", "@text.txt", "--out", "@run", "--machine", "@machine.json", "--set", drive()});
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_THAT(full.last_error_line(),
              AllOf(HasSubstr(file("drive/sluice-0.swap")), HasSubstr("a larger drive (--out or sluice.nvme)")));
  ASSERT_EQ(train("run", {"--steps", "1", "--set", drive()}).exit_code, 0);
  const int store = open(file("drive/sluice-0.swap").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(flock(store, LOCK_EX), 0);
  const Ended used = train("run", {"--steps", "2", "--resume", "--set", drive()});
  EXPECT_EQ(used.exit_code, 2);
  EXPECT_THAT(used.last_error_line(), HasSubstr("needs another folder (--out or sluice.nvme)"));
  close(store);
}

TEST_F(StoreWordsOfCommands, are_of_the_drives_where_a_step_is_measured) {
  for (const std::vector<std::string>& measuring :
       {std::vector<std::string>{"bench", "step", "@run.json", "--machine", "@machine.json", "--set", drive()},
        {"tune", "@run.json", "--out", "@tuned.json", "--set", drive()}}) {
    const Ended ended = on_a_full_drive(measuring);
    EXPECT_EQ(ended.exit_code, 1);
    EXPECT_THAT(ended.last_error_line(),
                AllOf(HasSubstr("of a file of its own in " + file("drive")), HasSubstr("a larger drive (sluice.nvme)"),
                      Not(HasSubstr("--out")), Not(HasSubstr("sluice-bench-"))))
        << measuring[0];
  }
}

TEST_F(StoreWordsOfCommands, are_the_benchmarks_own_where_it_makes_files) {
  const std::string path = file("drive");
  for (const std::vector<std::string>& measuring :
       {std::vector<std::string>{"bench", "io", "--path", path, "--sweep"},
        {"bench", "copy", "--device", "cpu", "--size", "64MiB", "--path", path}}) {
    const Ended ended = on_a_full_drive(measuring);
    EXPECT_EQ(ended.exit_code, 1);
    EXPECT_THAT(ended.last_error_line(),
                AllOf(HasSubstr(path), HasSubstr("a larger drive (--path); a smaller --size takes less"),
                      Not(HasSubstr("sluice.nvme"))))
        << measuring[1];
  }
}

TEST_F(StoreWordsOfCommands, name_the_key_of_the_backend_that_cannot_be_had) {
  Ended run, bench;
  std::thread([&] {
    forbid({.number = SYS_io_uring_setup, .error_number = EPERM});
    run = sluice_program(training({"--set", "sluice.io_backend=uring"}));
    bench = sluice_program({"bench", "io", "--path", file("drive"), "--size", "16MiB", "--backend", "uring"});
  }).join();
  EXPECT_THAT(run.last_error_line(), HasSubstr("take the I/O backend threads, or auto (sluice.io_backend)"));
  EXPECT_THAT(bench.last_error_line(), HasSubstr("take the I/O backend threads, or auto (--backend)"));
}

}  // namespace
}  // namespace sluice
