// Processes whose end and words a test looks at.
#pragma once
#include <cstdint>
#include <functional>
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
// The same for what `body` does in a child of this process, which exits with what it returns: LibTorch and a sanitizer
// are loaded once. The child has the calling thread alone, so others must hold no lock: run_process() beside threads.
Ended run_forked(const std::function<int()>& body);

}  // namespace sluice
