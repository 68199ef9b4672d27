// Small charts as SVG text, styled by the page's CSS (classes "axis", "grid", "line0".., "hop <kind>"). Pure functions.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sluice {

std::string html_escaped(const std::string& text);
// "1.23 ms", "123 ms", "1.20 s", "2.2 min".
std::string ms_words(double ms);

struct ChartPoint {
  double x = 0;
  std::optional<double> y;  // finite; nothing: a gap in the line
};
struct LineChart {
  std::string x_name, y_name;
  std::vector<ChartPoint> points;  // by ascending x; many are averaged into as many as can be seen
};
std::string line_chart(const LineChart& chart);

// One hop of a lane.
struct TimelineBar {
  double begin_ms = 0, end_ms = 0;
  std::string kind;  // decides the colour
  std::string words;
};
struct TimelineRow {
  std::string name;
  std::vector<TimelineBar> bars;  // in any order; those that overlap are drawn side by side
};
std::string timeline_chart(const std::vector<TimelineRow>& rows, double total_ms);

}  // namespace sluice
