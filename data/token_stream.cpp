#include "data/token_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/checksum.h"
#include "core/errors.h"
#include "core/input_file.h"

namespace sluice {

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kTokensMagic = 0x534E454B4F544C53;  // "SLTOKENS"
constexpr uint32_t kTokensVersion = 2;                 // 1 had one sum of all ids
constexpr size_t kBufferBytes = size_t{1} << 20;
static_assert(kBufferBytes % kTokenBlockBytes == 0 && kTokenBlockBytes % sizeof(uint32_t) == 0);

struct TokensHeader {
  uint64_t magic = kTokensMagic;
  uint32_t version = kTokensVersion;
  uint32_t bytes_per_id = 2;
  int64_t count = 0;
  uint32_t fingerprint = 0;
  uint32_t sums_crc = 0;
  uint8_t zero[28] = {};
  uint32_t header_crc = 0;  // of all before it
};
static_assert(sizeof(TokensHeader) == 64);
constexpr auto kHeaderBytes = static_cast<int64_t>(sizeof(TokensHeader));

uint32_t crc_of_header(const TokensHeader& header) {
  return crc32c(0, std::as_bytes(std::span(&header, 1)).first(offsetof(TokensHeader, header_crc)));
}

// Of each block of ids that begin with a block.
void append_sums(std::span<const std::byte> ids, std::vector<uint32_t>& sums) {
  while (!ids.empty()) {
    const size_t block_bytes = std::min<size_t>(ids.size(), kTokenBlockBytes);
    sums.push_back(crc32c(0, ids.first(block_bytes)));
    ids = ids.subspan(block_bytes);
  }
}

std::string_view view_of(const void* bytes, size_t count) { return {static_cast<const char*>(bytes), count}; }

template <class Id>
void widen(std::span<const std::byte> ids, std::span<int64_t> into) {
  for (size_t i = 0; i < into.size(); ++i) {
    Id id;
    std::memcpy(&id, ids.data() + i * sizeof id, sizeof id);
    into[i] = static_cast<int64_t>(id);
  }
}

}  // namespace

struct TokenWriter::Impl {
  explicit Impl(const std::filesystem::path& path) : file(std::make_unique<PendingFile>(path)) {}
  // A whole number of blocks, but for the last time.
  void flush() {
    append_sums(buffer, sums);
    file->append(view_of(buffer.data(), buffer.size()));
    buffer.clear();
  }
  std::unique_ptr<PendingFile> file;
  TokensHeader header;
  std::vector<std::byte> buffer;
  std::vector<uint32_t> sums;
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
  const std::vector<uint32_t>& sums = impl_->sums;
  impl_->file->append(view_of(sums.data(), sums.size() * sizeof(uint32_t)));
  impl_->header.sums_crc = crc32c(0, std::as_bytes(std::span(sums)));
  impl_->header.header_crc = crc_of_header(impl_->header);
  impl_->file->write_at(0, view_of(&impl_->header, sizeof(TokensHeader)));
  return std::move(impl_->file);
}

struct TokenStream::Impl {
  Impl(const fs::path& path, fs::path in_errors)
      : name(std::move(in_errors)),
        file(path, {.path = name,
                    .advice = kUnreadable,
                    .advice_when_shorter = "go on with --resume: it is made anew from the text"}) {}
  int64_t ids_bytes() const { return header.count * header.bytes_per_id; }
  bool read_header();
  bool read_sums();
  bool ids_are_whole() const;
  // `offset` is from the first id on.
  void read_ids(int64_t offset, std::span<std::byte> into) const { file.read_whole(kHeaderBytes + offset, into); }
  using Block = std::array<std::byte, kTokenBlockBytes>;
  std::span<const std::byte> read_block(int64_t block, Block& into) const;

  static constexpr const char* kUnreadable =
      "make it readable (dmesg names a drive's faults) or remove it, and go on with --resume: what was removed is made "
      "anew from the text";
  fs::path name;
  InputFile file;
  TokensHeader header;
  std::vector<uint32_t> sums;
};

// Also that the file is as long as its header says.
bool TokenStream::Impl::read_header() {
  if (file.read(0, std::as_writable_bytes(std::span(&header, 1))) != sizeof header) return false;
  if (header.magic != kTokensMagic || header.version != kTokensVersion || header.header_crc != crc_of_header(header))
    return false;
  const int64_t bytes = file.bytes();
  if (header.count < 0 || header.count > bytes || (header.bytes_per_id != 2 && header.bytes_per_id != 4)) return false;
  const int64_t blocks = (ids_bytes() + kTokenBlockBytes - 1) / kTokenBlockBytes;
  if (bytes != kHeaderBytes + ids_bytes() + blocks * static_cast<int64_t>(sizeof(uint32_t))) return false;
  sums.resize(static_cast<size_t>(blocks));
  return true;
}

bool TokenStream::Impl::read_sums() {
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(sums));
  return file.read(kHeaderBytes + ids_bytes(), bytes) == bytes.size() && crc32c(0, bytes) == header.sums_crc;
}

bool TokenStream::Impl::ids_are_whole() const {
  std::vector<std::byte> buffer(kBufferBytes);
  std::vector<uint32_t> found;
  found.reserve(sums.size());
  for (int64_t done = 0; done < ids_bytes(); done += static_cast<int64_t>(kBufferBytes)) {
    const auto part = std::span(buffer).first(std::min<size_t>(kBufferBytes, static_cast<size_t>(ids_bytes() - done)));
    read_ids(done, part);
    append_sums(part, found);
  }
  return found == sums;
}

std::span<const std::byte> TokenStream::Impl::read_block(int64_t block, Block& into) const {
  const int64_t offset = block * kTokenBlockBytes;
  const auto ids = std::span(into).first(static_cast<size_t>(std::min(kTokenBlockBytes, ids_bytes() - offset)));
  read_ids(offset, ids);
  const uint32_t expected = sums[static_cast<size_t>(block)], found = crc32c(0, ids);
  if (found == expected) return ids;
  throw CorruptionError(fmt::format(
      "{}: bytes read are not the bytes written: block {}, {} bytes at offset {}: CRC32C {:08x} expected, {:08x} "
      "found; "
      "nothing was trained on them; see that no other program writes there, check the drive (dmesg), and go on with "
      "--resume, which makes a damaged file anew from the text",
      name.string(), block, ids.size(), kHeaderBytes + offset, expected, found));
}

std::optional<TokenStream> TokenStream::open(const fs::path& path, std::optional<uint32_t> fingerprint,
                                             const fs::path& in_errors) {
  std::error_code ignored;
  if (fs::status(path, ignored).type() == fs::file_type::not_found) return std::nullopt;
  auto impl = std::make_unique<Impl>(path, in_errors.empty() ? path : in_errors);
  if (!impl->read_header() || (fingerprint && *fingerprint != impl->header.fingerprint)) return std::nullopt;
  if (!impl->read_sums() || !impl->ids_are_whole()) return std::nullopt;
  return TokenStream(std::move(impl));
}

TokenStream::TokenStream(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
TokenStream::~TokenStream() = default;
TokenStream::TokenStream(TokenStream&&) noexcept = default;
TokenStream& TokenStream::operator=(TokenStream&&) noexcept = default;

int64_t TokenStream::size() const { return impl_->header.count; }
uint32_t TokenStream::fingerprint() const { return impl_->header.fingerprint; }

void TokenStream::read(int64_t first, std::span<int64_t> into) const {
  SLUICE_CHECK(first >= 0 && first + static_cast<int64_t>(into.size()) <= size(), "a range of the stream");
  const int64_t width = impl_->header.bytes_per_id, ids_of_block = kTokenBlockBytes / width;
  Impl::Block buffer;
  while (!into.empty()) {
    const auto skipped = static_cast<size_t>(first % ids_of_block * width);
    const std::span<const std::byte> ids = impl_->read_block(first / ids_of_block, buffer).subspan(skipped);
    const auto part = into.first(std::min(into.size(), ids.size() / static_cast<size_t>(width)));
    if (width == 2) {
      widen<uint16_t>(ids, part);
    } else {
      widen<uint32_t>(ids, part);
    }
    into = into.subspan(part.size());
    first += static_cast<int64_t>(part.size());
  }
}

}  // namespace sluice
