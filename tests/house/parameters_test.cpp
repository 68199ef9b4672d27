#include "tests/house/parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::house {
namespace {

TEST(Parameters, are_told_apart_whatever_brackets_they_hold) {
  using testing::ElementsAre;
  using testing::IsEmpty;
  EXPECT_THAT(parameters_of("int f()"), IsEmpty());
  EXPECT_THAT(parameters_of("int f(int a, const B& b) const"), ElementsAre("int a", "const B& b"));
  EXPECT_THAT(parameters_of("void f(std::map<int, int> a, B b = {1, 2}, C c = g(1, 2))"),
              ElementsAre("std::map<int, int> a", "B b = {1, 2}", "C c = g(1, 2)"));
  EXPECT_THAT(parameters_of("std::function<void(int, int)> f(int a)"), ElementsAre("int a"));
  EXPECT_THAT(parameters_of("template <class A, class B> auto f(A a) -> std::pair<A, B>"), ElementsAre("A a"));
  EXPECT_THAT(parameters_of("S::S(int a, int b) : a_(a), b_(b, 1)"), ElementsAre("int a", "int b"));
  EXPECT_THAT(parameters_of("bool operator()(int a, int b)"), ElementsAre("int a", "int b"));
  EXPECT_THAT(parameters_of("bool operator<(const A& a, const A& b)"), ElementsAre("const A& a", "const A& b"));
}

TEST(Parameters, of_four_are_fine_and_of_five_are_reported) {
  EXPECT_EQ(report(check_parameters({{"core/a.cpp", "int f(int a, int b, int c, int d) {\n}\n"}})), "");
  EXPECT_EQ(report(check_parameters({{"core/a.cpp", "\nint f(int a, int b, int c,\n      int d, int e) {\n}\n"}})),
            "core/a.cpp:2: 5 parameters; 4 at the most: int f(int a, int b, int c, int d, int e)\n");
  EXPECT_NE(report(check_parameters({{"a.h", "class A {\n  A(int a, int b, int c, int d, int e) : a_{a} {}\n};\n"}})),
            "");
}

TEST(Parameters, that_are_bools_are_reported) {
  EXPECT_EQ(report(check_parameters({{"a.cpp", "bool f(bool* a, std::vector<bool> b, Boolean c) {\n}\n"}})), "");
  for (const std::string parameter : {"bool", "bool a", "const bool a", "bool a = true"}) {
    EXPECT_EQ(report(check_parameters({{"a.cpp", "void f(int x, " + parameter + ") {\n}\n"}})),
              "a.cpp:1: a bool in place of an enum class: " + parameter + "\n");
  }
  const auto report_of_lambda = [](const std::string& parameters) {
    return report(check_parameters({{"a.cpp", "\nauto f = [&](" + parameters + ") { return a[x](y); };\n"}}));
  };
  EXPECT_EQ(report_of_lambda("int x, bool y"), "");
  EXPECT_EQ(report_of_lambda("bool x, bool y"),
            "a.cpp:2: a bool in place of an enum class: bool x\na.cpp:2: a bool in place of an enum class: bool y\n");
}

}  // namespace
}  // namespace sluice::house
