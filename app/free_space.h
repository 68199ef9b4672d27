// Whether a store has room on its drives, as far as that can be told before anything is made or measured.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "engine/plan.h"

namespace sluice {

// Of the files of this plan's store, one a drive, were all drives to take the same. Whatever each takes, the sum stays.
std::vector<int64_t> even_shares(const Plan& plan);

// Throws ConfigError (bytes needed, bytes free, folders) where a store that would have these even shares cannot be made
// in these folders, one for each drive, whose last parts may not be there yet. Folders of one file system share its
// space; the files of a store that is there count as free. How much each of several drives takes follows from their
// speeds, which are measured as the store is made: this looks at the sum, and the creation refuses a drive that is too
// small for its share as soon as it knows that. Where one has no room to be measured, all take the same, and this
// refuses it already.
void check_free_space(std::span<const std::filesystem::path> folders, std::span<const int64_t> even_shares);

}  // namespace sluice
