// Lines of a chart: what is finite is drawn, and nothing else.
#include "app/svg_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace sluice {
namespace {

std::string chart_of(const std::vector<std::optional<double>>& values) {
  LineChart chart{.x_name = "step", .y_name = "loss", .points = {}};
  for (const std::optional<double>& value : values) {
    chart.points.push_back({static_cast<double>(chart.points.size() + 1), value});
  }
  return line_chart(chart);
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(SvgChart, has_a_line_between_each_two_gaps) {
  EXPECT_EQ(count(chart_of({1, 2, 3}), "<polyline"), 1);
  const std::string chart = chart_of({{}, 1, 2, {}, {}, 3, {}});
  EXPECT_EQ(count(chart, "<polyline"), 2);
  EXPECT_EQ(count(chart, "<circle"), 3);
}

TEST(SvgChart, of_many_points_shows_those_between_gaps_as_dots_and_the_others_as_a_line) {
  std::vector<std::optional<double>> values(100, 2.0);
  values[49] = values[51] = std::nullopt;
  const std::string chart = chart_of(values);
  EXPECT_EQ(count(chart, "<circle"), 1);
  EXPECT_THAT(chart, testing::HasSubstr("step 51: 2"));
  values.assign(6000, std::nullopt);  // ten to a point
  values[15] = 1.0;
  values[16] = 3.0;
  EXPECT_THAT(chart_of(values), testing::HasSubstr(": 2</title>"));
}

// Two losses next to each other among the numbers there are: no step between them can be added to either.
TEST(SvgChart, of_values_that_hardly_differ_has_the_axis_of_a_constant) {
  for (const double value : {3.0, -3.0, 1e9, 1e-300}) {
    const std::string chart = chart_of({value, std::nextafter(value, 1e300)});
    EXPECT_LE(count(chart, "class=\"grid\""), 8) << value;
    EXPECT_GE(count(chart, "class=\"grid\""), 1) << value;
  }
  EXPECT_EQ(count(chart_of({3, 3}), "class=\"grid\""), count(chart_of({3, std::nextafter(3, 4)}), "class=\"grid\""));
}

TEST(SvgChart, axis_has_a_line_at_each_round_value) {
  const std::string chart = chart_of({0, 100});
  for (const char* value : {">0<", ">50<", ">100<"}) EXPECT_THAT(chart, testing::HasSubstr(value));
  EXPECT_EQ(count(chart, "class=\"grid\""), 3);
}

TEST(SvgChart, draws_the_first_step_at_the_left_and_the_larger_value_above) {
  EXPECT_THAT(chart_of({0, 1}), testing::ContainsRegex("cx=\"48.0\" cy=\"160.0\"[^/]*<title>step 1: 0</title>.*"
                                                       "cx=\"448.0\" cy=\"20.4\"[^/]*<title>step 2: 1</title>"));
}

TEST(SvgChart, of_what_is_never_negative_begins_at_0) {
  EXPECT_THAT(chart_of({0, 1}), testing::HasSubstr("<line class=\"grid\" x1=\"48.0\" x2=\"448.0\" y1=\"160.0\""));
}

TEST(SvgChart, counts_steps_in_whole_numbers_and_large_values_in_thousands_and_millions) {
  EXPECT_THAT(chart_of({10, 20, 30}), testing::Not(testing::HasSubstr(">1.5<")));
  EXPECT_THAT(chart_of({0, 400'000}), testing::AllOf(testing::HasSubstr(">100k<"), testing::HasSubstr(">400k<")));
  EXPECT_THAT(chart_of({0, 2e6}), testing::AllOf(testing::HasSubstr(">500k<"), testing::HasSubstr(">1.5M<")));
}

TEST(MsWords, have_the_unit_that_people_take) {
  for (const auto& [ms, words] : {std::pair(5.0, "5.00 ms"), std::pair(10.0, "10 ms"), std::pair(999.0, "999 ms"),
                                  std::pair(1500.0, "1.50 s"), std::pair(90e3, "90.00 s"), std::pair(150e3, "2.5 min")})
    EXPECT_EQ(ms_words(ms), words);
}

// 632 pixels for 100 ms, from the 76th on.
TEST(TimelineChart, draws_hops_where_they_began_and_those_that_overlap_side_by_side) {
  using testing::HasSubstr;
  const std::string chart = timeline_chart(
      {{.name = "read",
        .bars = {{60, 100, "state", "third"}, {0, 50, "weights", "first"}, {25, 100, "state", "second"}}}},
      100);
  for (const char* bar :
       {"x=\"76.00\" y=\"6.00\" width=\"316.00\" height=\"16.50\"><title>first: 0.00 to 50.00 ms",
        "x=\"234.00\" y=\"23.00\" width=\"474.00\" height=\"16.50\"><title>second: 25.00 to 100.00 ms",
        "x=\"455.20\" y=\"6.00\" width=\"252.80\" height=\"16.50\"><title>third: 60.00 to 100.00 ms"})
    EXPECT_THAT(chart, HasSubstr(bar));
}

TEST(TimelineChart, draws_hops_of_one_kind_that_cannot_be_told_apart_as_one_and_counts_them) {
  using testing::HasSubstr;
  const std::string chart = timeline_chart({{.name = "read",
                                             .bars = {{10, 10.01, "state", "first"},
                                                      {10.01, 10.03, "state", "second"},
                                                      {10.03, 10.04, "weights", "third"},
                                                      {50, 50.01, "weights", "fourth"}}}},
                                           100);
  for (const char* title : {"<title>first and 1 more: 10.00 to 10.03 ms</title>",
                            "<title>third: 10.03 to 10.04 ms</title>", "<title>fourth: 50.00 to 50.01 ms</title>"})
    EXPECT_THAT(chart, HasSubstr(title));
}

TEST(SvgChart, of_nothing_finite_says_so) {
  EXPECT_THAT(chart_of({}), testing::HasSubstr("Nothing measured yet"));
  EXPECT_THAT(chart_of({{}, {}}), testing::HasSubstr("Nothing that was measured is finite"));
}

}  // namespace
}  // namespace sluice
