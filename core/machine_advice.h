// What to do where neither a path nor what is in a file is at fault, in one set of words for all messages.
#pragma once
#include <cerrno>

namespace sluice {

// Of a file operation's errno; whoever has more to say goes on from there. `otherwise`: where the path or the file may
// be at fault.
constexpr const char* advice_of_machine(int error_number, const char* otherwise = "") {
  switch (error_number) {
    case EIO:
      return "look at the drive's health (dmesg) and its cables";
    case EDQUOT:
      return "the user's quota on that drive is used up: have it raised, or free what counts to it";
    case EFBIG:
      return "raise the limit on the size of a file (ulimit -f)";
    case EMFILE:
      return "too many files are open: raise the limit of the process (ulimit -n)";
    case ENFILE:
      return "too many files are open: raise the limit of the system (sysctl fs.file-max)";
    case ENOMEM:
      return "the system is out of memory: free some, or raise the limit of the container";
    default:
      return otherwise;
  }
}

}  // namespace sluice
