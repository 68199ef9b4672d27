#include "bench/scratch_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <string>

#include "core/errors.h"

namespace sluice {

namespace fs = std::filesystem;

ScratchFolder::ScratchFolder(const fs::path& parent) {
  std::error_code error;
  const fs::path absolute = fs::absolute(parent);
  for (fs::path up = absolute; !fs::exists(up, error) && up.has_relative_path(); up = up.parent_path()) {
    made_parent_ = up;
  }
  fs::create_directories(absolute, error);
  std::string name = (absolute / "sluice-bench-XXXXXX").string();
  if (error || mkdtemp(name.data()) == nullptr) {
    throw IoError({.action = "make a folder",
                   .path = name,
                   .error_number = error ? error.value() : errno,
                   .advice = "name a folder that can be written with sluice.nvme"});
  }
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  if (!made_parent_.empty()) fs::remove_all(made_parent_, ignored);
}

void ScratchFolder::unlink_files() const noexcept {
  std::error_code ignored;
  for (fs::directory_iterator at(path_, ignored), end; !ignored && at != end; at.increment(ignored)) {
    fs::remove(at->path(), ignored);
  }
}

}  // namespace sluice
