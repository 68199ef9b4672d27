// Damage to a file.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>

namespace sluice {

// Changes one bit of the byte there; a second time changes it back.
inline void flip_byte(const std::filesystem::path& file, int64_t offset) {
  std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekg(offset);
  const auto byte = static_cast<char>(bytes.get() ^ 0x10);
  bytes.seekp(offset);
  EXPECT_TRUE(bytes.put(byte).flush());
}

}  // namespace sluice
