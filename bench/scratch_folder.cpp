#include "bench/scratch_folder.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string>

#include "core/errors.h"
#include "core/folders.h"
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

// Another process may take a folder above it away, which it had made itself.
void MadeFolder::make() {
  constexpr int kTries = 10;
  std::error_code error = make_missing_folders(path_, made_);
  for (int tries = 1; error == std::errc::no_such_file_or_directory && tries < kTries; ++tries)
    error = make_missing_folders(path_, made_);
  if (!error) return sync_parents(made_);
  remove_made();
  refuse(path_, error.value(), advice_);
}

MadeFolder::~MadeFolder() { remove_made(); }

// Empty folders alone: nothing else that has taken the name.
void MadeFolder::remove_made() noexcept {
  for (; !made_.empty(); made_.pop_back()) rmdir(made_.back().c_str());
}

std::vector<fs::path> MadeFolders::made() const {
  std::vector<fs::path> paths;
  for (const MadeFolder& folder : folders_) paths.insert(paths.end(), folder.made().begin(), folder.made().end());
  std::ranges::reverse(paths);
  return paths;
}

namespace {

std::atomic<const std::vector<fs::path>*> taken_away;  // by the handler, which may call what POSIX says alone

extern "C" void take_away_and_end(int number) {
  for (const fs::path& path : *taken_away.load()) rmdir(path.c_str());
  signal(number, SIG_DFL);
  raise(number);
}

auto taking_away(const std::vector<fs::path>& paths) {
  taken_away = &paths;
  return take_away_and_end;
}

}  // namespace

GoneOnSignals::GoneOnSignals(const MadeFolders& folders)
    : paths_(folders.made()), handlers_({{SIGINT}, {SIGTERM}, {SIGHUP}, {SIGQUIT}, {SIGPIPE}}, taking_away(paths_)) {}

ScratchFolder::ScratchFolder(const fs::path& parent) : parent_(parent) {
  constexpr int kTries = 10;
  const std::string pattern = (parent_.path() / kScratchPrefix).string() + "XXXXXX";
  std::string name = pattern;
  for (int tries = 1; mkdtemp(name.data()) == nullptr; ++tries) {
    if (errno != ENOENT || tries == kTries) refuse(parent_.path(), errno, parent_.advice());
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
