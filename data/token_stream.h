// A file of token ids, memory-mapped: `uint16` ids where the vocabulary allows it, else `uint32`.
//
// file = header (64 B) + ids; header = magic, version, bytes per id, count, fingerprint of what it was made from,
// CRC32C of the ids, CRC32C of the header. A PendingFile until it is published: a file under the final name is whole,
// and two processes making the same file do each other no harm.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "data/cache_file.h"

namespace sluice {

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

// Move-only owner of the mapping; reading is thread-safe. The pages belong to the page cache, not to a budget.
class TokenStream {
 public:
  // nullopt: no such file, or not whole, or made from something else (then `fingerprint` differs; nullopt takes any).
  static std::optional<TokenStream> open(const std::filesystem::path& path, std::optional<uint32_t> fingerprint);
  ~TokenStream();
  TokenStream(TokenStream&& other) noexcept;
  TokenStream& operator=(TokenStream&& other) noexcept;

  int64_t size() const { return count_; }
  int64_t mapped_bytes() const { return mapped_bytes_; }
  uint32_t fingerprint() const { return fingerprint_; }
  int32_t at(int64_t index) const;
  // Copies ids [first, first + into.size()).
  void read(int64_t first, std::span<int64_t> into) const;

 private:
  TokenStream() = default;
  const std::byte* base_ = nullptr;
  int64_t mapped_bytes_ = 0, count_ = 0;
  int bytes_per_id_ = 2;
  uint32_t fingerprint_ = 0;
};

}  // namespace sluice
