#include "tests/app/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#ifdef __SANITIZE_ADDRESS__
extern "C" void __lsan_do_leak_check();  // of <sanitizer/lsan_interface.h>
#endif

namespace sluice {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

std::string whole(std::FILE* file) {
  std::string text;
  std::rewind(file);
  char buffer[4096];
  for (size_t got; (got = std::fread(buffer, 1, sizeof buffer, file)) > 0;) text.append(buffer, got);
  return text;
}

// `child` does not return.
template <typename Child>
Ended ended_child(const Child& child) {
  const File out(std::tmpfile(), std::fclose), err(std::tmpfile(), std::fclose);
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(fileno(out.get()), STDOUT_FILENO);
    dup2(fileno(err.get()), STDERR_FILENO);
    child();
  }
  int status = 0;
  rusage usage{};
  EXPECT_EQ(wait4(pid, &status, 0, &usage), pid);
  Ended ended{.out = whole(out.get()), .err = whole(err.get()), .peak_resident_bytes = usage.ru_maxrss * 1024};
  if (WIFEXITED(status)) ended.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
  return ended;
}

}  // namespace

std::string Ended::last_error_line() const {
  std::string text = err;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

Ended run_process(const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  return ended_child([&] {
    execvp(argv[0], argv.data());
    _exit(127);
  });
}

// Without the destructors of static objects: LibTorch's take a tenth of a second, and are the program's own in
// run_process(). A sanitizer looks for leaks at an exit() only, so it is asked to.
Ended run_forked(const std::function<int()>& body) {
  return ended_child([&] {
    const int code = body();
    std::fflush(nullptr);
#ifdef __SANITIZE_ADDRESS__
    __lsan_do_leak_check();
#endif
    _exit(code);
  });
}

}  // namespace sluice
