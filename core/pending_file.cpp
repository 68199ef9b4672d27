#include "core/pending_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>
#include <random>
#include <utility>

#include "core/errors.h"
#include "core/folders.h"
#include "core/machine_advice.h"
#include "core/retried.h"

namespace sluice {
namespace {

std::filesystem::path temporary_name(const std::filesystem::path& path) {
  std::random_device random;
  return fmt::format("{}.{:08x}.tmp", path.string(), random());
}

const char* advice_for(int error_number) {
  if (error_number == ENOSPC) return "make room on this file system";
  return advice_of_machine(error_number, "make it and its folder writable, or choose another folder");
}

}  // namespace

// Without a name where the file system knows that: then nothing stays behind however the process ends, but in the
// moment of publishing.
PendingFile::PendingFile(std::filesystem::path path) : path_(std::move(path)) {
  const std::filesystem::path folder = path_.parent_path();
  file_ = ::open(folder.empty() ? "." : folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
  if (file_ >= 0 && ::access(temporary().c_str(), F_OK) == 0) return;
  if (file_ >= 0) ::close(file_);  // there is no /proc to find it by
  temporary_ = temporary_name(path_);
  file_ = ::open(temporary_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
  if (file_ < 0) {
    throw IoError({.action = "create",
                   .path = path_.string(),
                   .error_number = errno,
                   .advice = errno == ENOENT ? "make its folder, or choose another one"
                                             : "make its folder writable, or choose another one"});
  }
}

PendingFile::~PendingFile() {
  if (file_ < 0) return;
  ::close(file_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

std::filesystem::path PendingFile::temporary() const {
  return temporary_.empty() ? std::filesystem::path(fmt::format("/proc/self/fd/{}", file_)) : temporary_;
}

// Gives a file without a name one. False: errno says why not.
bool PendingFile::name_it() {
  if (!temporary_.empty()) return true;
  std::filesystem::path name = temporary_name(path_);
  if (::linkat(AT_FDCWD, temporary().c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0) return false;
  temporary_ = std::move(name);
  return true;
}

void PendingFile::append(std::string_view bytes) {
  write_all(end_, bytes);
  end_ += static_cast<int64_t>(bytes.size());
}

void PendingFile::write_at(int64_t offset, std::string_view bytes) { write_all(offset, bytes); }

void PendingFile::write_all(int64_t offset, std::string_view bytes) {
  const int64_t end = offset + std::ssize(bytes);
  const auto at_its_place = [&](std::string_view left) {
    return ::pwrite(file_, left.data(), left.size(), static_cast<off_t>(end - std::ssize(left)));
  };
  if (write_whole(bytes, at_its_place)) return;
  throw IoError({.action = "write",
                 .path = path_.string(),
                 .offset = end - std::ssize(bytes),
                 .bytes = std::ssize(bytes),
                 .error_number = errno,
                 .reason = errno != 0 ? "" : "the file system took no byte of it and gave no error",
                 .advice = advice_for(errno != 0 ? errno : ENOSPC)});
}

void PendingFile::publish() {
  const auto failed = [&](const char* action) {
    return IoError({.action = action, .path = path_.string(), .error_number = errno, .advice = advice_for(errno)});
  };
  if (retried([&] { return ::fdatasync(file_); }) != 0) throw failed("fdatasync");
  if (!name_it()) throw failed("linkat");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) throw failed("rename");
  ::close(file_);
  file_ = -1;
  sync_folder(path_.parent_path());
}

}  // namespace sluice
