// Small files of a cache, with checksums.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/pending_file.h"

namespace sluice {

// content = header (magic, version, fingerprint, length, CRC32C) + bytes; to be published.
std::unique_ptr<PendingFile> write_checked(const std::filesystem::path& path, uint32_t fingerprint,
                                           std::string_view bytes);
struct CheckedBytes {
  uint32_t fingerprint = 0;
  std::string bytes;
};
// nullopt: no such file or not whole.
std::optional<CheckedBytes> read_checked(const std::filesystem::path& path);

}  // namespace sluice
