#include "core/bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/errors.h"
#include "tests/fakes/message_of.h"

namespace sluice {
namespace {

TEST(ParseBytes, knows_powers_of_1024_and_of_1000) {
  EXPECT_EQ(parse_bytes("4096"), 4096);
  EXPECT_EQ(parse_bytes("0"), 0);
  EXPECT_EQ(parse_bytes("17B"), 17);
  EXPECT_EQ(parse_bytes("3KiB"), 3072);
  EXPECT_EQ(parse_bytes("64 MiB"), 64 * kMiB);
  EXPECT_EQ(parse_bytes("12GiB"), 12 * kGiB);
  EXPECT_EQ(parse_bytes("2TiB"), 2048 * kGiB);
  EXPECT_EQ(parse_bytes("2PiB"), kGiB << 21);
  EXPECT_EQ(parse_bytes("1.0 EiB"), kMostBudgetBytes);
  EXPECT_EQ(parse_bytes("3KB"), 3000);
  EXPECT_EQ(parse_bytes("1.5GB"), 1'500'000'000);
  EXPECT_EQ(parse_bytes("2 TB"), 2'000'000'000'000);
  EXPECT_EQ(parse_bytes("0.5PB"), 500'000'000'000'000);
  EXPECT_EQ(parse_bytes("9EB"), 9'000'000'000'000'000'000);
}

TEST(ParseBytes, rounds_a_fraction_of_a_byte_down) {
  EXPECT_EQ(parse_bytes("0.5KiB"), 512);
  EXPECT_EQ(parse_bytes("1.1KiB"), 1126);
  EXPECT_EQ(parse_bytes("0.9"), 0);
  EXPECT_EQ(parse_bytes("1.25000000000000MiB"), kMiB * 5 / 4);
}

TEST(ParseBytes, holds_the_largest_count_and_refuses_the_next) {
  EXPECT_EQ(parse_bytes("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(parse_bytes("8388607TiB"), int64_t{8388607} * 1024 * kGiB);
  EXPECT_EQ(parse_bytes("7.5EiB"), 15 * (kGiB << 29));
  for (const std::string text : {"9223372036854775808", "8388608TiB", "8EiB", "10EB", "99999999999999999999EiB"}) {
    const std::string said = message_of<ConfigError>([&] { parse_bytes(text); });
    EXPECT_EQ(said, "'" + text + "' is more bytes than can be counted: below 8EiB is allowed");
  }
}

TEST(ParseBytes, refuses_everything_else_and_says_what_is_allowed) {
  for (const char* text : {"", " ", "MiB", "-1", "+1", "1.", ".5GB", "1,5GB", "64M", "64mib", "64 MiB ", "1e9", "0x10",
                           "12 GiB of it", " 1"}) {
    EXPECT_THROW(parse_bytes(text), ConfigError) << "'" << text << "'";
  }
  try {
    parse_bytes("64M");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "'64M' is not a number of bytes; write for example 4096, 64MiB or 1.5GB (KiB MiB GiB TiB PiB EiB KB "
                 "MB GB TB PB EB)");
  }
}

TEST(FormatBytes, shows_four_digits_at_the_most) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes(64 * kMiB), "64.0 MiB");
  EXPECT_EQ(format_bytes(999 * kMiB + kMiB * 9 / 10), "999.9 MiB");
  EXPECT_EQ(format_bytes(1000 * kMiB), "1000 MiB");
  EXPECT_EQ(format_bytes(kGiB - 1), "1.0 GiB");
  EXPECT_EQ(format_bytes(-3 * kMiB / 2), "-1.5 MiB");
  EXPECT_EQ(format_bytes(INT64_MAX), "8.0 EiB");
}

TEST(RoundUp, keeps_multiples_and_raises_the_rest) {
  EXPECT_EQ(round_up(0, 128), 0);
  EXPECT_EQ(round_up(1, 128), 128);
  EXPECT_EQ(round_up(128, 128), 128);
  EXPECT_EQ(round_up(10, 3), 12);
}

}  // namespace
}  // namespace sluice
