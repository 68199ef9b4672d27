#include "app/free_space.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/run_folder.h"
#include "bench/scratch_folder.h"
#include "core/bytes.h"
#include "core/errors.h"
#include "swap/drive.h"
#include "swap/drive_space.h"
#include "swap/drive_weights.h"

namespace sluice {

namespace fs = std::filesystem;

DriveNeeds drive_needs(const Plan& plan) {
  const auto drives = static_cast<size_t>(plan.options.drives);
  const FileBytes bytes = file_bytes_of(plan.geometry, plan.options.format(), plan.scratch_bytes);
  return {.even = bytes(std::vector<uint32_t>(drives, 1)), .least = least_file_bytes(drives, bytes)};
}

namespace {

void check_together(std::span<const fs::path> folders, std::span<const FileSystemRoom> rooms) {
  int64_t needed = 0, free = 0;
  for (const FileSystemRoom& room : rooms) {
    if (room.free_bytes == INT64_MAX) return;  // creation itself will tell
    needed += room.needed_bytes;
    free += room.free_bytes;
  }
  if (free >= needed) return;
  throw ConfigError(
      fmt::format("{}: the drive{} too small: the store needs {} ({} bytes), {} ({} bytes) are free; name a folder on "
                  "another drive with --set 'sluice.nvme=[\"FOLDER\"]'",
                  joined(folders), rooms.size() == 1 ? " is" : "s are together", format_bytes(needed), needed,
                  format_bytes(free), free));
}

}  // namespace

void check_free_space(std::span<const fs::path> folders, const DriveNeeds& needs, StoreThere there) {
  std::vector<fs::path> files;
  for (const fs::path& folder : folders) {
    files.push_back(there == StoreThere::kReplaced ? store_path(folder, 0) : ScratchFolder::pattern_in(folder));
  }
  check_together(folders, rooms_for(files, needs.even));
  const std::vector<FileSystemRoom> rooms = rooms_for(files, needs.least);
  const auto small = std::ranges::find_if(rooms, &FileSystemRoom::is_too_small);
  if (small == rooms.end()) return;
  throw ConfigError(
      fmt::format("{}: the drive is too small: {} ({} bytes) of the store lie there at the least, {} ({} bytes) are "
                  "free; make room, leave it out of sluice.nvme, or name a folder on a larger drive in its place",
                  joined(small->folders()), format_bytes(small->needed_bytes), small->needed_bytes,
                  format_bytes(small->free_bytes), small->free_bytes));
}

}  // namespace sluice
