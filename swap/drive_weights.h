// What part of every record each drive of a new store gets. Weights last as long as the store. Any thread.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "core/clock.h"
#include "swap/record_store.h"

namespace sluice {

// weights_of() what each drive reads and writes of the same bytes, measured now on scratch files. The same for each
// where one has no room for that, which is logged.
std::vector<uint32_t> weigh_drives(const StoreOptions& options, const Clock& clock = now_ns);
// In proportion to these speeds, 1000 for all of them together, about. What differs by no more than 5 % is noise, and
// taken as equal.
std::vector<uint32_t> weights_of(std::vector<double> gb_per_s);

// The store's files, one a drive, and how long they are with these weights.
struct WeighedFiles {
  std::span<const std::filesystem::path> paths;
  std::function<std::vector<int64_t>(std::span<const uint32_t> weights)> bytes;
};
// The same weights, where every file system has room for its files. Else one that has not is filled but for a hundredth
// of its room, and the other drives share what that leaves over as their weights have it. Where all together have no
// room, or one has none for what even the smallest part takes, the weights come back as they were: whoever makes the
// files tells what is too small.
std::vector<uint32_t> weights_with_room(std::vector<uint32_t> weights, const WeighedFiles& files);

// A drive's part of a record.
double share_of(std::span<const uint32_t> weights, size_t drive);
// How fast drives of these speeds are together with other weights than those, as a part of what they could be: all wait
// for the one that has too much to do.
double share_of_speed(std::span<const uint32_t> speeds, std::span<const uint32_t> weights);

}  // namespace sluice
