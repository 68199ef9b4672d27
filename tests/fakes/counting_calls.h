// Counts what a program calls of the C library: files opened, closed and synced, locks taken. In its own program only;
// not counted where a sanitizer has put itself in front of these calls.
#pragma once
#include <cstdint>

namespace sluice {

struct CallCounts {
  int64_t opens = 0, closes = 0, locks = 0, folder_syncs = 0, data_syncs = 0;
  bool operator==(const CallCounts&) const = default;
};
enum class CallsCounted { kNo, kYes };
CallsCounted calls_are_counted();
CallCounts count_calls();

}  // namespace sluice
