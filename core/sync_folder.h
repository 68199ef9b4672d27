// Makes the names in a folder durable.
#pragma once
#include <filesystem>

namespace sluice {

// An empty path is the current folder. Throws IoError; a file system that cannot sync folders is no error.
void sync_folder(const std::filesystem::path& folder);

}  // namespace sluice
