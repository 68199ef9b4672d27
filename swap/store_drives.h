// Finding and opening the drives of a store, before its layout is known. Internal to swap, but for stored_weights().
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "swap/drive.h"
#include "swap/record_store.h"
#include "swap/store_format.h"

namespace sluice {

// Of the store's files, in the order of its drives. Throws ConfigError where a folder is named twice.
std::vector<std::filesystem::path> store_paths(const StoreOptions& options, int rank);

// The number that tells the files of a store from those of another.
uint64_t draw_store_number();

// Those in the header of the store that lies in these folders, which may be open. nullopt: there is none whose header
// is whole, or it is on another number of drives, or begins with another one. Throws IoError as
// RecordStore::identify().
std::optional<std::vector<uint32_t>> stored_weights(std::span<const std::filesystem::path> folders, int rank = 0);

// What the header of the file in this folder says of it, which may be open. nullopt and errors as above.
std::optional<DrivePlace> place_in_store(const std::filesystem::path& folder, int rank = 0);
// What an interrupted trim has left in the first drive's file, which lies in this folder. nullopt: nothing, or that
// cannot be read.
std::optional<TrimMark> trim_mark(const std::filesystem::path& folder, int rank = 0);

// One copy of a drive's identity header, and what belongs there.
struct DamagedHeader {
  int drive = 0, copy = 0;
  AlignedBuffer whole;
};
struct OpenedDrives {
  std::vector<Drive> drives;
  std::vector<uint32_t> weights;
  std::vector<DamagedHeader> damaged;  // for Impl::mend_headers()
};
// All drives, locked, each known to be in its place; nothing is written. nullopt: the store's creation was cut off.
// Throws as RecordStore::open does.
std::optional<OpenedDrives> open_drives(const StoreOptions& options, const StoreIdentity& identity);
// A creation that was cut off may be begun anew, but over nothing on its further drives that is not of it: throws
// ConfigError.
void refuse_other_stores(const StoreOptions& options, int rank);

}  // namespace sluice
