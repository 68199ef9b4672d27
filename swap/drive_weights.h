// What part of every record each drive of a new store gets. Weights last as long as the store. Any thread.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/clock.h"
#include "swap/record_store.h"

namespace sluice {

// weights_of() what each drive reads and writes of the same bytes, measured now on scratch files. Nothing where one has
// no room for that, which is logged.
std::optional<std::vector<uint32_t>> weigh_drives(const StoreOptions& options, const Clock& clock = now_ns);
// In proportion to these speeds, 1000 for all of them together, about. What differs by no more than 5 % is noise, and
// taken as equal.
std::vector<uint32_t> weights_of(std::vector<double> gb_per_s);

// How long a store's files are with these weights, one a drive.
using FileBytes = std::function<std::vector<int64_t>(std::span<const uint32_t> weights)>;
// Of a store of these records and scratch extents; all must outlive it.
FileBytes file_bytes_of(const Geometry& geometry, RecordFormat format, std::span<const int64_t> scratch_bytes);
// Each file with the smallest part that a drive can have.
std::vector<int64_t> least_file_bytes(size_t drives, const FileBytes& bytes);

struct DriveWeights {
  std::vector<uint32_t> weights;
  std::vector<size_t> lowered;  // drives: for want of room
};
// The same weights, where every file system has room for its files (swap/drive_space.h). Else one that has not is
// filled but for a hundredth of its room, and for 64 MiB or a tenth of it where that is less: openings may ask for more
// scratch room. The other drives share what that leaves over as their weights have it. Where all together have no room,
// or one has none for the smallest part, the weights come back as they were: whoever makes the files tells what is too
// small.
DriveWeights weights_with_room(std::vector<uint32_t> weights, std::span<const std::filesystem::path> files,
                               const FileBytes& bytes);
// Of a new store whose options give none: measured, with room for these files, one a drive. Drives that are filled are
// warned of.
std::vector<uint32_t> weights_for(const StoreOptions& options, std::span<const std::filesystem::path> files,
                                  const FileBytes& bytes);

// A drive's part of a record.
double share_of(std::span<const uint32_t> weights, size_t drive);
// How fast drives of these speeds, in any unit, are together with other weights than those, as a part of what they
// could be: all wait for the one that has too much to do.
double share_of_speed(std::span<const double> speeds, std::span<const uint32_t> weights);

}  // namespace sluice
