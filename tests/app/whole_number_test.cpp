#include "app/whole_number.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(WholeNumber, is_taken_in_decimal_digits_alone_and_within_its_limits) {
  const auto check = whole_number(0, 4096);
  for (const char* good : {"0", "1", "8", "4096"}) EXPECT_EQ(check(good), "");
  for (const char* bad :
       {"010", "0x4", "0b11", "1e1", "4.0", "+4", " 4", "4 ", "4k", "", "-1", "4097", "99999999999999999999"}) {
    EXPECT_EQ(check(bad), std::string(bad) + " is not an integer from 0 to 4096");
  }
  EXPECT_EQ(whole_number(1)("0"), "0 is not a positive integer");
  EXPECT_EQ(whole_number(0)("9223372036854775807"), "");
  EXPECT_NE(whole_number(0)("9223372036854775808"), "");
}

}  // namespace
}  // namespace sluice
