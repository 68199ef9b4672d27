// The folders that a user names as drives. Any thread.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>

#include "core/log.h"

namespace sluice {

// Throws ConfigError where two of them are one folder, however it is spelled (a slash more, a link, another mount), and
// names both. Folders that are not there yet are compared by their paths.
void check_distinct(std::span<const std::filesystem::path> folders);

// Throws ConfigError where two of these files of drives are one, by a link in the one folder to what is in the other.
// Those that are not there yet are not.
void check_distinct_files(std::span<const std::filesystem::path> files);

// The folder, or what of its path is there already.
std::filesystem::path existing_part(const std::filesystem::path& folder);

// Warns of those on a file system in memory, where one takes up what it is to spare, and ends with the machine.
void warn_of_no_drives(std::span<const std::filesystem::path> folders, const Log& log);

// On how many file systems they are; 0 where one does not tell.
int count_file_systems(std::span<const std::filesystem::path> folders);
// How many of these are on the file system of `folder`, which is one of them; 1 where it does not tell.
int64_t count_beside(const std::filesystem::path& folder, std::span<const std::filesystem::path> folders);
// What their file systems can still take together; one that several are on counts once. Of a folder that is not there
// the nearest one above it. INT64_MAX where a file system does not tell.
int64_t free_drive_bytes(std::span<const std::filesystem::path> folders);

}  // namespace sluice
