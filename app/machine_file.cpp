#include "app/machine_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <vector>

#include "configs/document.h"
#include "core/checksum.h"
#include "core/errors.h"
#include "core/nearest_name.h"
#include "core/pending_file.h"
#include "core/read_file.h"
#include "swap/record_store.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

Json read_object(const fs::path& file) {
  const std::optional<std::string> text = read_text(file);
  if (!text) throw ConfigError(fmt::format("{}: there is no such file of a machine's speeds", file.string()));
  return Json::parse(read_document(*text, file.string(), {}));  // which refuses what is no object
}

double number_of(const Json& json, std::string_view key, const fs::path& file) {
  constexpr double kLeast = 1e-9, kMost = 1e9;  // no machine is beyond them, and no time that follows from them
  const Json& value = json[std::string(key)];
  if (value.is_number()) {
    const auto number = value.get<double>();
    if (number <= 0 || (number >= kLeast && number <= kMost)) return number;
    throw ConfigError(
        fmt::format("{}: {} is {}: allowed is up to {}, from {}", file.string(), key, value.dump(), kMost, kLeast));
  }
  throw ConfigError(fmt::format("{}: {} is {}: allowed is a number", file.string(), key, value.dump()));
}

// Out of range or between two numbers would be cut to another one by the conversion.
int whole_number_of(const Json& json, const std::string& key, int most, const fs::path& file) {
  const double value = number_of(json, key, file);
  if (value >= 1 && value <= most && value == std::floor(value)) return static_cast<int>(value);
  throw ConfigError(
      fmt::format("{}: {} is {}: allowed is a whole number from 1 to {}", file.string(), key, json[key].dump(), most));
}

// What is measured is noisy; what is much more was not measured.
void check_mixed(const MachineSpeeds& speeds, const fs::path& file) {
  const double both = speeds.read_gb_per_s + speeds.write_gb_per_s;
  if (speeds.mixed_gb_per_s <= 1.25 * both) return;
  throw ConfigError(
      fmt::format("{}: mixed_gb_per_s is {}: allowed is the sum of reads and writes at the same time, which "
                  "is no more than both alone, {}",
                  file.string(), speeds.mixed_gb_per_s, both));
}

// A likely slip: the command's first argument is one.
void check_no_configuration(const Json& json, const fs::path& file) {
  for (const char* key : {"model", "sluice", "train_batch_size"}) {
    if (!json.contains(key)) continue;
    throw ConfigError(
        fmt::format("{}: this is the configuration of a run (it has \"{}\"), not a machine's speeds: give a file "
                    "with those (README.md has its keys), or leave --machine out, and this machine is measured",
                    file.string(), key));
  }
}

void check_known(const Json& json, const fs::path& file) {
  std::vector<std::string_view> known = {"measured_for", "update_threads", "drives"};
  for (const MachineField& field : machine_fields()) known.push_back(field.name);
  for (const auto& [key, value] : json.items()) {
    if (std::ranges::find(known, key) != known.end()) continue;
    const std::string_view nearest = nearest_name(key, known);
    const std::string meant = slip_between(key, nearest) ? fmt::format("; did you mean \"{}\"?", nearest)
                                                         : fmt::format(": allowed are {}", fmt::join(known, ", "));
    throw ConfigError(fmt::format("{}: \"{}\" is no speed of a machine{}", file.string(), key, meant));
  }
}

MachineSpeeds speeds_of(const Json& json, const fs::path& file) {
  check_no_configuration(json, file);
  check_known(json, file);
  MachineSpeeds speeds;
  std::vector<std::string_view> missing;
  for (const MachineField& field : machine_fields()) {
    const bool given = json.contains(std::string(field.name));
    if (given) speeds.*field.value = number_of(json, field.name, file);
    if (!given && field.least == MachineField::Least::kAboveZero) missing.push_back(field.name);
  }
  if (!missing.empty()) {
    throw ConfigError(
        fmt::format("{}: {} {} missing: a machine has these speeds, and README.md says which it may leave out",
                    file.string(), fmt::join(missing, ", "), missing.size() == 1 ? "is" : "are"));
  }
  if (json.contains("update_threads")) speeds.update_threads = whole_number_of(json, "update_threads", 1024, file);
  if (json.contains("drives")) speeds.drives = whole_number_of(json, "drives", kMaxDrives, file);
  try {
    speeds.validate();
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}", file.string(), error.what()));
  }
  check_mixed(speeds, file);
  return speeds;
}

fs::path users_cache() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && fs::path(cache).is_absolute()) return fs::path(cache) / "sluice";
  const char* const home = std::getenv("HOME");
  return home != nullptr && *home != '\0' ? fs::path(home) / ".cache" / "sluice" : fs::path();
}

}  // namespace

MachineSpeeds read_machine(const fs::path& file) { return speeds_of(read_object(file), file); }

std::optional<MachineSpeeds> named_machine(const std::string& file) {
  return file.empty() ? std::nullopt : std::optional(read_machine(file));
}

std::string machine_text(const MachineSpeeds& speeds, const std::string& measured_for) {
  Json json = Json::object();
  for (const MachineField& field : machine_fields()) json[std::string(field.name)] = speeds.*field.value;
  json["update_threads"] = speeds.update_threads;
  if (speeds.drives > 0) json["drives"] = speeds.drives;
  json["measured_for"] = Json::parse(measured_for);
  return json.dump(2) + "\n";
}

MachineCache::MachineCache() : MachineCache(users_cache()) {}

fs::path MachineCache::file(const std::string& key) const {
  return folder_ / fmt::format("machine-{:08x}.json", crc32c(0, std::as_bytes(std::span(key))));
}

std::optional<MachineCache::Kept> MachineCache::find(const std::string& key) const {
  std::error_code error;
  if (folder_.empty() || !fs::exists(file(key), error)) return std::nullopt;
  try {
    const Json kept = read_object(file(key));
    if (kept.value("measured_for", Json()) != Json::parse(key)) return std::nullopt;
    const auto age = fs::file_time_type::clock::now() - fs::last_write_time(file(key));
    return Kept{.speeds = speeds_of(kept, file(key)), .age = std::chrono::duration_cast<std::chrono::seconds>(age)};
  } catch (const Error&) {  // damaged, or it cannot be read: measured again, as where there is none
    return std::nullopt;
  } catch (const fs::filesystem_error&) {  // gone in this moment
    return std::nullopt;
  }
}

bool MachineCache::keep(const std::string& key, const MachineSpeeds& speeds) const {
  if (folder_.empty()) return false;
  std::error_code error;
  fs::create_directories(folder_, error);
  try {
    PendingFile pending(file(key));
    pending.append(machine_text(speeds, key));
    pending.publish();
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace sluice
