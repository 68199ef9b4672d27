// How much of a file lies in the page cache.
#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace sluice {

// Pages; -1 where the system does not tell. Mapping the file brings none in.
inline int64_t cached_pages(const std::filesystem::path& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const auto bytes = static_cast<size_t>(std::filesystem::file_size(path));
  void* mapped = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (mapped == MAP_FAILED) return -1;
  std::vector<unsigned char> resident((bytes + 4095) / 4096);
  const int looked = mincore(mapped, bytes, resident.data());
  munmap(mapped, bytes);
  if (looked != 0) return -1;
  return std::count_if(resident.begin(), resident.end(), [](unsigned char page) { return (page & 1) != 0; });
}

}  // namespace sluice
