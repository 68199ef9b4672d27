#include "app/report_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "app/report.h"
#include "app/report_style.h"
#include "core/bytes.h"

namespace sluice {
namespace {

// What may help against what binds: what the planner is asked about, and what it is not.
struct Advice {
  const char* bound;
  const char* offered;
  const char* others;
};
Advice advice_for(LaneGroup group) {
  static constexpr Advice kByGroup[kLaneGroupCount] = {
      {"the NVMe drives, which reads and writes share",
       "More host memory keeps part of what they carry at home there; one more drive takes a share of both; more "
       "tokens per step (gradient_accumulation_steps) give every byte more compute to hide behind.",
       ""},
      {"the update threads",
       "More tokens per step (gradient_accumulation_steps) give the update more compute to hide behind.",
       "More cores (sluice.update_threads) or faster host memory shorten it."},
      {"copying between host and device",
       "More device memory keeps weights, gradients and activations there; more tokens per step for the same weights.",
       "A faster link carries more."},
      {"compute", "", "A faster device shortens it, or more compute threads where host memory plays the device."}};
  return kByGroup[static_cast<size_t>(group)];
}

bool is_help(const Help& offer, const WouldHelp& help) {
  return offer.step_ms && offer.tokens_per_s >= help.tokens_per_s * kWorthOffering;
}

double more_percent(const Help& offer, const WouldHelp& help) {
  return help.tokens_per_s > 0 ? 100 * (offer.tokens_per_s / help.tokens_per_s - 1) : 0;
}

// Of offers that were predicted the best, whatever binds.
std::string predicted_help(const WouldHelp& help) {
  std::vector<std::string> predicted;
  for (const Help& each : help.offers) {  // the best first
    if (is_help(each, help)) {
      return fmt::format("Most would help, by the planner's prediction: {} ({:+.0f} % tokens/s).", each.with,
                         more_percent(each, help));
    }
    if (each.step_ms) predicted.push_back(each.with);
  }
  return fmt::format("By the planner's prediction none of these would help: {}.", fmt::join(predicted, ", "));
}

bool is_predicted(const std::optional<WouldHelp>& help) {
  return help && std::ranges::any_of(help->offers, [](const Help& each) { return each.step_ms.has_value(); });
}

std::string help_words(LaneGroup group, const Steady& steady, const std::optional<WouldHelp>& help) {
  const Advice advice = advice_for(group);
  std::string words = is_predicted(help) ? predicted_help(*help) : advice.offered;
  if (!words.empty() && *advice.others != '\0') words += " ";
  words += advice.others;
  if (group == LaneGroup::kNvme && steady.rarer_commits == Steady::RarerCommits::kHelp)
    words += " A longer sluice.commit_interval writes what is at home in host memory less often.";
  return words;
}

// The busiest resource of the steps, and the next.
struct Bound {
  Busiest first;
  LaneGroup second = LaneGroup::kCompute;
  double second_ms = 0;
  double share() const { return first.step_ms > 0 ? first.ms / first.step_ms : 0; }
};
Bound bound_of(const Steady& steady) {
  BusyTimes busy{.drive_ms = steady.drive_ms};
  for (size_t i = 0; i < busy.lanes_ms.size(); ++i) busy.lanes_ms[i] = steady.lanes[i].ms;
  GroupTimes groups = busy_of_groups(busy, steady.step_ms);
  Bound bound;
  bound.first = {.group = longest(groups), .step_ms = steady.step_ms};
  bound.first.ms = std::exchange(groups[static_cast<size_t>(bound.first.group)], -1);
  bound.second = longest(groups);
  bound.second_ms = groups[static_cast<size_t>(bound.second)];
  return bound;
}

// "busy 60 % of the step"; of the drives, where only reads' and writes' times are known, the most it can be.
std::string busy_words(const Bound& bound, const Steady& steady) {
  const double read_ms = steady.lanes[static_cast<size_t>(Lane::kRead)].ms;
  const double write_ms = steady.lanes[static_cast<size_t>(Lane::kWrite)].ms;
  if (bound.first.group != LaneGroup::kNvme || read_ms <= 0 || write_ms <= 0)
    return fmt::format("busy {:.0f} % of the step", 100 * bound.share());
  return fmt::format("busy {}{:.0f} % of the step (reads {}, writes {})", steady.drive_ms ? "" : "up to ",
                     100 * bound.share(), ms_words(read_ms), ms_words(write_ms));
}

std::string tile(const std::string& name, const std::string& value, const std::string& more) {
  return fmt::format("<div class=\"tile\"><span>{}</span><b>{}</b><small>{}</small></div>", html_escaped(name),
                     html_escaped(value), html_escaped(more));
}

std::string loss_words(const StepFiguresOfRun& step) {
  return step.loss ? fmt::format("{:.4f}", *step.loss) : "not finite";
}

// Beside the least loss of a model that knows how often tokens come, and nothing else.
std::string validation_tile(const std::optional<ValidationOfRun>& validation) {
  if (!validation) return "";
  return tile("validation loss", validation->loss ? fmt::format("{:.4f} nats", *validation->loss) : "not finite",
              fmt::format("unigram cross-entropy of the same {} tokens {:.4f} nats", validation->tokens,
                          validation->unigram_nats));
}

constexpr const char* kMedian = "median of the last start";

std::string tiles(const RunData& run, const Steady& steady) {
  if (run.steps.empty()) return "";
  const StepFiguresOfRun& first = run.steps.front();
  const StepFiguresOfRun& last = run.steps.back();
  const Bound bound = bound_of(steady);
  const auto skipped = std::count_if(run.steps.begin(), run.steps.end(), [](const auto& step) { return step.skipped; });
  const std::string predicted = steady.predicted_step_ms ? fmt::format("; predicted for steps as they ran: {}",
                                                                       ms_words(*steady.predicted_step_ms))
                                                         : "";
  return "<div class=\"tiles\">" +
         tile("steps", std::to_string(last.step), skipped > 0 ? fmt::format("{} skipped", skipped) : "none skipped") +
         tile("loss", loss_words(last), "first " + loss_words(first)) + validation_tile(run.validation) +
         tile("a step, measured", ms_words(steady.step_ms), kMedian + predicted) +
         tile("throughput", fmt::format("{:.0f} tokens/s", steady.tokens_per_s), kMedian) +
         tile(bound.first.binds() ? "bound by" : "busiest", std::string(name_of(bound.first.group)),
              busy_words(bound, steady)) +
         "</div>";
}

std::string bar(double share, const std::string& css, double mark_share = -1) {
  const auto percent = [](double value) { return std::clamp(100 * value, 0.0, 100.0); };
  const std::string mark =
      mark_share < 0 ? "" : fmt::format("<s style=\"left:{:.1f}%\" title=\"predicted\"></s>", percent(mark_share));
  return fmt::format("<div class=\"bar\"><i class=\"{}\" style=\"width:{:.1f}%\"></i>{}</div>", css, percent(share),
                     mark);
}

std::string lanes_table(const Steady& steady) {
  const bool planned = std::any_of(steady.lanes.begin(), steady.lanes.end(),
                                   [](const LaneFigures& lane) { return lane.predicted_ms.has_value(); });
  double longest_ms = steady.step_ms;
  for (const LaneFigures& lane : steady.lanes)
    longest_ms = std::max({longest_ms, lane.ms, lane.predicted_ms.value_or(0)});
  const auto share_of = [longest_ms](double ms) { return longest_ms > 0 ? ms / longest_ms : 0; };  // before a step: 0
  const std::span<const Lane> bound = lanes_of(bound_of(steady).first.group);
  std::string html = fmt::format(
      "<table><tr><th>lane</th><th class=\"wide\">busy in a step</th><th>time</th>{}<th>of the step</th>"
      "<th>moved</th><th>GB/s</th></tr>",
      planned ? "<th>predicted</th>" : "");
  for (size_t i = 0; i < steady.lanes.size(); ++i) {
    const LaneFigures& lane = steady.lanes[i];
    const std::string plan_cell =
        !planned ? "" : fmt::format("<td>{}</td>", lane.predicted_ms ? ms_words(*lane.predicted_ms) : "-");
    const double mark = lane.predicted_ms ? share_of(*lane.predicted_ms) : -1;
    const bool binds = std::count(bound.begin(), bound.end(), static_cast<Lane>(i)) > 0;
    const bool moves = lane.bytes > 0 && lane.ms > 0;
    fmt::format_to(std::back_inserter(html),
                   "<tr><th>{}</th><td class=\"wide\">{}</td><td>{}</td>{}<td>{:.0f} %</td><td>{}</td><td>{}</td></tr>",
                   name_of(static_cast<Lane>(i)), bar(share_of(lane.ms), binds ? "bound" : "free", mark),
                   ms_words(lane.ms), plan_cell, steady.step_ms > 0 ? 100 * lane.ms / steady.step_ms : 0,
                   moves ? format_bytes(lane.bytes) : "-",
                   moves ? fmt::format("{:.2f}", static_cast<double>(lane.bytes) / lane.ms / 1e6) : "-");
  }
  return html + "</table>";
}

// By how much steps took longer than the plan predicted, as a share of that.
std::optional<double> off_prediction(const Steady& steady) {
  if (!steady.predicted_step_ms || !steady.measured_as_predicted_ms) return std::nullopt;
  return *steady.measured_as_predicted_ms / *steady.predicted_step_ms - 1;
}

// Of a run whose machine's speeds were known, and of steps none of which had the work that was predicted.
std::string unplanned_words(const Steady& steady, const WouldHelp& help) {
  std::vector<std::string> why;
  const auto add = [&](int64_t count, const char* what) {
    if (count > 0) why.push_back(fmt::format("{} of {} {}", count, steady.steps, what));
  };
  add(steady.undone, "ran updates in the backward that were undone");
  add(steady.skipped, "updated nothing (skipped)");
  return fmt::format(
      "<p>The plan predicted {} for a step in the middle of a run; measured were {}, of steps that are not like "
      "it{}{}.</p>",
      ms_words(help.step_ms), ms_words(steady.step_ms), why.empty() ? "" : ": ", fmt::join(why, ", "));
}

std::string planned_words(const Steady& steady, const std::optional<WouldHelp>& help) {
  const std::optional<double> off = off_prediction(steady);
  if (!off) return help && steady.steps > 0 ? unplanned_words(steady, *help) : "";
  return fmt::format("<p>The plan predicted {} a step, for steps as they ran; measured were {} ({:+.0f} %).</p>",
                     ms_words(*steady.predicted_step_ms), ms_words(*steady.measured_as_predicted_ms), 100 * *off);
}

// Two predictions of one plan stand on the page: they differ where steps ran another way than the usual one.
std::string other_way_words(const WouldHelp& help, const Steady& steady) {
  constexpr double kSame = 0.01;
  if (!steady.predicted_step_ms || std::abs(*steady.predicted_step_ms / help.step_ms - 1) <= kSame) return "";
  return fmt::format(
      " {} is predicted for steps as this plan usually runs them, {} as they ran: their updates waited for the "
      "clip, or they ran twice.",
      ms_words(help.step_ms), ms_words(*steady.predicted_step_ms));
}

// A run's prediction, and what each offer makes of it.
std::string help_table(const WouldHelp& help, const Steady& steady) {
  double most = help.tokens_per_s;
  for (const Help& each : help.offers) most = std::max(most, each.tokens_per_s);
  const auto row = [&](const std::string& with, double step_ms, double tokens_per_s, const std::string& change) {
    return fmt::format("<tr><th>{}</th><td class=\"wide\">{}</td><td>{}</td><td>{:.0f}</td><td>{}</td></tr>",
                       html_escaped(with), bar(most > 0 ? tokens_per_s / most : 0, "free"), ms_words(step_ms),
                       tokens_per_s, change);
  };
  std::string html =
      "<table><tr><th>with</th><th class=\"wide\">throughput</th><th>a step, predicted</th>"
      "<th>tokens/s, predicted</th><th></th></tr>" +
      row("what there is, predicted", help.step_ms, help.tokens_per_s, "");
  std::vector<std::string> no_help;
  for (const Help& each : help.offers) {
    if (each.step_ms && !is_help(each, help)) {
      no_help.push_back(html_escaped(each.with));
      continue;
    }
    html += each.step_ms
                ? row(each.with, *each.step_ms, each.tokens_per_s, fmt::format("{:+.1f} %", more_percent(each, help)))
                : fmt::format(
                      "<tr><th>{}</th><td class=\"wide\">does not fit the budgets</td><td>-</td>"
                      "<td>-</td><td></td></tr>",
                      html_escaped(each.with));
  }
  html += "</table>";
  if (!no_help.empty()) html += fmt::format("<p>No help: {}.</p>", fmt::join(no_help, ", "));
  constexpr double kFarOff = 0.3;
  if (std::abs(off_prediction(steady).value_or(0)) > kFarOff) {
    html += fmt::format(
        "<p>Steps took {} where {} were predicted: the machine was busy when its speeds were measured, or "
        "is now, or its speeds are another one's (--machine); these offers are as wrong as that.</p>",
        ms_words(*steady.measured_as_predicted_ms), ms_words(*steady.predicted_step_ms));
  }
  return html +
         "<p class=\"quiet\">Predicted when training last began, for a step in the middle of a run, each alone and all "
         "else as it was; more drives are taken to be like those there. <code>sluice plan --what-if</code> predicts "
         "others." +
         other_way_words(help, steady) + "</p>";
}

std::string memory_table(const RunData& run) {
  int64_t most = 1;
  for (const TierMemory& tier : run.memory) most = std::max({most, tier.peak_bytes, tier.budget_bytes.value_or(0)});
  std::string html =
      "<table><tr><th>tier</th><th class=\"wide\">peak against budget</th><th>peak</th><th>budget</th></tr>";
  for (const TierMemory& tier : run.memory) {
    const int64_t whole = tier.budget_bytes.value_or(tier.peak_bytes);
    const double share = whole > 0 ? static_cast<double>(tier.peak_bytes) / static_cast<double>(whole) : 0;
    fmt::format_to(std::back_inserter(html), "<tr><th>{}</th><td class=\"wide\">{}</td><td>{}</td><td>{}</td></tr>",
                   tier.name, bar(share, "free"), format_bytes(tier.peak_bytes),
                   tier.budget_bytes ? format_bytes(*tier.budget_bytes) : "none: the store's file");
  }
  html += "</table>";
  if (run.resident_bytes > 0) {
    html += fmt::format(
        "<p class=\"quiet\">The process held {} at its last step: the budgets of device and host (where "
        "host memory plays the device), and the runtime's own code and buffers.</p>",
        format_bytes(run.resident_bytes));
  }
  return html;
}

std::string one_step(const std::optional<Timeline>& timeline) {
  if (!timeline) return "<p class=\"quiet\">timeline.json of the run's folder cannot be read.</p>";
  if (timeline->rows.empty()) return "<p class=\"quiet\">No step has been sampled yet.</p>";
  std::string html = "<div class=\"legend\">";
  for (const auto& [kind, words] :
       {std::pair("forward", "forward"), std::pair("backward", "backward"), std::pair("state", "optimizer state"),
        std::pair("weights", "weights"), std::pair("gradient", "gradient"), std::pair("activations", "activations"),
        std::pair("update", "update"), std::pair("checksum", "checksums"), std::pair("control", "clip, commit")}) {
    html += fmt::format(
        "<span><svg viewBox=\"0 0 12 12\"><rect class=\"hop {}\" width=\"12\" height=\"12\"/></svg>{}</span>", kind,
        words);
  }
  return html + "</div>" + timeline_chart(timeline->rows, timeline->ms) +
         "<p class=\"quiet\">Point at a hop for its name and times. The same step opens in Perfetto or "
         "chrome://tracing as "
         "timeline.json of the run's folder.</p>";
}

std::string facts(const RunData& run) {
  std::string html = "<dl>";
  for (const auto& [name, value] : run.facts) {
    html += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", html_escaped(name), html_escaped(value));
  }
  return html + "</dl>";
}

// Where next to nothing is left something else binds long before: latencies, the lanes' waits.
std::string times_words(double times) {
  constexpr double kMost = 10;
  return times > kMost ? fmt::format("more than {:.0f} times", kMost) : fmt::format("{:.1f} times", times);
}

std::string section(const std::string& title, const std::string& body) {
  return fmt::format("<section><h2>{}</h2>{}</section>\n", title, body);
}

}  // namespace

std::string what_bound(const Steady& steady, const std::optional<WouldHelp>& help) {
  const Bound bound = bound_of(steady);
  if (steady.step_ms <= 0 || bound.first.ms <= 0) return "Nothing has been measured yet.";
  const char* const resource = advice_for(bound.first.group).bound;
  const std::string helps = help_words(bound.first.group, steady, help);
  if (!bound.first.binds()) {
    return fmt::format(
        "Nothing was busy throughout. Most was asked of {}: {}; the rest of the time lanes waited for each other. "
        "{}{}",
        resource, busy_words(bound, steady),
        help ? "" : "Whether more memory would let them wait less, sluice plan says (what would help). ", helps);
  }
  std::string text = fmt::format("The step was bound by {}: {}. {}", resource, busy_words(bound, steady), helps);
  if (bound.first.group == LaneGroup::kCompute && !is_predicted(help)) {
    text += fmt::format(
        " Another drive, or memory for more of the state, would save {} of a step at best: their work hides behind the "
        "compute already. Memory that keeps a block's graph saves compute itself.",
        ms_words(std::max(0.0, steady.step_ms - bound.first.ms)));
  }
  if (bound.second_ms > 0) {
    text += fmt::format(" The next, {}, needs {}: with the bound gone altogether a step could be {} as fast.",
                        advice_for(bound.second).bound, ms_words(bound.second_ms),
                        times_words(steady.step_ms / bound.second_ms));
  }
  return text;
}

std::string report_page(const RunData& run, const std::optional<Timeline>& timeline,
                        const std::optional<WouldHelp>& help) {
  const Steady steady = steady_figures(run);
  LineChart loss{.x_name = "step", .y_name = "loss", .points = {}};
  LineChart speed{.x_name = "step", .y_name = "tokens/s", .points = {}};
  for (const StepFiguresOfRun& step : run.steps) {
    const auto x = static_cast<double>(step.step);
    loss.points.push_back({x, step.loss});
    speed.points.push_back({x, step.tokens_per_s});
  }
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\"><title>{} - sluice</title><style>{}</style></head><body><main>\n"
      "<h1>{}</h1><p class=\"quiet\">{}</p>\n",
      html_escaped(run.name), kReportStyle, html_escaped(run.name), html_escaped(run.folder));
  html += tiles(run, steady);
  html += section("What bound it", fmt::format("<p class=\"verdict\">{}</p>{}", html_escaped(what_bound(steady, help)),
                                               planned_words(steady, help)));
  if (help) html += section("What would help, by the planner's prediction", help_table(*help, steady));
  html += "<div class=\"pair\">" + section("Loss", line_chart(loss)) +
          section("Throughput, tokens/s", line_chart(speed)) + "</div>";
  html += section(steady.steps_of_mean > 1 ? "Lanes, a step with its share of a commit" : "Lanes, median of the steps",
                  lanes_table(steady));
  html += section("One step, lane by lane", one_step(timeline));
  html += section("Memory", memory_table(run));
  html += section("Configuration", facts(run));
  return html + "</main></body></html>\n";
}

}  // namespace sluice
