// The keys of the configuration file that are honoured, and what each allows.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

// An open section's keys are checked by whoever reads it. A list's objects have the keys below its path.
enum class KeyKind { kValue, kSection, kOpenSection, kList };

struct KeyInfo {
  std::string_view path;
  KeyKind kind;
  std::string_view allowed;  // what a value may be, for errors
};

// Null where the path is not known.
const KeyInfo* find_key(std::string_view path);
// The key nearest to an unknown path, DeepSpeed's included: by edit distance among the keys of its section, where the
// first letters of its words do too ("lr" for "learning_rate"); else one elsewhere whose last name is the same but for
// one edit. Empty: none is like it.
std::string nearest_key(std::string_view path);
// Names of the keys of a section ("" for the file's top), comma-separated: those that are honoured, and then those of
// DeepSpeed's that are read and not needed, by name where they are few. Those that are refused are left out.
std::string keys_of(std::string_view section);

}  // namespace sluice
