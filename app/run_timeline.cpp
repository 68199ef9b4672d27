#include "app/run_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "app/run_data.h"
#include "core/errors.h"
#include "core/read_file.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

// A lane has as many threads as it had hops at once, named "read", "read 2", ...
std::map<int, size_t> lanes_of_threads(const Json& trace) {
  std::map<int, size_t> lanes;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.value("name", "") != "thread_name") continue;
    const std::string name = event.value(Json::json_pointer("/args/name"), "");
    const std::string row = name.substr(0, name.find(' '));
    for (size_t lane = 0; lane < kLaneCount; ++lane) {
      if (row == name_of(static_cast<Lane>(lane))) lanes[event.at("tid").get<int>()] = lane;
    }
  }
  return lanes;
}

Timeline timeline_of(const Json& trace) {
  const std::map<int, size_t> lanes = lanes_of_threads(trace);
  std::vector<const Json*> hops;
  double begin_us = std::numeric_limits<double>::infinity();
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X" || !lanes.contains(event.at("tid").get<int>())) continue;
    hops.push_back(&event);
    begin_us = std::min(begin_us, event.at("ts").get<double>());
  }
  if (hops.empty()) return {};
  Timeline timeline;
  for (int lane = 0; lane < kLaneCount; ++lane) {
    timeline.rows.push_back({.name = std::string(name_of(static_cast<Lane>(lane))), .bars = {}});
  }
  for (const Json* hop : hops) {
    const std::string name = hop->at("name").get<std::string>();
    const double begin_ms = (hop->at("ts").get<double>() - begin_us) / 1e3;
    const double end_ms = begin_ms + hop->at("dur").get<double>() / 1e3;
    timeline.rows[lanes.at(hop->at("tid").get<int>())].bars.push_back(
        {.begin_ms = begin_ms, .end_ms = end_ms, .kind = hop->value("cat", "control"), .words = name});
    timeline.ms = std::max(timeline.ms, end_ms);
  }
  return timeline;
}

}  // namespace

Timeline read_timeline(const std::filesystem::path& path) {
  const std::optional<std::string> text = read_text(path);
  if (!text) return {};
  try {
    return timeline_of(Json::parse(*text));
  } catch (const Json::exception&) {
    throw ConfigError(
        fmt::format("{}: this is not the trace of a step that a run writes there: remove it, or go on with the run, "
                    "which writes it anew",
                    path.string()));
  }
}

}  // namespace sluice
