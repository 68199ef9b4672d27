// Keys of DeepSpeed's file that the engine has no use for, or does not have. Those that it honours are in
// configs/keys.h.
#pragma once
#include <span>
#include <string_view>

namespace sluice {

struct DeepSpeedKey {
  // A key without keys below it in this list stands for all below it.
  std::string_view path;
  // Not needed: read, and a note says why. Not there: refused, unless its value asks for nothing. Renamed: likewise, and
  // the reason is the key's name now.
  enum class Fate { kNotNeeded, kNotThere, kRenamed } fate;
  std::string_view reason;
  std::string_view asks_nothing =
      "false";  // of kNotThere, as JSON, or a list of such; beside null and {"enabled": false}
};

std::span<const DeepSpeedKey> deepspeed_keys();
// Null where the path is none of these.
const DeepSpeedKey* find_deepspeed_key(std::string_view path);
// Whether it is a section of these keys' paths.
bool is_deepspeed_section(std::string_view path);

}  // namespace sluice
