// A file of token ids: `uint16` where the vocabulary allows it, else `uint32`. What is read is verified each time.
//
// file = header (64 B) + ids + CRC32C of each block of kTokenBlockBytes of ids (the last may be shorter); header =
// magic, version, bytes per id, count, fingerprint of what it was made from, CRC32C of the blocks' sums, CRC32C of the
// header. A PendingFile until it is published: a file under the final name is whole, and two processes making the same
// file do each other no harm.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "data/cache_file.h"

namespace sluice {

constexpr int64_t kTokenBlockBytes = 4096;  // a short sample costs one or two blocks

class TokenWriter {
 public:
  // Throws IoError, as all of it does. Without finish() nothing is left.
  TokenWriter(const std::filesystem::path& path, int64_t vocabulary_size, uint32_t fingerprint);
  ~TokenWriter();
  TokenWriter(TokenWriter&&) noexcept;
  void append(std::span<const int32_t> ids);
  std::unique_ptr<PendingFile> finish();  // the whole file, to be published; once

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Move-only owner of the open file; reading is thread-safe. Of the file only the blocks' sums are kept in memory, a
// thousandth of it; the pages belong to the page cache, not to a budget.
class TokenStream {
 public:
  // nullopt: no such file, or not whole, or made from something else (then `fingerprint` differs; nullopt takes any).
  // Reads all of it: a run that ended because of a damaged block, and is resumed, must not meet that block again.
  // `in_errors` is the file's name in errors where it has none of its own yet. Throws IoError.
  static std::optional<TokenStream> open(const std::filesystem::path& path, std::optional<uint32_t> fingerprint,
                                         const std::filesystem::path& in_errors = {});
  ~TokenStream();
  TokenStream(TokenStream&& other) noexcept;
  TokenStream& operator=(TokenStream&& other) noexcept;

  int64_t size() const;
  uint32_t fingerprint() const;
  // Copies ids [first, first + into.size()). Throws IoError where the file cannot be read or has become shorter,
  // CorruptionError where it holds other bytes than were written.
  void read(int64_t first, std::span<int64_t> into) const;

 private:
  struct Impl;
  explicit TokenStream(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace sluice
