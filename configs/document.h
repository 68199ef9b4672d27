// The configuration file as text: syntax, repeated keys, overrides. What comes out is one JSON object.
#pragma once
#include <span>
#include <string>

namespace sluice {

// Throws ConfigError: not JSON (naming line and column), not an object, a key given twice, a text with a byte 0, an
// override that is not path=value or leads through something that is not an object.
std::string read_document(const std::string& text, const std::string& name, std::span<const std::string> overrides);

}  // namespace sluice
