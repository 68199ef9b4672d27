#include "bench/scratch_folder.h"

#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <initializer_list>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/errors.h"
#include "core/folders.h"
#include "swap/drive.h"

namespace sluice {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kScratchPrefix = "sluice-bench-", kScratchLetters = "XXXXXX";  // mkdtemp's

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

namespace {

// Between the thread that makes and removes folders and the handler, on whatever thread that runs.
std::atomic_flag known_folders_in_use = ATOMIC_FLAG_INIT;
std::atomic<const std::deque<MadeFolder>*> known_folders;
std::atomic<bool> is_ending = false;  // the handler runs, or waits to
static_assert(decltype(known_folders)::is_always_lock_free && decltype(is_ending)::is_always_lock_free);

// By what a handler may call (POSIX, "Signal Concepts").
void use_known_folders() {
  while (known_folders_in_use.test_and_set()) poll(nullptr, 0, 1);
}

// While it lives, the known folders may be changed: the handler cannot run on this thread, and waits on others. Once it
// has been called this does not come back: what follows may be no change that the handler should know of.
class KnownFoldersInUse {
 public:
  KnownFoldersInUse() { use_known_folders(); }
  ~KnownFoldersInUse() {
    known_folders_in_use.clear();
    while (is_ending) poll(nullptr, 0, -1);
  }
  KnownFoldersInUse(const KnownFoldersInUse&) = delete;
  KnownFoldersInUse& operator=(const KnownFoldersInUse&) = delete;

 private:
  const SignalsHeld held_;  // signals come again when the folders are no more in use
};

extern "C" void take_away_and_end(int number) {
  is_ending = true;
  use_known_folders();  // until the process has ended
  if (const std::deque<MadeFolder>* const folders = known_folders.load()) {
    for (auto folder = folders->rbegin(); folder != folders->rend(); ++folder) {
      for (auto path = folder->made().rbegin(); path != folder->made().rend(); ++path) rmdir(path->c_str());
    }
  }
  end_by_signal(number);
}

}  // namespace

FoldersGoneOnSignals::FoldersGoneOnSignals() {
  known_folders = &folders_;
  handlers_.emplace(std::initializer_list<SignalHandlers::Signal>{{SIGINT}, {SIGTERM}, {SIGHUP}, {SIGQUIT}, {SIGPIPE}},
                    take_away_and_end);
}

FoldersGoneOnSignals::~FoldersGoneOnSignals() {
  {
    const KnownFoldersInUse use;
    while (!folders_.empty()) folders_.pop_back();  // the last of them may lie in others
  }
  leave_signals();
}

void FoldersGoneOnSignals::leave_signals() {
  if (!handlers_) return;
  {
    const KnownFoldersInUse use;
    known_folders = nullptr;
  }
  handlers_.reset();
}

const MadeFolder& FoldersGoneOnSignals::make(const fs::path& folder, std::string advice) {
  const KnownFoldersInUse use;
  return folders_.emplace_back(folder, std::move(advice));
}

fs::path without_scratch(const fs::path& folder) {
  const std::string name = folder.filename().string();
  const bool is_scratch =
      name.size() == kScratchPrefix.size() + kScratchLetters.size() && name.starts_with(kScratchPrefix);
  return is_scratch ? folder.parent_path() : folder;
}

fs::path ScratchFolder::pattern_in(const fs::path& parent) {
  return (parent / kScratchPrefix).string().append(kScratchLetters);
}

ScratchFolder::ScratchFolder(const fs::path& parent) : parent_(parent) {
  constexpr int kTries = 10;
  const std::string pattern = pattern_in(parent_.path()).string();
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
