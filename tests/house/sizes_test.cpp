#include "tests/house/sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::house {
namespace {

std::string lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "  x = x + 1;\n";
  return text;
}

std::string python_lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "    x = 1\n\n";
  return text;
}

TEST(FileSize, of_500_lines_is_fine_and_of_501_is_reported) {
  EXPECT_EQ(report(check_sizes({{"core/a.h", std::string(500, '\n')}})), "");
  EXPECT_EQ(report(check_sizes({{"core/a.h", std::string(501, '\n')}})), "core/a.h: 501 lines; 500 at the most\n");
  EXPECT_NE(report(check_sizes({{"run", std::string(501, '\n')}})), "");
}

TEST(FunctionSize, of_70_lines_is_fine_and_of_71_is_reported) {
  EXPECT_EQ(report(check_sizes({{"core/a.cpp", "int f() {\n" + lines(68) + "}\n"}})), "");
  EXPECT_EQ(report(check_sizes({{"core/a.cpp", "\nint f() {\n" + lines(69) + "}\n"}})),
            "core/a.cpp:2: 71 lines; 70 at the most: int f()\n");
}

TEST(FunctionSize, is_seen_in_every_shape_of_a_function) {
  const char* heads[] = {
      "void f(int a,\n       int b) const noexcept {\n",
      "TEST(Suite, behaves) {\n",
      "template <class T>\nauto f(T t) -> int {\n",
      "namespace a {\nnamespace {\nclass B : public C {\n public:\n  int f(int x = 1) override {\n",
      "struct alignas(64) S {\n  int f() {\n",
      "S::S(int a) : a_(a), b_{1}, c_{2} {\n",
      "constexpr int kTable[] = {1, 2};\nbool operator==(const A& a, const B& b) {\n",
      "#define BODY {\nint f() {\n",
      "const char* kText = R\"x({{{)x\";\nint f(char c = '{') {  // {\n",
      "int kMany = 1'000'000;\nint f() {\n",
      "std::map<int, int> kMap = {{1, g(2)}, {3, 4}};\nint f() {\n",
  };
  for (const std::string head : heads) {
    const std::string small = report(check_sizes({{"a.cpp", head + lines(60) + "}\n"}}));
    EXPECT_EQ(small, "") << head;
    EXPECT_THAT(report(check_sizes({{"a.cpp", head + lines(71) + "}\n"}})), testing::HasSubstr("70 at the most"))
        << head;
  }
}

TEST(FunctionSize, counts_each_function_alone) {
  std::string text = "namespace a {\nclass B {\n public:\n";
  for (int i = 0; i < 6; ++i) text += "  int f" + std::to_string(i) + "() {\n" + lines(60) + "  }\n";
  const std::vector<Function> functions = functions_of_cpp(text + "};\n}\n");
  ASSERT_EQ(functions.size(), 6u);
  EXPECT_EQ(functions[0].lines, 62);
  EXPECT_EQ(functions[0].first_line, 4);
  EXPECT_EQ(functions[5].head, "int f5()");
}

TEST(FunctionSize, leaves_out_declarations_tables_and_classes) {
  EXPECT_TRUE(functions_of_cpp("int f();\nclass A {\n  int x_{1};\n  A() = default;\n};\nenum class E { kA, kB };\n"
                               "constexpr P kP[] = {{\"a\", 1}};\nusing F = std::function<void(int)>;\n")
                  .empty());
}

TEST(FunctionSize, of_python_ends_where_the_indentation_does) {
  const std::string text =
      "def f(a,\n      b,\n):\n" + python_lines(10) + "\n\nclass C:\n    def g(self):\n        pass\n";
  const std::vector<Function> functions = functions_of_python(text);
  ASSERT_EQ(functions.size(), 2u);
  EXPECT_EQ(functions[0].lines, 3 + 20 - 1);
  EXPECT_EQ(functions[1].lines, 2);
  EXPECT_NE(report(check_sizes({{"a.py", "def f():\n" + python_lines(40)}})), "");
}

TEST(Code, loses_comments_literals_and_directives_but_no_line) {
  EXPECT_EQ(code_of_cpp("a /* {\n */ b // {\n"), "a     \n    b     \n");
  EXPECT_EQ(code_of_cpp(R"(f("\"{", '\'', 'x');)"), "f(     ,     ,    );");
  EXPECT_EQ(code_of_cpp("#define A { \\\n  {\nb"), "             \n   \nb");
}

}  // namespace
}  // namespace sluice::house
