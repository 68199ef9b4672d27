#include "swap/drive.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/stat.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include "core/bytes.h"
#include "core/errors.h"
#include "core/folders.h"
#include "core/geometry.h"
#include "core/machine_advice.h"
#include "core/retried.h"
#include "swap/drive_space.h"

namespace sluice {
namespace {

[[noreturn]] void fail_at(std::string path, const char* action, int error_number, std::string advice) {
  throw IoError({.action = action, .path = std::move(path), .error_number = error_number, .advice = std::move(advice)});
}

bool is_refusal_to_write(int error_number) {
  return error_number == EROFS || error_number == EACCES || error_number == EPERM;
}

bool is_link(const std::filesystem::path& path) noexcept {
  std::error_code ignored;
  return std::filesystem::is_symlink(path, ignored);
}

// Of what could not be opened. Empty: nothing that another folder would help against.
std::string_view advice_on_folder(int error_number, const std::filesystem::path& path) {
  std::error_code ignored;
  const std::filesystem::file_status there = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there))
    return "what is there is no regular file: remove it, or give another folder";
  if (error_number == ENOENT && is_link(path))
    return "a link to nothing is there: remove it, bring back what it leads to, or give another folder";
  if (error_number == EINVAL)
    return "this file system has no direct I/O: give a folder on a local drive with ext4 or xfs";
  if (is_refusal_to_write(error_number))
    return "the store is written to: make the drive and the file writable, or give another folder";
  return "";
}

// Of the process or of the file system.
std::string advice_beyond_limit(int64_t bytes) {
  return fmt::format(
      "a file of {} bytes ({}) is needed: raise the limit on the size of a file (ulimit -f), where it is not the file "
      "system's",
      bytes, format_bytes(bytes));
}

// Of the file system that an open file is on. -1: not known.
int64_t free_bytes_beside(int file) {
  struct statvfs space {};
  if (fstatvfs(file, &space) != 0) return -1;
  return static_cast<int64_t>(space.f_bavail) * static_cast<int64_t>(space.f_frsize);
}

// `or_else`: what there is to do but to make room.
[[noreturn]] void refuse_space(const FileSystemRoom& room, const StoreWords& words, std::string_view or_else) {
  std::vector<std::string> folders;
  for (const std::filesystem::path& folder : room.folders()) folders.push_back(words.name_of_folder(folder).string());
  throw IoError(
      {.action = "allocation",
       .path = words.name_of(room.files.front()),
       .offset = 0,
       .bytes = room.needed_bytes,
       .error_number = ENOSPC,
       .advice = fmt::format("{} bytes ({}) are needed, {} bytes ({}) are free in {}: make room{}{}", room.needed_bytes,
                             format_bytes(room.needed_bytes), room.free_bytes, format_bytes(room.free_bytes),
                             fmt::join(folders, ", "), or_else, or_else.empty() ? "" : words.folders)});
}

constexpr const char* kOrALargerDrive = ", or give a folder on a larger drive";

// As it is where that cannot be told.
std::filesystem::path absolute_of(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute;
}

constexpr int kOpenFlags = O_RDWR | O_DIRECT | O_CLOEXEC;

// -1: errno says why. Where there is no direct I/O the file is made before that is refused. What a link leads to is
// opened and never made: nobody would take it away again. A file that goes in the middle of this is made anew.
int open_or_make(const std::filesystem::path& path) {
  for (;;) {
    const int made = ::open(path.c_str(), kOpenFlags | O_CREAT | O_EXCL, 0644);
    if (made >= 0) return made;
    if (errno != EEXIST) break;
    const int there = ::open(path.c_str(), kOpenFlags);
    if (there >= 0 || errno != ENOENT) return there;
    if (!is_link(path)) continue;
    errno = ENOENT;
    return -1;
  }
  if (errno != EINVAL) return -1;
  unlink(path.c_str());
  errno = EINVAL;
  return -1;
}

}  // namespace

int64_t most_file_bytes() {
  struct rlimit limit {};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0) return INT64_MAX;
  return static_cast<int64_t>(std::min(limit.rlim_cur, static_cast<rlim_t>(INT64_MAX)));
}

std::filesystem::path store_path(const std::filesystem::path& folder, int rank) {
  return folder / fmt::format("sluice-{}.swap", rank);
}

bool is_there(const std::filesystem::path& path) {
  std::error_code error;  // none where there is no such file
  const bool exists = std::filesystem::exists(path, error);
  if (error)
    fail_at(path.string(), "stat", error.value(), "make the folder and those above it readable, or give another one");
  return exists;
}

Drive::Drive(const std::filesystem::path& path, Open how, const StoreWords* words)
    : words_(words),
      path_(path),
      absolute_path_(absolute_of(path)),
      file_(how == Open::kOrMake ? open_or_make(path) : ::open(path.c_str(), kOpenFlags)) {
  if (file_ >= 0) return;
  const int error_number = errno;
  if (how == Open::kThereOrReadOnly && is_refusal_to_write(error_number)) {
    write_refused_ = error_number;
    file_ = ::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  }
  if (file_ < 0) refuse_to_open("open", error_number);
}

void Drive::fail(const char* action, int error_number, std::string advice) const {
  fail_at(name(), action, error_number, std::move(advice));
}

std::string Drive::with_folders(std::string_view advice) const { return fmt::format("{}{}", advice, words_->folders); }

void Drive::refuse_to_open(const char* action, int error_number) const {
  const std::string_view on_folder = advice_on_folder(error_number, path_);
  fail(action, error_number, on_folder.empty() ? advice_of_machine(error_number) : with_folders(on_folder));
}

Drive::Drive(Drive&& other) noexcept
    : words_(other.words_),
      path_(std::move(other.path_)),
      absolute_path_(std::move(other.absolute_path_)),
      file_(std::exchange(other.file_, -1)),
      alignment_bytes_(other.alignment_bytes_),
      allocated_bytes_(other.allocated_bytes_),
      whole_bytes_(other.whole_bytes_),
      goes_with_owner_(other.goes_with_owner_),
      reserves_(std::exchange(other.reserves_, Reserves::kNothing)),
      locked_by_(other.locked_by_),
      write_refused_(other.write_refused_) {}

// The lock is held until the name is gone: nobody else's file has it. It is given up expressly, since a forked child's
// descriptor would keep it; and never by that child, which has it only as long as its parent does.
Drive::~Drive() {
  if (file_ < 0) return;
  if (locked_by_ == getpid()) {
    if (goes_with_owner_ && has_its_name()) take_away();
    if (reserves_ == Reserves::kBeyondItsEnd) give_back();
    flock(file_, LOCK_UN);
  }
  close(file_);
}

// A link is the user's. That the file behind it is empty is as much as can be taken back.
void Drive::take_away() const noexcept {
  if (is_link(absolute_path_)) {
    if (ftruncate(file_, 0) != 0) return;  // its space stays with it
  } else {
    unlink(absolute_path_.c_str());
  }
}

// To its length it is cut as well, which takes away what was allocated behind it.
void Drive::give_back() const noexcept {
  struct stat status {};
  if (fstat(file_, &status) == 0) cut_back(status.st_size);
}

// As far as the system allows it; else what was added stays with the file.
void Drive::cut_back(int64_t bytes) const noexcept {
  retried([this, bytes] { return ftruncate(file_, bytes); });
}

int64_t Drive::bytes() const {
  struct stat status {};
  if (fstat(file_, &status) != 0) fail("stat", errno);
  return status.st_size;
}

bool Drive::has_lost_bytes(const struct stat& now) const {
  if (now.st_size < whole_bytes_) return true;
  if (allocated_bytes_) return now.st_blocks * kStatBlockBytes < *allocated_bytes_;
  if (whole_bytes_ == 0) return false;
  const off_t data = lseek(file_, 0, SEEK_DATA);  // its header; ENXIO: all of it is a hole
  return data > 0 || (data < 0 && errno == ENXIO);
}

void Drive::check_whole() const {
  struct stat status {};
  if (fstat(file_, &status) != 0) fail("stat", errno);
  if (!has_lost_bytes(status)) return;
  fail(
      "commit", EIO,
      fmt::format("the file has been cut short: of {} bytes {} are left, {} of them allocated; nothing is committed to "
                  "it; bring back the file, or {}",
                  whole_bytes_, status.st_size, status.st_blocks * kStatBlockBytes, words_->start_over));
}

void Drive::check_named() const {
  if (is_nameless()) {
    fail("commit", ENOENT,
         fmt::format("the file has been deleted while it was in use; nothing more is committed to it: {}",
                     words_->start_over));
  }
  if (has_its_name()) return;
  struct stat named {};
  const int error_number = stat(absolute_path_.c_str(), &named) == 0 ? 0 : errno;
  if (error_number != 0 && error_number != ENOENT && error_number != ENOTDIR) fail("stat", error_number);
  fail("commit", ENOENT,
       fmt::format("the file has been moved away while it was in use; nothing more is committed to it; bring it back "
                   "to where it was, then {}",
                   words_->go_on));
}

void Drive::check_writable() const {
  if (write_refused_ == EFBIG) fail("open for writing", EFBIG, advice_beyond_limit(bytes()));
  if (write_refused_ != 0) refuse_to_open("open for writing", write_refused_);
}

void Drive::count_allocated() {
  struct stat status {};
  if (fstat(file_, &status) != 0) fail("stat", errno);
  whole_bytes_ = status.st_size;
  const int64_t allocated = std::min(status.st_blocks * kStatBlockBytes, whole_bytes_);
  allocated_bytes_ = allocated == whole_bytes_ ? std::optional(allocated) : std::nullopt;
}

// The lock belongs to the open file description: it refuses a second opening in this process as well, and ends with the
// process however that ends. Requests that a killed process left in the kernel hold it until they have moved their
// bytes, so whoever has it meets no late writes; that takes a moment, which is waited for.
int lock_file(int file) {
  constexpr int kTries = 50;
  constexpr std::chrono::milliseconds kBetweenTries{20};
  for (int tries = 0; tries < kTries; ++tries) {
    if (retried([file] { return flock(file, LOCK_EX | LOCK_NB); }) == 0) return 0;
    if (errno != EWOULDBLOCK) return errno;
    std::this_thread::sleep_for(kBetweenTries);
  }
  return EWOULDBLOCK;
}

void Drive::lock() {
  const int error_number = lock_file(file_);
  if (error_number == 0) {
    locked_by_ = getpid();
    return;
  }
  if (error_number != EWOULDBLOCK) {
    const std::string advice = advice_of_machine(error_number);
    fail("lock", error_number,
         advice.empty() ? with_folders("this file system has no locks: give a folder on a local drive") : advice);
  }
  throw ConfigError(
      fmt::format("the store {} is in use by another run: wait until that has ended; a new run needs another "
                  "folder{}",
                  name(), words_->folders));
}

std::optional<int64_t> direct_io_alignment(int file) {
  struct statx status {};
  const bool told = statx(file, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0;
  if (!told || (status.stx_mask & STATX_DIOALIGN) == 0) return std::nullopt;
  return std::max(status.stx_dio_mem_align, status.stx_dio_offset_align);
}

void Drive::find_alignment() {
  if (const std::optional<int64_t> told = direct_io_alignment(file_)) {
    alignment_bytes_ = *told;
    if (alignment_bytes_ == 0) fail("direct I/O", EOPNOTSUPP, with_folders("give a folder on another drive"));
  }
  if (alignment_bytes_ > kPlaneAlignmentBytes || !std::has_single_bit(static_cast<uint64_t>(alignment_bytes_))) {
    throw ConfigError(
        fmt::format("the drive of {} wants direct I/O aligned to {} bytes; {} at the most are supported: give "
                    "a folder on another drive{}",
                    name(), alignment_bytes_, kPlaneAlignmentBytes, words_->folders));
  }
}

void Drive::cut(int64_t bytes) {
  if (retried([this, bytes] { return ftruncate(file_, bytes); }) != 0) fail("truncate", errno);
}

// A store that is there stays on its drive.
[[noreturn]] void Drive::refuse_allocation(int64_t bytes, int error_number, Of of) const {
  const bool may_go_elsewhere = of == Of::kNewStore;
  if (error_number == EFBIG) {
    const std::string elsewhere = with_folders(", or give a folder on a drive whose files can be that large");
    fail("allocation", error_number, advice_beyond_limit(bytes) + (may_go_elsewhere ? elsewhere : ""));
  }
  if (error_number == EDQUOT) {
    fail("allocation", error_number,
         fmt::format("{} bytes are needed: {}", bytes - this->bytes(), advice_of_machine(error_number)));
  }
  if (error_number == ENOSPC) {
    refuse_space({.files = {path_}, .needed_bytes = bytes - this->bytes(), .free_bytes = free_bytes_beside(file_)},
                 *words_, may_go_elsewhere ? kOrALargerDrive : "");
  }
  const std::string advice = advice_of_machine(error_number);
  const bool names_folders = advice.empty() && may_go_elsewhere;
  fail("allocation", error_number,
       names_folders ? with_folders("give a folder on a local drive with ext4 or xfs") : advice);
}

// Behind what the file has; where that fails it is as long as it was.
void Drive::grow(int64_t to, Of of) {
  const int64_t from = bytes(), needed = to - from;
  if (needed == 0) return;
  if (to > most_file_bytes()) refuse_allocation(to, EFBIG, of);
  if (retried([this, from, needed] { return fallocate(file_, 0, from, needed); }) == 0) return;
  const int error_number = errno;
  cut_back(from);
  refuse_allocation(to, error_number, of);
}

// Whatever could refuse the space refuses it here: a file system without allocation, a quota, a limit of the process.
// Of an empty file, too: beside it there may be one with a store.
void Drive::reserve(int64_t bytes) {
  if (bytes > most_file_bytes()) refuse_allocation(bytes, EFBIG, Of::kNewStore);
  reserves_ = Reserves::kBeyondItsEnd;
  if (retried([this, bytes] { return fallocate(file_, FALLOC_FL_KEEP_SIZE, 0, bytes); }) != 0) {
    refuse_allocation(bytes, errno, Of::kNewStore);
  }
}

void Drive::allocate(int64_t bytes) {
  goes_with_owner_ = true;
  reserves_ = Reserves::kNothing;
  cut(0);
  grow(bytes, Of::kNewStore);
  count_allocated();
}

bool Drive::is_nameless() const {
  struct stat status {};
  return fstat(file_, &status) == 0 && status.st_nlink == 0;
}

bool Drive::has_its_name() const {
  struct stat own {};
  struct stat named {};
  return fstat(file_, &own) == 0 && stat(absolute_path_.c_str(), &named) == 0 && own.st_dev == named.st_dev &&
         own.st_ino == named.st_ino;
}

// A file that was taken away before it could be locked is nobody's any more.
Drive Drive::make(const std::filesystem::path& path, const StoreWords* words) {
  for (;;) {
    std::error_code ignored;
    const bool was_there = std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
    Drive drive(path, Open::kOrMake, words);
    try {
      drive.lock();
    } catch (const IoError&) {
      if (!was_there && drive.has_its_name()) drive.take_away();
      throw;
    }
    if (drive.is_nameless()) continue;
    drive.goes_with_owner_ = drive.bytes() == 0;  // made just now, or left by a creation that was cut off
    return drive;
  }
}

Drive Drive::open(const std::filesystem::path& path, Access access, const StoreWords* words) {
  Drive drive(path, access == Access::kWrite ? Open::kThere : Open::kThereOrReadOnly, words);
  drive.lock();
  if (drive.is_nameless()) drive.fail("open", ENOENT);
  drive.find_alignment();
  drive.count_allocated();
  if (drive.write_refused_ == 0 && drive.whole_bytes_ > most_file_bytes()) drive.write_refused_ = EFBIG;
  return drive;
}

namespace {

// Before any drive gets a folder or a file, and before a file that is there is emptied: a store is not lost to a
// refusal.
void require_space(std::span<const std::filesystem::path> paths, std::span<const int64_t> bytes,
                   const StoreWords& words) {
  const std::vector<FileSystemRoom> rooms = rooms_for(paths, bytes);
  const auto small = std::ranges::find_if(rooms, &FileSystemRoom::is_too_small);
  if (small == rooms.end()) return;
  const bool has_others = rooms.size() > 1;
  refuse_space(
      *small, words,
      has_others ? " on the drives, leave out one that is full, or give a folder on a larger one" : kOrALargerDrive);
}

}  // namespace

std::vector<Drive> make_drives(std::span<const std::filesystem::path> paths, std::span<const int64_t> bytes,
                               const StoreWords* words) {
  require_space(paths, bytes, *words);
  std::vector<Drive> drives;
  drives.reserve(paths.size());
  for (const std::filesystem::path& path : paths) {
    make_folder(path.parent_path(), fmt::format("give a folder that can be written{}", words->folders));
    drives.push_back(Drive::make(path, words));
    drives.back().find_alignment();
  }
  for (size_t i = 0; i < drives.size(); ++i) drives[i].reserve(bytes[i]);
  for (const std::filesystem::path& path : paths) sync_folder(path.parent_path());
  return drives;
}

void allocate_drives(std::span<Drive> drives, std::span<const int64_t> bytes) {
  for (size_t i = 0; i < drives.size(); ++i) drives[i].allocate(bytes[i]);
}

std::vector<int64_t> grow_drives(std::span<Drive> drives, std::span<const int64_t> bytes) {
  std::vector<int64_t> before;
  for (const Drive& drive : drives) before.push_back(drive.bytes());
  size_t grown = 0;
  try {
    for (; grown < drives.size(); ++grown) {
      if (bytes[grown] > before[grown]) drives[grown].grow(bytes[grown], Drive::Of::kStoreThere);
    }
  } catch (const IoError&) {
    for (size_t i = 0; i < grown; ++i) drives[i].cut_back(before[i]);
    throw;
  }
  for (Drive& drive : drives) drive.count_allocated();
  return before;
}

void fit_drives(std::span<Drive> drives, std::span<const int64_t> bytes) {
  const std::vector<int64_t> before = grow_drives(drives, bytes);
  for (size_t i = 0; i < drives.size(); ++i) {
    if (bytes[i] >= before[i]) continue;
    drives[i].cut(bytes[i]);
    drives[i].count_allocated();
  }
}

}  // namespace sluice
