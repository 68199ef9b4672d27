#include "data/cache_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <span>

#include "core/checksum.h"
#include "core/errors.h"
#include "core/sync_folder.h"

namespace sluice {

namespace {

constexpr uint64_t kMagic = 0x4548434143'4C53;  // "SLCACHE"
constexpr uint32_t kVersion = 1;

struct Header {
  uint64_t magic = kMagic;
  uint32_t version = kVersion;
  uint32_t fingerprint = 0;
  uint64_t bytes = 0;
  uint32_t content_crc = 0;
  uint32_t header_crc = 0;  // of all before it
};
static_assert(sizeof(Header) == 32);

uint32_t crc_of(std::string_view bytes) { return crc32c(0, std::as_bytes(std::span(bytes.data(), bytes.size()))); }

std::string_view bytes_of_header(const Header& header, size_t count) {
  return {reinterpret_cast<const char*>(&header), count};
}

}  // namespace

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw IoError({.action = "create folder",
                   .path = folder.string(),
                   .error_number = error.value(),
                   .advice = "choose another folder"});
  }
}

// Without a name where the file system knows that: then nothing stays behind however the process ends, but in the
// moment of publishing.
PendingFile::PendingFile(std::filesystem::path path) : path_(std::move(path)) {
  const std::filesystem::path folder = path_.parent_path();
  file_ = ::open(folder.empty() ? "." : folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);
  if (file_ >= 0 && ::access(temporary().c_str(), F_OK) == 0) return;
  if (file_ >= 0) ::close(file_);  // there is no /proc to find it by
  std::string name = path_.string() + ".XXXXXX.tmp";
  file_ = ::mkostemps(name.data(), 4, O_CLOEXEC);
  if (file_ < 0) {
    throw IoError({.action = "create",
                   .path = path_.string(),
                   .error_number = errno,
                   .advice = "make its folder writable, or choose another one"});
  }
  temporary_ = name;
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
  std::random_device random;
  const std::string name = fmt::format("{}.{:08x}.tmp", path_.string(), random());
  if (::linkat(AT_FDCWD, temporary().c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0) return false;
  temporary_ = name;
  return true;
}

void PendingFile::append(std::string_view bytes) {
  write_all(end_, bytes);
  end_ += static_cast<int64_t>(bytes.size());
}

void PendingFile::write_at(int64_t offset, std::string_view bytes) { write_all(offset, bytes); }

void PendingFile::write_all(int64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t moved = ::pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) {
      throw IoError({.action = "write",
                     .path = path_.string(),
                     .offset = offset,
                     .bytes = static_cast<int64_t>(bytes.size()),
                     .error_number = moved < 0 ? errno : 0,
                     .reason = moved < 0 ? "" : "the file system took no byte of it and gave no error",
                     .advice = moved < 0 && errno == EFBIG ? "raise the limit on the size of a file (ulimit -f)"
                                                           : "make room on this file system"});
    }
    offset += moved;
    bytes.remove_prefix(static_cast<size_t>(moved));
  }
}

void PendingFile::publish() {
  const auto failed = [&](const char* action) {
    return IoError({.action = action,
                    .path = path_.string(),
                    .error_number = errno,
                    .advice = "make it and its folder writable, or choose another folder"});
  };
  if (::fchmod(file_, 0644) != 0) throw failed("fchmod");
  if (::fdatasync(file_) != 0) throw failed("fdatasync");
  if (!name_it()) throw failed("linkat");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) throw failed("rename");
  ::close(file_);
  file_ = -1;
  sync_folder(path_.parent_path());
}

std::unique_ptr<PendingFile> write_checked(const std::filesystem::path& path, uint32_t fingerprint,
                                           std::string_view bytes) {
  Header header{.fingerprint = fingerprint, .bytes = bytes.size(), .content_crc = crc_of(bytes)};
  header.header_crc = crc_of(bytes_of_header(header, offsetof(Header, header_crc)));
  auto file = std::make_unique<PendingFile>(path);
  file->append(bytes_of_header(header, sizeof header));
  file->append(bytes);
  return file;
}

std::optional<CheckedBytes> read_checked(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  Header header;
  if (!file.read(reinterpret_cast<char*>(&header), sizeof header)) return std::nullopt;
  if (header.magic != kMagic || header.version != kVersion ||
      header.header_crc != crc_of(bytes_of_header(header, offsetof(Header, header_crc)))) {
    return std::nullopt;
  }
  std::string bytes(std::istreambuf_iterator<char>(file), {});
  if (bytes.size() != header.bytes || crc_of(bytes) != header.content_crc) return std::nullopt;
  return CheckedBytes{.fingerprint = header.fingerprint, .bytes = std::move(bytes)};
}

}  // namespace sluice
