// Where a command writes what its --out names: over an earlier one of its kind, and over nothing else.
#pragma once
#include <filesystem>
#include <string_view>

namespace sluice {

struct OutputKind {
  std::string_view begins_with;  // as every file of it does, white space aside
  std::string_view name;         // "a report"
};
// The path, links followed. Throws ConfigError where a file that is not of this kind is there, or no regular file.
std::filesystem::path output_file(const std::filesystem::path& path, const OutputKind& kind);

}  // namespace sluice
