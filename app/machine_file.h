// A machine's speeds as a JSON file: what --machine names, and what is kept of this machine between runs.
#pragma once
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "engine/machine.h"

namespace sluice {

// Throws ConfigError naming the file and the key: one that is unknown, missing (those that may be 0
// may be), or no number of its range. "measured_for" is for people and not looked at.
MachineSpeeds read_machine(const std::filesystem::path& file);
// What --machine names; nullopt where it was not given.
std::optional<MachineSpeeds> named_machine(const std::string& file);
// `measured_for` is JSON.
std::string machine_text(const MachineSpeeds& speeds, const std::string& measured_for);

// Speeds measured before, in $XDG_CACHE_HOME/sluice or ~/.cache/sluice. A key says what they were measured for (JSON of
// the CPU, the drives, the threads, the format): each has a file of its own.
class MachineCache {
 public:
  MachineCache();  // of this user; without a home nothing is kept
  explicit MachineCache(std::filesystem::path folder) : folder_(std::move(folder)) {}
  std::filesystem::path file(const std::string& key) const;
  struct Kept {
    MachineSpeeds speeds;
    std::chrono::seconds age{};  // below 0: kept in a future that another clock had
  };
  std::optional<Kept> find(const std::string& key) const;  // a file that is damaged is none
  // Whole or not at all. False where that is impossible.
  bool keep(const std::string& key, const MachineSpeeds& speeds) const;

 private:
  std::filesystem::path folder_;  // empty: none
};

}  // namespace sluice
