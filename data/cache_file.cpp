#include "data/cache_file.h"

#include <cstddef>
#include <cstring>
#include <span>

#include "core/checksum.h"
#include "core/read_file.h"

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

std::string_view bytes_of_header(const Header& header, size_t count) {
  return {reinterpret_cast<const char*>(&header), count};
}

}  // namespace

std::unique_ptr<PendingFile> write_checked(const std::filesystem::path& path, uint32_t fingerprint,
                                           std::string_view bytes) {
  Header header{.fingerprint = fingerprint, .bytes = bytes.size(), .content_crc = crc32c(0, bytes)};
  header.header_crc = crc32c(0, bytes_of_header(header, offsetof(Header, header_crc)));
  auto file = std::make_unique<PendingFile>(path);
  file->append(bytes_of_header(header, sizeof header));
  file->append(bytes);
  return file;
}

std::optional<CheckedBytes> read_checked(const std::filesystem::path& path) {
  const std::optional<std::string> file = read_file(path);
  Header header;
  if (!file || file->size() < sizeof header) return std::nullopt;
  std::memcpy(&header, file->data(), sizeof header);
  if (header.magic != kMagic || header.version != kVersion ||
      header.header_crc != crc32c(0, bytes_of_header(header, offsetof(Header, header_crc)))) {
    return std::nullopt;
  }
  std::string bytes = file->substr(sizeof header);
  if (bytes.size() != header.bytes || crc32c(0, bytes) != header.content_crc) return std::nullopt;
  return CheckedBytes{.fingerprint = header.fingerprint, .bytes = std::move(bytes)};
}

}  // namespace sluice
