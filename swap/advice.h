// What the store's messages tell people to do, in the words of the command.
#pragma once
#include <cerrno>

namespace sluice {

constexpr const char* kNamesFolders = "(--out or sluice.nvme)";  // give another folder ...
constexpr const char* kNamesScratchFolders = "(--out or sluice.nvme; for bench io and bench copy: --path)";
constexpr const char* kOverQuota =
    "the user's quota on that drive is used up: have it raised, or free what counts to it";
constexpr const char* kStartOver = "start over with a new store (--overwrite)";
constexpr const char* kGoOn = "go on from the last committed step (--resume)";

// Where it is neither the folder nor the file that refuses; empty: it may be.
constexpr const char* advice_of_machine(int error_number) {
  switch (error_number) {
    case EIO:
      return "look at the drive's health (dmesg) and its cables, and try again";
    case EMFILE:
      return "too many files are open: raise the limit of the process (ulimit -n)";
    case ENFILE:
      return "too many files are open: raise the limit of the system (sysctl fs.file-max)";
    case ENOMEM:
      return "the system is out of memory: free some, or raise the limit of the container";
    default:
      return "";
  }
}

}  // namespace sluice
