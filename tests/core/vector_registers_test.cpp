#include "core/vector_registers.h"

#include <gtest/gtest.h>

#include "tests/fakes/upper_halves.h"

namespace sluice::testing {
namespace {

TEST(UpperHalves, are_released) {
  if (!has_upper_halves()) GTEST_SKIP() << "this processor has no such registers";
  use_upper_halves();
  EXPECT_TRUE(upper_halves_in_use());
  release_upper_halves();
  EXPECT_FALSE(upper_halves_in_use());
}

}  // namespace
}  // namespace sluice::testing
