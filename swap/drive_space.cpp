#include "swap/drive_space.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>

#include "core/errors.h"
#include "swap/drive.h"
#include "swap/drive_folders.h"

namespace sluice {
namespace {

struct PlaceOfFile {
  dev_t file_system = 0;
  int64_t free_bytes = INT64_MAX;  // of the file system; INT64_MAX: it does not tell
  int64_t own_bytes = 0;
};

PlaceOfFile place_of(const std::filesystem::path& file) {
  const std::filesystem::path there = existing_part(file);
  struct stat status {};
  struct statvfs space {};
  if (stat(there.c_str(), &status) != 0) return {};
  PlaceOfFile place{.file_system = status.st_dev};
  if (statvfs(there.c_str(), &space) != 0 || space.f_blocks == 0) return place;
  place.free_bytes = static_cast<int64_t>(space.f_bavail) * static_cast<int64_t>(space.f_frsize);
  if (S_ISREG(status.st_mode)) place.own_bytes = static_cast<int64_t>(status.st_blocks) * kStatBlockBytes;
  return place;
}

}  // namespace

std::vector<std::filesystem::path> FileSystemRoom::folders() const {
  std::vector<std::filesystem::path> all;
  for (const auto& file : files) all.push_back(file.parent_path());
  return all;
}

std::vector<FileSystemRoom> rooms_for(std::span<const std::filesystem::path> files, std::span<const int64_t> bytes) {
  SLUICE_CHECK(files.size() == bytes.size(), "so many bytes for each file");
  std::vector<dev_t> numbers;
  std::vector<FileSystemRoom> rooms;
  for (size_t i = 0; i < files.size(); ++i) {
    const PlaceOfFile place = place_of(files[i]);
    const auto known = static_cast<size_t>(std::ranges::find(numbers, place.file_system) - numbers.begin());
    if (known == numbers.size()) {
      numbers.push_back(place.file_system);
      rooms.push_back({.files = {}, .free_bytes = place.free_bytes});
    }
    FileSystemRoom& room = rooms[known];
    room.files.push_back(files[i]);
    room.needed_bytes += bytes[i];
    if (room.free_bytes != INT64_MAX) room.free_bytes += place.own_bytes;
  }
  return rooms;
}

}  // namespace sluice
