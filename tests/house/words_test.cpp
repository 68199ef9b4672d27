#include "tests/house/words.h"

#include <gtest/gtest.h>

namespace sluice::house {
namespace {

// Taken apart, so that the check over the tree does not stop here.
const std::string kToDo = std::string("TO") + "DO";

TEST(Words, report_a_to_do_that_gives_no_reason) {
  EXPECT_EQ(report(check_words({{"core/a.cpp", "int x;\n// " + kToDo + "\n"}})),
            "core/a.cpp:2: " + kToDo + " without a reason\n");
  EXPECT_EQ(report(check_words({{"core/a.cpp", "// " + kToDo + ": two drives need a second file\n"}})), "");
  EXPECT_NE(report(check_words({{"core/a.cpp", std::string("// FIX") + "ME\n"}})), "");
}

}  // namespace
}  // namespace sluice::house
