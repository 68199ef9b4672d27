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

TEST(OptionNames, report_a_message_of_core_or_swap_that_knows_the_command) {
  const std::string found = ":2: a message names an option of the command\n";
  EXPECT_EQ(report(check_option_names({{"swap/a.cpp", "\nfail(\"go on with --resume\");\n"}})), "swap/a.cpp" + found);
  EXPECT_EQ(report(check_option_names({{"core/a.h", "\nauto a = \"sluice.nvme\";  // a \"key\"\n"}})),
            "core/a.h" + found);
  EXPECT_EQ(report(check_option_names({{"app/a.cpp", "fail(\"go on with --resume\");\n"}})), "");
  EXPECT_EQ(
      report(check_option_names({{"swap/a.h", "string folders;  // \" (--folder)\"\n--a; b(\"sluice-0.swap\");\n"}})),
      "");
}

}  // namespace
}  // namespace sluice::house
