#include "configs/document.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "core/errors.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

struct Place {
  size_t line = 1, column = 1;
};
Place place_of(const std::string& text, size_t byte) {
  Place place;
  const size_t end = std::min(byte > 0 ? byte - 1 : 0, text.size());
  for (size_t i = 0; i < end; ++i) {
    place.line += text[i] == '\n';
    place.column = text[i] == '\n' ? 1 : place.column + 1;
  }
  return place;
}

// The library's words after its own prefix, and position where it has one: "syntax error while parsing value - ...".
std::string reason_of(const std::string& message) {
  const size_t prefix = message.find("] "), position = message.find(": ");
  if (position != std::string::npos) return message.substr(position + 2);
  return prefix == std::string::npos ? message : message.substr(prefix + 2);
}

constexpr int kDeepest = 32;  // no key lies deeper than a few, and the library writes and compares by recursion

// The library keeps the last of repeated keys in silence.
class RepeatedKeys {
 public:
  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kDeepest) throw ConfigError(fmt::format("values within values, deeper than {}", kDeepest));
    if (event == Json::parse_event_t::object_start) open_.emplace_back();
    if (event == Json::parse_event_t::object_end) open_.pop_back();
    if (event == Json::parse_event_t::key) note(parsed.get<std::string>());
    return true;
  }
  std::string repeated;  // the first, with those that it is below: "optimizer.params.lr"

 private:
  struct Object {
    std::set<std::string> keys;
    std::string last;
  };
  void note(const std::string& key) {
    open_.back().last = key;
    if (open_.back().keys.insert(key).second || !repeated.empty()) return;
    std::vector<std::string> names;
    for (const Object& object : open_) names.push_back(object.last);
    repeated = fmt::format("{}", fmt::join(names, "."));
  }

  std::vector<Object> open_;
};

Json parse_text(const std::string& text, const std::string& name) {
  RepeatedKeys keys;
  Json document;
  try {
    document = Json::parse(text, std::ref(keys));
  } catch (const Json::parse_error& error) {
    const Place place = place_of(text, error.byte);
    throw ConfigError(
        fmt::format("{}: line {}, column {}: not JSON: {}", name, place.line, place.column, reason_of(error.what())));
  } catch (const Json::out_of_range& error) {
    throw ConfigError(fmt::format("{}: a number that no double can hold: {}", name, reason_of(error.what())));
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}", name, error.what()));
  }
  if (!keys.repeated.empty()) throw ConfigError(fmt::format("{}: key \"{}\" is given twice", name, keys.repeated));
  if (!document.is_object()) throw ConfigError(fmt::format("{}: the file must hold one JSON object", name));
  return document;
}

// What is not JSON is a word.
Json value_of(const std::string& text) {
  RepeatedKeys keys;
  Json value = Json::parse(text, std::ref(keys), false);
  if (!keys.repeated.empty()) throw ConfigError(fmt::format("key \"{}\" is given twice", keys.repeated));
  return value.is_discarded() ? Json(text) : value;
}

void apply_override(Json& document, const std::string& override_text) {
  const size_t equals = override_text.find('=');
  const std::string path = override_text.substr(0, equals);
  if (equals == std::string::npos || path.empty() || path.front() == '.' || path.back() == '.') {
    throw ConfigError(fmt::format("--set {}: not path.to.key=value", override_text));
  }
  if (std::ranges::count(path, '.') >= kDeepest)
    throw ConfigError(fmt::format("--set {}...: values within values, deeper than {}", path.substr(0, 64), kDeepest));
  Json* at = &document;
  size_t from = 0;
  for (size_t dot = path.find('.'); dot != std::string::npos; from = dot + 1, dot = path.find('.', from)) {
    at = &(*at)[path.substr(from, dot - from)];
    if (at->is_null()) *at = Json::object();
    if (!at->is_object()) {
      throw ConfigError(fmt::format("--set {}: \"{}\" is not an object", override_text, path.substr(0, dot)));
    }
  }
  try {
    (*at)[path.substr(from)] = value_of(override_text.substr(equals + 1));
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("--set {}: {}", path, error.what()));
  }
}

// The system's calls take a byte 0 for the end of a path.
void refuse_zero_bytes(const Json& document, const std::string& name) {
  const Json flat = document.flatten();
  for (const auto& [pointer, value] : flat.items()) {
    if (!value.is_string() || value.get_ref<const std::string&>().find('\0') == std::string::npos) continue;
    throw ConfigError(
        fmt::format("{}: \"{}\" is {}: a text without a byte 0 is allowed", name, pointer.substr(1), value.dump()));
  }
}

}  // namespace

std::string read_document(const std::string& text, const std::string& name, std::span<const std::string> overrides) {
  Json document = parse_text(text, name);
  for (const std::string& each : overrides) apply_override(document, each);
  refuse_zero_bytes(document, name);
  try {
    return document.dump();
  } catch (const Json::type_error&) {
    throw ConfigError(fmt::format("{}: a value given by --set is not UTF-8 text", name));
  }
}

}  // namespace sluice
