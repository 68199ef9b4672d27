#include "swap/drive_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "core/bytes.h"
#include "core/errors.h"
#include "swap/bare_io.h"
#include "swap/drive_space.h"
#include "swap/store_format.h"

namespace sluice {
namespace {

// The slowest one and those that are no more than 5 % faster get their mean; then the slowest of the others, and so on.
void take_as_equal(std::vector<double>& speeds) {
  constexpr double kNoise = 1.05;
  std::vector<double*> by_speed;
  for (double& speed : speeds) by_speed.push_back(&speed);
  std::ranges::sort(by_speed, {}, [](const double* speed) { return *speed; });
  for (size_t first = 0, end = 0; first < by_speed.size(); first = end) {
    double sum = 0;
    const double most = kNoise * *by_speed[first];
    for (; end < by_speed.size() && *by_speed[end] <= most; ++end) sum += *by_speed[end];
    for (size_t i = first; i < end; ++i) *by_speed[i] = sum / static_cast<double>(end - first);
  }
}

// Of all drives together, where parts are fine.
constexpr uint32_t kWholeWeight = 60000;

int64_t filled_bytes(int64_t room) {
  const int64_t left = std::max(room / 100, std::min(room / 10, 64 * kMiB));
  return room - left;
}

std::vector<size_t> drives_of(const FileSystemRoom& room, std::span<const std::filesystem::path> files) {
  std::vector<size_t> drives;
  for (const std::filesystem::path& file : room.files) {
    drives.push_back(static_cast<size_t>(std::ranges::find(files, file) - files.begin()));
  }
  return drives;
}

// Parts of a record, one a drive, some of which may not grow.
class Shares {
 public:
  explicit Shares(std::span<const uint32_t> weights) : is_full_(weights.size(), false) {
    for (size_t i = 0; i < weights.size(); ++i) shares_.push_back(share_of(weights, i));
  }

  void lower(size_t drive, double times) {
    shares_[drive] *= times;
    is_full_[drive] = true;
  }
  // Gives the drives that are not full what is missing. False: there are none.
  bool share_out() {
    double full = 0, others = 0;
    for (size_t i = 0; i < shares_.size(); ++i) (is_full_[i] ? full : others) += shares_[i];
    if (others <= 0) return false;
    for (size_t i = 0; i < shares_.size(); ++i) shares_[i] *= is_full_[i] ? 1 : (1 - full) / others;
    return true;
  }
  DriveWeights weights() const {
    DriveWeights found;
    for (size_t i = 0; i < shares_.size(); ++i) {
      found.weights.push_back(std::max(1u, static_cast<uint32_t>(std::lround(shares_[i] * kWholeWeight))));
      if (is_full_[i]) found.lowered.push_back(i);
    }
    return found;
  }

 private:
  std::vector<double> shares_;
  std::vector<bool> is_full_;
};

}  // namespace

std::vector<uint32_t> weights_of(std::vector<double> gb_per_s) {
  take_as_equal(gb_per_s);
  const double sum = std::reduce(gb_per_s.begin(), gb_per_s.end());
  std::vector<uint32_t> weights;
  for (const double speed : gb_per_s)
    weights.push_back(std::max(1u, static_cast<uint32_t>(std::lround(1000 * speed / sum))));
  return weights;
}

std::optional<std::vector<uint32_t>> weigh_drives(const StoreOptions& options, const Clock& clock) {
  const std::vector<std::optional<DriveSpeed>> measured = measure_drives(options, clock);
  std::vector<double> speeds;
  for (size_t drive = 0; drive < measured.size(); ++drive) {
    if (!measured[drive]) {
      say(options.log, LogLevel::kWarning,
          fmt::format("{} has no room to measure its drive: every drive gets the same share of each record",
                      options.words->name_of_folder(options.folders()[drive]).string()));
      return std::nullopt;
    }
    speeds.push_back(measured[drive]->both_gb_per_s());
  }
  return weights_of(std::move(speeds));
}

FileBytes file_bytes_of(const Geometry& geometry, RecordFormat format, std::span<const int64_t> scratch_bytes) {
  return [&geometry, format, scratch_bytes](std::span<const uint32_t> weights) {
    const StoreLayout layout(geometry, format, weights, scratch_bytes);
    return std::vector<int64_t>(layout.file_bytes().begin(), layout.file_bytes().end());
  };
}

std::vector<int64_t> least_file_bytes(size_t drives, const FileBytes& bytes) {
  std::vector<int64_t> least;
  for (size_t drive = 0; drive < drives; ++drive) {
    std::vector<uint32_t> weights(drives, kWholeWeight);
    weights[drive] = 1;
    least.push_back(bytes(weights)[drive]);
  }
  return least;
}

DriveWeights weights_with_room(std::vector<uint32_t> weights, std::span<const std::filesystem::path> files,
                               const FileBytes& bytes) {
  const auto too_small = [&](std::span<const uint32_t> tried) {
    std::vector<FileSystemRoom> rooms = rooms_for(files, bytes(tried));
    std::erase_if(rooms, [](const FileSystemRoom& room) { return !room.is_too_small(); });
    return rooms;
  };
  std::vector<FileSystemRoom> small = too_small(weights);
  if (small.empty()) return {std::move(weights), {}};
  const std::vector<int64_t> least = least_file_bytes(weights.size(), bytes);
  Shares shares(weights);
  for (size_t round = 0; round < 2 * weights.size(); ++round) {  // each fills a file system, or fills it better
    for (const FileSystemRoom& room : small) {
      const std::vector<size_t> drives = drives_of(room, files);
      int64_t beside_records = 0;
      for (const size_t drive : drives) beside_records += least[drive];
      const int64_t room_for_records = filled_bytes(room.free_bytes) - beside_records;
      if (room_for_records <= 0) return {std::move(weights), {}};
      const auto records = static_cast<double>(room.needed_bytes - beside_records);
      for (const size_t drive : drives) shares.lower(drive, static_cast<double>(room_for_records) / records);
    }
    if (!shares.share_out()) break;
    DriveWeights tried = shares.weights();
    small = too_small(tried.weights);
    if (small.empty()) return tried;
  }
  return {std::move(weights), {}};
}

std::vector<uint32_t> weights_for(const StoreOptions& options, std::span<const std::filesystem::path> files,
                                  const FileBytes& bytes) {
  if (files.size() == 1) return {1};
  const std::optional<std::vector<uint32_t>> speeds = weigh_drives(options);
  const std::vector<uint32_t> wanted = speeds.value_or(std::vector<uint32_t>(files.size(), 1));
  DriveWeights given = weights_with_room(wanted, files, bytes);
  std::vector<std::string> lowered;
  for (const size_t drive : given.lowered) {
    lowered.push_back(fmt::format("{} ({:.1f} % of the store in place of {:.1f} %)",
                                  options.words->name_of_folder(options.folders()[drive]).string(),
                                  100 * share_of(given.weights, drive), 100 * share_of(wanted, drive)));
  }
  if (!lowered.empty()) {
    const std::vector<double> as_speeds(wanted.begin(), wanted.end());
    const std::string cost = speeds ? fmt::format(": the drives together are {:.0f} % as fast as with room there",
                                                  100 * share_of_speed(as_speeds, given.weights))
                                    : "";
    say(options.log, LogLevel::kWarning, fmt::format("too little room in {}{}", fmt::join(lowered, ", "), cost));
  }
  return std::move(given.weights);
}

double share_of(std::span<const uint32_t> weights, size_t drive) {
  return weights[drive] / std::reduce(weights.begin(), weights.end(), 0.0);
}

double share_of_speed(std::span<const double> speeds, std::span<const uint32_t> weights) {
  SLUICE_CHECK(speeds.size() == weights.size(), "a weight for each drive");
  const double all = std::reduce(speeds.begin(), speeds.end());
  double most = 0;  // that one has to do, in the time that it takes with weights like its speed
  for (size_t i = 0; i < speeds.size(); ++i) {
    most = std::max(most, share_of(weights, i) * all / speeds[i]);
  }
  return 1 / most;
}

}  // namespace sluice
