#include "bench/scratch_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <string>

#include "core/errors.h"
#include "swap/drive.h"

namespace sluice {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void refuse(const fs::path& folder, int error_number, const std::string& advice) {
  throw IoError({.action = "creation", .path = folder.string(), .error_number = error_number, .advice = advice});
}

}  // namespace

MadeFolder::MadeFolder(const fs::path& folder, std::string advice)
    : path_(fs::absolute(folder).lexically_normal()), advice_(std::move(advice)) {
  if (!path_.has_filename()) path_ = path_.parent_path();  // "FOLDER/"
  make();
}

void MadeFolder::make() {
  std::error_code error;
  for (fs::path up = path_; !fs::exists(up, error) && up.has_relative_path(); up = up.parent_path()) first_made_ = up;
  fs::create_directories(path_, error);
  if (error) {
    remove_made();
    refuse(path_, error.value(), advice_);
  }
}

MadeFolder::~MadeFolder() { remove_made(); }

// As far as it was made, and nothing is in it.
void MadeFolder::remove_made() noexcept {
  if (was_there()) return;
  std::error_code error;
  for (fs::path up = path_;; up = up.parent_path()) {
    fs::remove(up, error);
    if (error || up == first_made_) return;
  }
}

ScratchFolder::ScratchFolder(const fs::path& parent) : parent_(parent) {
  constexpr int kTries = 10;
  const std::string pattern = (parent_.path() / "sluice-bench-XXXXXX").string();
  std::string name = pattern;
  for (int tries = 1; mkdtemp(name.data()) == nullptr; ++tries) {
    if (errno != ENOENT || tries == kTries) refuse(pattern, errno, parent_.advice());
    parent_.make();  // another benchmark had made it, and is through
    name = pattern;
  }
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  unlink_files();
  std::error_code ignored;
  if (fs::remove(path_, ignored)) return;
  fs::remove_all(path_, ignored);
}

void ScratchFolder::unlink_files() const noexcept {
  std::error_code ignored;
  fs::remove(store_path(path_, 0), ignored);  // by name, which takes no descriptor
  for (fs::directory_iterator at(path_, ignored), end; !ignored && at != end; at.increment(ignored)) {
    fs::remove(at->path(), ignored);
  }
}

}  // namespace sluice
