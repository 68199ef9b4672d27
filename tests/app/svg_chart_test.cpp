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

TEST(SvgChart, of_nothing_finite_says_so) {
  EXPECT_THAT(chart_of({}), testing::HasSubstr("Nothing measured yet"));
  EXPECT_THAT(chart_of({{}, {}}), testing::HasSubstr("Nothing that was measured is finite"));
}

}  // namespace
}  // namespace sluice
