// What a person sees while a command runs: results on standard output, the log and a progress bar on standard error.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/log.h"

namespace sluice {

// Not copyable: the log refers to it. print() and progress() from one thread at a time; the log from any.
class Console {
 public:
  Console();
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // Tables and results; `text` ends without a newline.
  void print(const std::string& text);
  // Lines with the time of day. The Log must not outlive the console.
  Log log();
  // A bar with `done` of `total`, the time left at the rate so far, and a few words; nothing where standard error is no
  // terminal. The first call of a task starts its clock; finish_progress() wipes the bar.
  void progress(int64_t done, int64_t total, const std::string& words);
  void finish_progress();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A progress line that leaves a terminal's last column free, where it would begin the next row: without its bar where
// both do not fit, and no more of the text than does. ASCII.
std::string one_row(const std::string& bar, const std::string& text, size_t columns);

// "1:05:09", "4:07": hours, minutes and seconds.
std::string format_duration(double seconds);
// " (1:05:09 h)", " (4:07 min)": to stand behind so many seconds or milliseconds. Empty below a minute.
std::string duration_beside(double seconds);

}  // namespace sluice
