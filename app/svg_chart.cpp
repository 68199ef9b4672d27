#include "app/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace sluice {
namespace {

constexpr double kWidth = 720, kChartWidth = 460, kLeft = 48, kRight = 12;

// A round step that cuts `range` into at most `most` parts.
double round_step(double range, int most) {
  const double rough = range / most;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

std::string tick_text(double value, double step) {
  const double size = std::abs(value);
  if (size >= 1e9) return fmt::format("{:g}G", value / 1e9);
  if (size >= 1e6) return fmt::format("{:g}M", value / 1e6);
  if (size >= 1e4) return fmt::format("{:g}k", value / 1e3);
  const int digits = std::clamp(static_cast<int>(std::ceil(-std::log10(step))), 0, 6);
  return fmt::format("{:.{}f}", value, digits);
}

// Averages of equal stretches, so that a line has no more corners than can be seen.
std::vector<ChartPoint> thinned(const std::vector<ChartPoint>& points) {
  constexpr size_t kMost = 600;
  if (points.size() <= kMost) return points;
  std::vector<ChartPoint> few;
  for (size_t i = 0; i < kMost; ++i) {
    const size_t first = i * points.size() / kMost, end = (i + 1) * points.size() / kMost;
    double x = 0, y = 0;
    size_t there = 0;
    for (size_t j = first; j < end; ++j) {
      x += points[j].x;
      y += points[j].y.value_or(0);
      there += points[j].y ? 1 : 0;
    }
    few.push_back({x / static_cast<double>(end - first), {}});
    if (there > 0) few.back().y = y / static_cast<double>(there);
  }
  return few;
}

struct Scale {
  double low = 0, high = 1, from = 0, to = 1;
  double operator()(double value) const { return from + (value - low) / (high - low) * (to - from); }
};

// Multiples of `step`, counted: to add a step to a value far larger than it may change nothing.
std::vector<double> ticks(double low, double high, double step) {
  constexpr double kMost = 100;
  const double first = std::ceil(low / step), count = std::floor(high / step + 1e-6) - first + 1;
  std::vector<double> values;
  for (int i = 0; i < std::min(count, kMost); ++i) values.push_back((first + i) * step);
  return values;
}

std::string axis_y(const Scale& scale, double step) {
  std::string svg;
  for (const double value : ticks(scale.low, scale.high, step)) {
    const double y = scale(value);
    fmt::format_to(std::back_inserter(svg),
                   "<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
                   "<text class=\"axis\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>",
                   kLeft, kChartWidth - kRight, y, y, kLeft - 6, y + 4, tick_text(value, step));
  }
  return svg;
}

std::string axis_x(const Scale& scale, double step, double y) {
  std::string svg;
  for (const double value : ticks(scale.low, scale.high, step)) {
    fmt::format_to(std::back_inserter(svg),
                   "<text class=\"axis\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>", scale(value),
                   y + 16, tick_text(value, step));
  }
  return svg;
}

struct AxisRange {
  double low = 0, high = 1;
};
// Of the axis: a little more than that of the values; nothing where there are none.
std::optional<AxisRange> range_of(const std::vector<ChartPoint>& points) {
  std::optional<AxisRange> range;
  for (const ChartPoint& point : points) {
    if (!point.y) continue;
    range = {std::min(*point.y, range ? range->low : *point.y), std::max(*point.y, range ? range->high : *point.y)};
  }
  if (!range) return std::nullopt;
  const auto [low, high] = *range;
  const bool constant = high - low <= 1e-12 * std::abs(high);  // an axis cannot tell such values apart
  const double margin = constant ? std::max(1e-9, std::abs(high) * 0.1) : (high - low) * 0.06;
  return AxisRange{low >= 0 ? std::max(0.0, low - margin) : low - margin, high + margin};
}

bool stands_alone(const std::vector<ChartPoint>& points, size_t i) {
  return (i == 0 || !points[i - 1].y) && (i + 1 == points.size() || !points[i + 1].y);
}

// One between each two gaps.
std::string lines(const std::vector<ChartPoint>& points, const Scale& x, const Scale& y) {
  std::string svg, line;
  const auto end_line = [&] {
    if (!line.empty()) fmt::format_to(std::back_inserter(svg), "<polyline class=\"line\" points=\"{}\"/>", line);
    line.clear();
  };
  for (const ChartPoint& point : points) {
    if (point.y) fmt::format_to(std::back_inserter(line), "{:.1f},{:.1f} ", x(point.x), y(*point.y));
    if (!point.y) end_line();
  }
  end_line();
  return svg;
}

// Bars that are less than a third of a pixel apart, and of one kind, are one.
std::vector<TimelineBar> merged(std::vector<TimelineBar> bars, double gap_ms) {
  std::sort(bars.begin(), bars.end(), [](const auto& a, const auto& b) { return a.begin_ms < b.begin_ms; });
  std::vector<TimelineBar> few;
  std::vector<int> more;  // in each of them, beside the first
  for (TimelineBar& bar : bars) {
    const bool small = bar.end_ms - bar.begin_ms < gap_ms;
    if (small && !few.empty() && few.back().kind == bar.kind && bar.begin_ms - few.back().end_ms < gap_ms &&
        few.back().end_ms - few.back().begin_ms < gap_ms) {
      few.back().end_ms = std::max(few.back().end_ms, bar.end_ms);
      ++more.back();
    } else {
      few.push_back(std::move(bar));
      more.push_back(0);
    }
  }
  for (size_t i = 0; i < few.size(); ++i) {
    if (more[i] > 0) few[i].words += fmt::format(" and {} more", more[i]);
  }
  return few;
}

// Which of the row's lines each bar is drawn in: the first that is free.
std::vector<int> lines_of(const std::vector<TimelineBar>& bars, int& count) {
  std::vector<double> free_at;
  std::vector<int> lines;
  for (const TimelineBar& bar : bars) {
    size_t line = 0;
    while (line < free_at.size() && free_at[line] > bar.begin_ms) ++line;
    if (line == free_at.size()) free_at.push_back(0);
    free_at[line] = bar.end_ms;
    lines.push_back(static_cast<int>(line));
  }
  count = std::max<int>(1, static_cast<int>(free_at.size()));
  return lines;
}

}  // namespace

std::string html_escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string ms_words(double ms) {
  if (ms < 10) return fmt::format("{:.2f} ms", ms);
  if (ms < 1000) return fmt::format("{:.0f} ms", ms);
  if (ms < 120e3) return fmt::format("{:.2f} s", ms / 1e3);
  return fmt::format("{:.1f} min", ms / 60e3);
}

std::string line_chart(const LineChart& chart) {
  constexpr double kHeight = 200, kTop = 12, kBottom = 40;
  const std::vector<ChartPoint> points = thinned(chart.points);
  if (points.empty()) return "<p class=\"quiet\">Nothing measured yet.</p>";
  const std::optional<AxisRange> range = range_of(points);
  if (!range) return "<p class=\"quiet\">Nothing that was measured is finite.</p>";
  const auto [low, high] = *range;
  const double first = points.front().x, last = std::max(points.back().x, first + 1e-9);
  const Scale x{first, last, kLeft, kChartWidth - kRight}, y{low, high, kHeight - kBottom, kTop};
  std::string svg = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{} by {}\">", kChartWidth,
                                kHeight, html_escaped(chart.y_name), html_escaped(chart.x_name));
  svg += axis_y(y, round_step(high - low, 5));
  svg += axis_x(x, std::max(1.0, round_step(last - first, 8)), kHeight - kBottom);
  fmt::format_to(std::back_inserter(svg), "<text class=\"axis\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
                 kChartWidth - kRight, kHeight - 4, html_escaped(chart.x_name));
  svg += lines(points, x, y);
  constexpr size_t kDotsAtMost = 60;
  for (size_t i = 0; i < points.size(); ++i) {
    if (!points[i].y || (points.size() > kDotsAtMost && !stands_alone(points, i))) continue;
    fmt::format_to(
        std::back_inserter(svg),
        "<circle class=\"dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\"><title>{} {:g}: {:.6g}</title></circle>",
        x(points[i].x), y(*points[i].y), html_escaped(chart.x_name), points[i].x, *points[i].y);
  }
  return svg + "</svg>";
}

std::string timeline_chart(const std::vector<TimelineRow>& rows, double total_ms) {
  constexpr double kRowHeight = 34, kRowGap = 10, kTop = 6, kAxis = 26, kNames = 76;
  const double height = kTop + static_cast<double>(rows.size()) * (kRowHeight + kRowGap) + kAxis;
  const Scale x{0, std::max(total_ms, 1e-6), kNames, kWidth - kRight};
  std::string svg =
      fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"One step, lane by lane\">", kWidth, height);
  auto out = std::back_inserter(svg);
  const double step = round_step(x.high, 8);
  for (const double at : ticks(x.low, x.high, step)) {
    fmt::format_to(out,
                   "<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{}\" y2=\"{:.1f}\"/>"
                   "<text class=\"axis\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>",
                   x(at), x(at), kTop, height - kAxis + 4, x(at), height - 8, tick_text(at, step));
  }
  fmt::format_to(out, "<text class=\"axis\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">ms</text>", kNames - 8,
                 height - 8);
  for (size_t row = 0; row < rows.size(); ++row) {
    const double top = kTop + static_cast<double>(row) * (kRowHeight + kRowGap);
    fmt::format_to(out,
                   "<text class=\"lane\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>"
                   "<rect class=\"track\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\"/>",
                   kNames - 8, top + kRowHeight / 2 + 4, html_escaped(rows[row].name), kNames, top,
                   kWidth - kRight - kNames, kRowHeight);
    const std::vector<TimelineBar> bars = merged(rows[row].bars, x.high / (kWidth - kNames) / 3);
    int lines = 1;
    const std::vector<int> line = lines_of(bars, lines);
    const double each = kRowHeight / lines;
    for (size_t i = 0; i < bars.size(); ++i) {
      const double left = x(bars[i].begin_ms), width = std::max(0.4, x(bars[i].end_ms) - left);
      fmt::format_to(out,
                     "<rect class=\"hop {}\" x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\">"
                     "<title>{}: {:.2f} to {:.2f} ms</title></rect>",
                     html_escaped(bars[i].kind), left, top + each * line[i], width, std::max(0.5, each - 0.5),
                     html_escaped(bars[i].words), bars[i].begin_ms, bars[i].end_ms);
    }
  }
  return svg + "</svg>";
}

}  // namespace sluice
