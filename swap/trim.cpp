#include "swap/trim.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>
#include <numeric>
#include <string>
#include <system_error>
#include <utility>

#include "core/errors.h"
#include "core/folders.h"
#include "core/retried.h"
#include "swap/drive.h"
#include "swap/record_store.h"
#include "swap/store_drives.h"
#include "swap/store_format.h"

namespace sluice {
namespace {

struct Found {
  std::filesystem::path folder;
  Drive drive;  // locked
  DrivePlace place{};
};

std::vector<Found> find_and_lock(std::span<const std::filesystem::path> folders, int rank) {
  std::vector<Found> found;
  std::vector<std::string> looked_at;
  for (const std::filesystem::path& folder : folders) {
    const std::filesystem::path path = store_path(folder, rank);
    looked_at.push_back(path.string());
    if (find_store(folder, rank) == StoreExists::kNo) continue;
    found.push_back({.folder = folder, .drive = Drive::open(path)});
    std::optional<DrivePlace> place = place_in_store(folder, rank);
    if (!place) throw ConfigError(fmt::format("{} is not a store of sluice: nothing is removed", path.string()));
    found.back().place = std::move(*place);
  }
  if (found.empty()) throw ConfigError(fmt::format("{}: no store is there", fmt::join(looked_at, ", ")));
  return found;
}

// Runs may name one folder of a drive, one after the other: what lies there now may be another one's.
void check_one_store(std::span<const Found> found, std::optional<uint64_t> number) {
  std::vector<std::string> own, others;
  for (const Found& each : found) {
    (each.place.store == number.value_or(found.front().place.store) ? own : others)
        .push_back(each.drive.path().string());
  }
  if (others.empty()) return;
  if (!number) {
    throw ConfigError(
        fmt::format("{} and {} are parts of different stores, and which of them is meant is not written down: nothing "
                    "is removed; remove by hand what is not needed",
                    own.front(), others.front()));
  }
  const std::string left = own.empty() ? "here nothing is left of this run's store"
                                       : fmt::format(
                                             "put that one back, or, where it is gone, remove by hand what is "
                                             "left of this run's store: {}",
                                             fmt::join(own, ", "));
  throw ConfigError(fmt::format(
      "the store in {} is another run's, begun there since or put in the place of this run's drive: nothing "
      "is removed; {}",
      fmt::join(others, ", "), left));
}

// The file that the path leads to, then the link where there is one: cut off in between, no store is there.
void remove_file(const std::filesystem::path& path) {
  std::error_code error;
  const bool is_link = std::filesystem::is_symlink(path, error);
  const std::filesystem::path file = is_link && !error ? std::filesystem::canonical(path, error) : path;
  if (!error) std::filesystem::remove(file, error);
  if (!error && is_link) std::filesystem::remove(path, error);
  if (error) throw IoError({.action = "removal", .path = path.string(), .error_number = error.value()});
  sync_parents(std::array{file});
  if (is_link) sync_parents(std::array{path});
}

int64_t give_back(const Drive& drive) {
  const std::filesystem::path& path = drive.path();
  struct stat status {};
  if (fstat(drive.file(), &status) != 0) {
    throw IoError({.action = "stat", .path = path.string(), .error_number = errno});
  }
  remove_file(path);
  // What is not punched out is freed as it is closed. A file that has another name is kept by somebody.
  struct stat now {};
  if (fstat(drive.file(), &now) != 0 || now.st_nlink > 0) return 0;
  retried([&] { return fallocate(drive.file(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, status.st_size); });
  return status.st_blocks * kStatBlockBytes;
}

// Durable when this returns, where the drive takes it. One that does not is trimmed all the same: what is left of the
// store after a cut is then to be removed by hand.
void mark_trim(const Drive& first, TrimMark mark) {
  std::array<AlignedBuffer, 2> blocks{AlignedBuffer(kStoreBlockBytes), AlignedBuffer(kStoreBlockBytes)};
  std::array<OpeningBlock, 2> openings;
  std::array<BlockState, 2> states{};
  const auto moves = [](auto move, const AlignedBuffer& block, int64_t offset, const Drive& drive) {
    return retried([&] { return move(drive.file(), block.data(), kStoreBlockBytes, offset); }) == kStoreBlockBytes;
  };
  for (size_t i : {0, 1}) {
    if (!moves(pread, blocks[i], kOpeningOffset[i], first)) return;
    states[i] = read_opening(blocks[i].span(), openings[i]);
  }
  const auto older = static_cast<size_t>(older_opening(openings[0].generation, openings[1].generation));
  const std::span<std::byte> block = blocks[older].span();
  if (states[older] == BlockState::kBlank) write_opening(block, {});  // else it would be one that is damaged
  if (const auto before = read_trim_mark(block); before && before->store == mark.store) {
    mark.from_drive = std::min(mark.from_drive, before->from_drive);
  }
  write_trim_mark(block, mark);
  if (moves(pwrite, blocks[older], kOpeningOffset[older], first)) retried([&] { return fdatasync(first.file()); });
}

// What lies in a folder of a store's drive.
struct Seen {
  StoreExists file = StoreExists::kNo;
  std::optional<DrivePlace> place;  // by its header, where that can be read
  bool is_part_of(uint64_t store) const { return place && place->store == store; }
};
std::vector<Seen> look_into(std::span<const std::filesystem::path> folders, int rank) {
  std::vector<Seen> seen;
  for (const std::filesystem::path& folder : folders) {
    seen.push_back({.file = find_store(folder, rank), .place = {}});
    if (seen.back().file == StoreExists::kYes) seen.back().place = place_in_store(folder, rank);
  }
  return seen;
}

// That of the store that is meant, by one of its headers.
std::optional<DrivePlace> find_place(std::span<const Seen> seen, std::optional<uint64_t> number) {
  const auto meant = std::ranges::find_if(
      seen, [&](const Seen& each) { return each.place && each.is_part_of(number.value_or(each.place->store)); });
  return meant == seen.end() ? std::nullopt : meant->place;
}

// By drive, the number of the folder in which its file is, in whatever order those are named; -1: none has it. A file
// of somebody else's counts as the drive's in whose place it lies.
std::vector<int> folders_of_drives(std::span<const Seen> seen, const std::optional<DrivePlace>& store) {
  std::vector<int> found(std::max(seen.size(), size_t{kMaxDrives}), -1);
  for (size_t i = 0; i < seen.size(); ++i) {
    if (seen[i].file == StoreExists::kNo) continue;
    const bool is_part = store && seen[i].is_part_of(store->store);
    found[is_part ? static_cast<size_t>(seen[i].place->drive) : i] = static_cast<int>(i);
  }
  return found;
}

// The header has room for the first ones.
std::filesystem::path name_at_creation(const DrivePlace& place, size_t drive) {
  return drive < place.folders.size() ? place.folders[drive] : "(a folder whose name is not kept)";
}

}  // namespace

StoreParts find_parts(std::span<const std::filesystem::path> folders, std::optional<uint64_t> number, int rank) {
  SLUICE_CHECK(!folders.empty(), "a store lies in a folder");
  const std::vector<Seen> seen = look_into(folders, rank);
  const std::optional<DrivePlace> place = find_place(seen, number);
  const std::vector<int> found = folders_of_drives(seen, place);
  const bool has_first = place && found[0] >= 0;
  const std::optional<TrimMark> mark = has_first ? trim_mark(folders[found[0]], rank) : std::nullopt;
  const bool was_begun = mark && mark->store == place->store;
  const size_t drives = place ? place->weights.size() : folders.size();
  StoreParts parts;
  for (size_t drive = 0; drive < drives; ++drive) {
    const bool is_given = drive < folders.size();
    if (found[drive] >= 0) continue;
    const std::filesystem::path folder = is_given ? folders[drive] : name_at_creation(*place, drive);
    const bool is_trimmed = was_begun && static_cast<int64_t>(drive) >= mark->from_drive;
    (is_trimmed ? parts.trimmed : parts.missing).push_back(store_path(folder, rank));
  }
  return parts;
}

std::vector<TrimmedStore> trim_stores(std::span<const std::filesystem::path> folders, std::optional<uint64_t> number,
                                      int rank) {
  SLUICE_CHECK(!folders.empty(), "a store lies in a folder");
  const std::vector<Found> found = find_and_lock(folders, rank);
  check_one_store(found, number);
  // The first drive's, which tells most of a store, goes last.
  std::vector<size_t> order(found.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, std::ranges::greater(), [&](size_t i) { return found[i].place.drive; });
  const Found& last = found[order.back()];
  std::vector<TrimmedStore> trimmed(found.size());
  for (const size_t i : order) {
    const DrivePlace& place = found[i].place;
    if (place.drive > 0 && last.place.drive == 0)
      mark_trim(last.drive, {.store = place.store, .from_drive = place.drive});
    trimmed[i] = {found[i].folder, give_back(found[i].drive)};
  }
  return trimmed;
}

}  // namespace sluice
