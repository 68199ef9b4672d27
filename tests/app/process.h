// The real command, run as a process of its own.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

struct Ended {
  int exit_code = -1;  // -1: ended by a signal
  int signal = 0;
  std::string out, err;
  int64_t peak_resident_bytes = 0;
  // The last line of standard error: an error's one line.
  std::string last_error_line() const;
};

// Runs a program without a shell and waits for its end. Its two outputs are kept in files, so neither can fill up.
Ended run_process(const std::vector<std::string>& arguments);

}  // namespace sluice
