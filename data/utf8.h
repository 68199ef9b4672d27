// UTF-8 by RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF. Pure functions.
#pragma once
#include <cstddef>
#include <string_view>

namespace sluice {

// Length in bytes of the well-formed character that `text` begins with; 0 where it begins with none (malformed, cut
// off, or empty).
size_t utf8_character(std::string_view text);

// Length of the longest prefix made of well-formed characters.
size_t utf8_valid_prefix(std::string_view text);

// The end of the last whole character in the first `limit` bytes of well-formed text (limit < text.size()).
size_t utf8_cut(std::string_view text, size_t limit);

}  // namespace sluice
