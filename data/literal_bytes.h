// What goes around sentencepiece: characters that it gives a meaning of its own or changes on the way. They are encoded
// as the byte entries of the vocabulary, so that every text comes back exactly, and never reach the trainer.
#pragma once
#include <cstdint>
#include <string_view>

#include "data/utf8.h"

namespace sluice {

// Length of what `text` (not empty) begins with and that must be encoded byte by byte: control characters (newline and
// tab among them), U+2581 (which stands for a space inside sentencepiece), bytes that are no UTF-8. 0 for all else.
inline size_t literal_length(std::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  if (first < 0x20) return 1;
  if (first < 0x80) return 0;
  if (text.substr(0, 3) == "\xE2\x96\x81") return 3;
  return utf8_character(text) == 0 ? 1 : 0;
}

// Calls literal(text) and plain(text) with the parts of `text` in order; plain parts are as long as can be.
template <class Literal, class Plain>
void split_literals(std::string_view text, const Literal& literal, const Plain& plain) {
  size_t begin = 0, at = 0;
  while (at < text.size()) {
    const size_t length = literal_length(text.substr(at));
    if (length == 0) {
      at += utf8_character(text.substr(at));
      continue;
    }
    if (at > begin) plain(text.substr(begin, at - begin));
    literal(text.substr(at, length));
    begin = at += length;
  }
  if (at > begin) plain(text.substr(begin));
}

}  // namespace sluice
