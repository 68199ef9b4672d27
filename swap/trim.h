// Gives back the space of a store that is no longer needed.
#pragma once
#include <cstdint>
#include <filesystem>

namespace sluice {

// Removes the folder's file of the store and punches its blocks out, so that the drive learns that they are free where
// its file system passes that on. Returns the bytes given back. Throws ConfigError (there is none, it is no store of
// sluice, another run uses it) and IoError. A crash leaves the store as it was, or none.
int64_t trim_store(const std::filesystem::path& folder, int rank = 0);

}  // namespace sluice
