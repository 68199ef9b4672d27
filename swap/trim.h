// Gives back the space of a store that is no longer needed.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

namespace sluice {

struct TrimmedStore {
  std::filesystem::path folder;
  int64_t bytes = 0;  // given back
};
// Removes the store's files in these folders, its drives', and punches their blocks out, so that a drive learns that
// they are free where its file system passes that on. Where a link leads to a file, both go. A folder without one is
// passed over: what was cut short is finished by the next call. `number`: RecordStore::store_number of the store that
// is meant; where it is not known, all files must be of one store. Throws before anything is removed: ConfigError where
// none of them has one, one is no store of sluice or another store's, or another run uses one; IoError where a folder
// cannot be looked into. IoError later on too. A crash leaves each file as it was, or none.
std::vector<TrimmedStore> trim_stores(std::span<const std::filesystem::path> folders, std::optional<uint64_t> number,
                                      int rank = 0);

}  // namespace sluice
