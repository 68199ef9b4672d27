// Folders, made and made durable.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>
#include <vector>

namespace sluice {

// Makes a folder and those above it that are not there; what it makes is added to `made`, the topmost first.
std::error_code make_missing_folders(const std::filesystem::path& folder, std::vector<std::filesystem::path>& made);

enum class FolderWas : uint8_t { kThere, kMade };
// With those above it; their names are durable when this returns, as sync_parents() says. Throws IoError; where a
// folder cannot be made it gives this advice.
FolderWas make_folder(const std::filesystem::path& folder, std::string_view advice);

// Makes the names of folders durable, but those in a folder that this process may not read. Throws as sync_folder().
void sync_parents(std::span<const std::filesystem::path> folders);

// Makes the names in a folder durable. An empty path is the current folder. Throws IoError; a file system that cannot
// sync folders is no error.
void sync_folder(const std::filesystem::path& folder);

}  // namespace sluice
