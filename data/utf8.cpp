#include "data/utf8.h"

#include <cstdint>
#include <cstring>

namespace sluice {

namespace {

struct Lead {
  size_t length = 0;                // of the character; 0: no character begins with this byte
  uint8_t low = 0x80, high = 0xBF;  // what the second byte may be
};

Lead lead_of(uint8_t byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {.length = 2};
  if (byte == 0xE0) return {.length = 3, .low = 0xA0};
  if (byte == 0xED) return {.length = 3, .high = 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {.length = 3};
  if (byte == 0xF0) return {.length = 4, .low = 0x90};
  if (byte >= 0xF1 && byte <= 0xF3) return {.length = 4};
  if (byte == 0xF4) return {.length = 4, .high = 0x8F};
  return {};
}

bool is_continuation(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

}  // namespace

size_t utf8_character(std::string_view text) {
  if (text.empty()) return 0;
  const auto first = static_cast<uint8_t>(text[0]);
  if (first < 0x80) return 1;
  const Lead lead = lead_of(first);
  if (lead.length == 0 || text.size() < lead.length) return 0;
  const auto second = static_cast<uint8_t>(text[1]);
  if (second < lead.low || second > lead.high) return 0;
  for (size_t i = 2; i < lead.length; ++i) {
    if (!is_continuation(text[i])) return 0;
  }
  return lead.length;
}

size_t utf8_valid_prefix(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080u;
  size_t at = 0;
  while (at < text.size()) {
    uint64_t eight;
    while (at + sizeof eight <= text.size()) {
      std::memcpy(&eight, text.data() + at, sizeof eight);
      if (eight & kHighBits) break;
      at += sizeof eight;
    }
    const size_t length = utf8_character(text.substr(at));
    if (length == 0) break;
    at += length;
  }
  return at;
}

size_t utf8_cut(std::string_view text, size_t limit) {
  size_t cut = limit;
  while (cut > 0 && is_continuation(text[cut])) --cut;
  return cut;
}

}  // namespace sluice
