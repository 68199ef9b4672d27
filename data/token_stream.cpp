#include "data/token_stream.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "core/checksum.h"
#include "core/errors.h"

namespace sluice {

namespace {

constexpr uint64_t kTokensMagic = 0x534E454B4F544C53;  // "SLTOKENS"
constexpr uint32_t kTokensVersion = 1;
constexpr size_t kBufferBytes = size_t{1} << 20;

struct TokensHeader {
  uint64_t magic = kTokensMagic;
  uint32_t version = kTokensVersion;
  uint32_t bytes_per_id = 2;
  int64_t count = 0;
  uint32_t fingerprint = 0;
  uint32_t ids_crc = 0;
  uint8_t zero[28] = {};
  uint32_t header_crc = 0;  // of all before it
};
static_assert(sizeof(TokensHeader) == 64);

uint32_t crc_of_header(const TokensHeader& header) {
  return crc32c(0, std::as_bytes(std::span(&header, 1)).first(offsetof(TokensHeader, header_crc)));
}

// Gives every block's pages back to the page cache: checking a long stream must not make it resident.
uint32_t crc_of_ids(const std::byte* base, int64_t mapped_bytes) {
  constexpr int64_t kBlockBytes = int64_t{4} << 20;
  uint32_t crc = 0;
  for (int64_t block = 0; block < mapped_bytes; block += kBlockBytes) {
    const int64_t begin = std::max<int64_t>(block, sizeof(TokensHeader)),
                  end = std::min(block + kBlockBytes, mapped_bytes);
    crc = crc32c(crc, std::span(base + begin, static_cast<size_t>(end - begin)));
    ::madvise(const_cast<std::byte*>(base) + block, static_cast<size_t>(end - block), MADV_DONTNEED);
  }
  return crc;
}

std::string_view view_of(const void* bytes, size_t count) { return {static_cast<const char*>(bytes), count}; }

}  // namespace

struct TokenWriter::Impl {
  explicit Impl(const std::filesystem::path& path) : file(std::make_unique<PendingFile>(path)) {}
  void flush() {
    header.ids_crc = crc32c(header.ids_crc, buffer);
    file->append(view_of(buffer.data(), buffer.size()));
    buffer.clear();
  }
  std::unique_ptr<PendingFile> file;
  TokensHeader header;
  std::vector<std::byte> buffer;
};

TokenWriter::TokenWriter(const std::filesystem::path& path, int64_t vocabulary_size, uint32_t fingerprint)
    : impl_(std::make_unique<Impl>(path)) {
  impl_->header.bytes_per_id = vocabulary_size <= 65536 ? 2 : 4;
  impl_->header.fingerprint = fingerprint;
  impl_->buffer.reserve(kBufferBytes);
  impl_->file->append(view_of(&impl_->header, sizeof(TokensHeader)));  // its place; finish() writes what it is
}

TokenWriter::~TokenWriter() = default;
TokenWriter::TokenWriter(TokenWriter&&) noexcept = default;

void TokenWriter::append(std::span<const int32_t> ids) {
  const size_t width = impl_->header.bytes_per_id;
  for (const int32_t id : ids) {
    SLUICE_CHECK(id >= 0 && (width == 4 || id < 65536), "an id of the vocabulary");
    if (impl_->buffer.size() + width > kBufferBytes) impl_->flush();
    const auto* bytes = reinterpret_cast<const std::byte*>(&id);  // little-endian: the low bytes come first
    impl_->buffer.insert(impl_->buffer.end(), bytes, bytes + width);
  }
  impl_->header.count += static_cast<int64_t>(ids.size());
}

std::unique_ptr<PendingFile> TokenWriter::finish() {
  impl_->flush();
  impl_->header.header_crc = crc_of_header(impl_->header);
  impl_->file->write_at(0, view_of(&impl_->header, sizeof(TokensHeader)));
  return std::move(impl_->file);
}

std::optional<TokenStream> TokenStream::open(const std::filesystem::path& path, std::optional<uint32_t> fingerprint) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0 && errno == ENOENT) return std::nullopt;
  struct stat status {};
  if (file < 0 || ::fstat(file, &status) != 0) {
    const int error_number = errno;
    if (file >= 0) ::close(file);
    throw IoError(
        {.action = "open", .path = path.string(), .error_number = error_number, .advice = "make it readable"});
  }
  TokenStream stream;
  if (status.st_size >= static_cast<off_t>(sizeof(TokensHeader))) {
    void* base = ::mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_SHARED, file, 0);
    const int error_number = errno;
    ::close(file);
    if (base == MAP_FAILED) {
      throw IoError({.action = "mmap", .path = path.string(), .error_number = error_number, .advice = ""});
    }
    stream.base_ = static_cast<const std::byte*>(base);
    stream.mapped_bytes_ = status.st_size;
  } else {
    ::close(file);
    return std::nullopt;
  }
  TokensHeader header;
  std::memcpy(&header, stream.base_, sizeof header);
  if (header.magic != kTokensMagic || header.version != kTokensVersion || header.header_crc != crc_of_header(header))
    return std::nullopt;
  if (fingerprint && *fingerprint != header.fingerprint) return std::nullopt;
  stream.count_ = header.count;
  stream.bytes_per_id_ = static_cast<int>(header.bytes_per_id);
  stream.fingerprint_ = header.fingerprint;
  if (stream.mapped_bytes_ != static_cast<int64_t>(sizeof header) + stream.count_ * stream.bytes_per_id_)
    return std::nullopt;
  if (crc_of_ids(stream.base_, stream.mapped_bytes_) != header.ids_crc) return std::nullopt;
  return stream;
}

TokenStream::~TokenStream() {
  if (base_) ::munmap(const_cast<std::byte*>(base_), static_cast<size_t>(mapped_bytes_));
}

TokenStream::TokenStream(TokenStream&& other) noexcept { *this = std::move(other); }

TokenStream& TokenStream::operator=(TokenStream&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(count_, other.count_);
  std::swap(bytes_per_id_, other.bytes_per_id_);
  std::swap(fingerprint_, other.fingerprint_);
  return *this;
}

int32_t TokenStream::at(int64_t index) const {
  const std::byte* from = base_ + sizeof(TokensHeader) + index * bytes_per_id_;
  uint32_t id = 0;
  std::memcpy(&id, from, static_cast<size_t>(bytes_per_id_));
  return static_cast<int32_t>(id);
}

void TokenStream::read(int64_t first, std::span<int64_t> into) const {
  SLUICE_CHECK(first >= 0 && first + static_cast<int64_t>(into.size()) <= count_, "a range of the stream");
  for (size_t i = 0; i < into.size(); ++i) into[i] = at(first + static_cast<int64_t>(i));
}

}  // namespace sluice
