// Whether a store has room on its drives, as far as that can be told before anything is made or measured.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "engine/plan.h"

namespace sluice {

// Of the files of a plan's store, one a drive.
struct DriveNeeds {
  std::vector<int64_t> even;   // were all drives to take the same; whatever each takes, the sum stays
  std::vector<int64_t> least;  // of each with the smallest part that a drive can have
};
DriveNeeds drive_needs(const Plan& plan);

// Of a store that is in these folders already: a new one takes its place, and its room, or is made beside it.
enum class StoreThere : uint8_t { kReplaced, kStays };
// Throws ConfigError (bytes needed, bytes free, folders) where such a store cannot be made in these folders, one for
// each drive, whose last parts may not be there yet. Folders of one file system share its space. How much each of
// several drives takes follows from their speeds, which are measured as the store is made, and from their room: this
// looks at the sum, and at what each drive holds at the least.
void check_free_space(std::span<const std::filesystem::path> folders, const DriveNeeds& needs, StoreThere there);

}  // namespace sluice
