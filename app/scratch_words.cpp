#include "app/scratch_words.h"

#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "bench/scratch_folder.h"
#include "swap/advice.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// Where the scratch folder lies that has this file; empty: none has.
fs::path folder_of_scratch(const fs::path& file) {
  for (fs::path at = file; at.has_relative_path(); at = at.parent_path()) {
    if (at.filename().string().starts_with(kScratchPrefix)) return at.parent_path();
  }
  return {};
}

std::string advice_for(int error_number, std::string_view option) {
  const std::string advice = advice_of_machine(error_number);
  if (!advice.empty()) return advice;
  switch (error_number) {
    case ENOSPC:
      return fmt::format("make room there, or name another folder ({})", option);
    case EDQUOT:
      return kOverQuota;
    case EFBIG:
      return "raise the limit on the size of a file (ulimit -f)";
    case EINVAL:
    case EOPNOTSUPP:
      return fmt::format("direct I/O may be lacking there: name a folder on a local drive with ext4 or xfs ({})",
                         option);
    default:
      return fmt::format("look at the drive and its file system (dmesg), or name another folder ({})", option);
  }
}

}  // namespace

void rethrow_in_scratch_words(const IoError& error, std::string_view option) {
  IoError::Details details = error.details();
  const fs::path folder = folder_of_scratch(details.path);
  if (folder.empty()) throw error;
  details.path = fmt::format("a file of its own in {}", folder.string());
  details.advice = advice_for(details.error_number, option);
  throw IoError(std::move(details));
}

}  // namespace sluice
