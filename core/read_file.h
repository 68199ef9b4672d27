// Small files, whole.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace sluice {

// nullopt: there is no such file. Throws ConfigError for a folder, IoError where the file cannot be opened or read.
std::optional<std::string> read_file(const std::filesystem::path& path);
// The same for text: throws ConfigError where a byte is 0, which parsers take for the end.
std::optional<std::string> read_text(const std::filesystem::path& path);

}  // namespace sluice
