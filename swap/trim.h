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

// The parts of a store that are not there, by the number of drives in the headers that are: files in these folders,
// where another drive's may lie, and, where the store has more drives than that, what they were called at creation.
// Both empty: all parts are there.
struct StoreParts {
  // No trim has taken them away: a drive may not be mounted, and would keep its part for good.
  std::vector<std::filesystem::path> missing;
  // Taken away, or about to be, by a trim that was interrupted: trim_stores() goes on with it. A trim begins with the
  // last drive and ends with the first, in whose file it has marked how far it is: where the first drive's part is not
  // there nothing can be known to be trimmed.
  std::vector<std::filesystem::path> trimmed;
};
// `number` as in trim_stores(). A file of another store is taken for the drive's in whose place it lies, which
// trim_stores() refuses. The store may be open. Throws
// IoError where a folder cannot be looked into, or a header not be read.
StoreParts find_parts(std::span<const std::filesystem::path> folders, std::optional<uint64_t> number, int rank = 0);

// Removes the store's files in these folders, its drives', and punches their blocks out, so that a drive learns that
// they are free where its file system passes that on. Where a link leads to a file, both go. A folder without one is
// passed over: what was cut short is finished by the next call, and who does not want that asks find_parts(). The last
// drive's goes first, and before each of them the first drive's file is marked, as far as that drive takes it: an
// opening to write takes the mark away. `number`: RecordStore::store_number of the store that is meant; where it is not
// known, all files must be of one store. Throws before anything is removed: ConfigError where none of them has one, one
// is no store of sluice or another store's, or another run uses one; IoError where a folder cannot be looked into.
// IoError later on too. A crash leaves each file as it was, the first one's mark aside, or none.
std::vector<TrimmedStore> trim_stores(std::span<const std::filesystem::path> folders, std::optional<uint64_t> number,
                                      int rank = 0);

}  // namespace sluice
