#include "data/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice {
namespace {

// The encoder of the definition (RFC 3629), to compare with.
std::string encoded(uint32_t code) {
  const auto byte = [](uint32_t value) { return static_cast<char>(value); };
  if (code < 0x80) return {byte(code)};
  if (code < 0x800) return {byte(0xC0 | code >> 6), byte(0x80 | (code & 63))};
  if (code < 0x10000) return {byte(0xE0 | code >> 12), byte(0x80 | (code >> 6 & 63)), byte(0x80 | (code & 63))};
  return {byte(0xF0 | code >> 18), byte(0x80 | (code >> 12 & 63)), byte(0x80 | (code >> 6 & 63)),
          byte(0x80 | (code & 63))};
}

TEST(Utf8, every_code_point_is_a_character_but_for_surrogates_and_those_beyond_unicode) {
  for (uint32_t code = 0; code < 0x120000; ++code) {
    const bool allowed = code <= 0x10FFFF && !(code >= 0xD800 && code <= 0xDFFF);
    const std::string text = encoded(code);
    ASSERT_EQ(utf8_character(text), allowed ? text.size() : 0) << std::hex << code;
    ASSERT_EQ(utf8_character(text + "x"), allowed ? text.size() : 0) << std::hex << code;
    if (text.size() > 1) {
      ASSERT_EQ(utf8_character(text.substr(0, text.size() - 1)), 0u) << "cut off: " << std::hex << code;
    }
  }
}

TEST(Utf8, overlong_forms_and_lone_continuations_are_no_characters) {
  for (const std::string text :
       {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xE0\x9F\xBF", "\xF0\x80\x80\x80", "\xF0\x8F\xBF\xBF",
        "\xF5\x80\x80\x80", "\xFF", "\xC3(", "\xE2\x82(", "\xF0\x9F\x98("}) {
    EXPECT_EQ(utf8_character(text), 0u) << testing::PrintToString(text);
  }
}

TEST(Utf8, valid_prefix_ends_at_the_first_malformed_byte_wherever_it_stands) {
  for (size_t at = 0; at < 40; ++at) {
    std::string text(40, 'a');
    EXPECT_EQ(utf8_valid_prefix(text), text.size());
    text[at] = '\xFF';
    EXPECT_EQ(utf8_valid_prefix(text), at);
  }
}

TEST(Utf8, a_cut_falls_between_characters) {
  const std::string text = "ab\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80z";  // lengths 1 1 2 3 4 1
  const size_t expected[] = {0, 1, 2, 2, 4, 4, 4, 7, 7, 7, 7, 11};
  for (size_t limit = 0; limit < text.size(); ++limit) EXPECT_EQ(utf8_cut(text, limit), expected[limit]) << limit;
}

}  // namespace
}  // namespace sluice
