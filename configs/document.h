// The configuration file as text: syntax, repeated keys, overrides. What comes out is one JSON object with known keys.
#pragma once
#include <span>
#include <string>

namespace sluice {

// Throws ConfigError: not JSON (naming line and column), not an object, a key given twice, an override that is not
// path=value or leads through something that is not an object.
std::string read_document(const std::string& text, const std::string& name, std::span<const std::string> overrides);

// Throws ConfigError for a key that is not known (naming the nearest that is) or not supported yet.
void check_keys(const std::string& document, const std::string& name);

}  // namespace sluice
