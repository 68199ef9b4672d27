#include "core/ieee_arithmetic.h"

#include <gtest/gtest.h>

#include "core/threads.h"
#include "tests/fakes/odd_arithmetic.h"

namespace sluice {
namespace {

TEST(IeeeArithmetic, holds_while_it_lives_and_gives_back_what_was) {
  ASSERT_TRUE(arithmetic_is_ieee());
  const OddArithmetic odd;
  EXPECT_FALSE(arithmetic_is_ieee());
  {
    const IeeeArithmetic arithmetic;
    EXPECT_TRUE(arithmetic_is_ieee());
  }
  EXPECT_FALSE(arithmetic_is_ieee());
}

TEST(IeeeArithmetic, is_that_of_threads_that_are_started_whatever_their_starter_has) {
  const OddArithmetic odd;
  bool ieee = false;
  start_thread("a thread of a test", [&] { ieee = arithmetic_is_ieee(); }).join();
  EXPECT_TRUE(ieee);
}

}  // namespace
}  // namespace sluice
