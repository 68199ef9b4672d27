// Programs that lie in the folder of the one that runs: tests find each other wherever a build was carried.
#pragma once
#include <filesystem>
#include <string>

namespace sluice {

inline std::string beside_this_program(const std::string& name) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).string();
}

}  // namespace sluice
