#include "configs/check_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "configs/deepspeed_keys.h"
#include "configs/keys.h"
#include "configs/read_optimizer.h"
#include "configs/schedule.h"
#include "core/errors.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

// A value, or a key in quotes, for an error's one line.
std::string shown(const Json& value) {
  constexpr size_t kLongest = 60;
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() <= kLongest ? text : text.substr(0, kLongest) + "...";
}

// Of the sections that know whether they are enabled, which by default they are not.
bool asks_nothing(const Json& value) {
  if (!value.is_object()) return value.is_null();
  if (value.empty()) return true;
  const auto enabled = value.find("enabled");
  return enabled != value.end() && (*enabled == false || enabled->is_null());
}

class KeyCheck {
 public:
  explicit KeyCheck(const std::string& name) : name_(name) {}

  void look_at(const Json& section, const std::string& prefix) {
    for (const auto& [key, value] : section.items()) {
      if (key.find('.') != std::string::npos) refuse_dots(prefix, key);
      const std::string path = prefix.empty() ? key : prefix + "." + key;
      if (is_of_unknown_type(path, value)) continue;
      const KeyInfo* known = find_key(path);
      const DeepSpeedKey* deepspeed = find_deepspeed_key(path);
      if (known != nullptr) look_at_known(*known, path, value);
      if (deepspeed != nullptr) look_at_deepspeed(*deepspeed, value);
      if (known != nullptr || deepspeed != nullptr) continue;
      if (!is_deepspeed_section(path)) refuse_unknown(path, value);
      if (value.is_null()) continue;
      if (!value.is_object()) refuse_value(path, value, "an object");
      look_at(value, path);
    }
  }

  std::vector<std::string> notes() const {
    std::vector<std::string> refusals = refusals_;
    if (!not_there_.empty()) {
      refusals.push_back(fmt::format("not supported yet: {}; leave {} out", fmt::join(not_there_, ", "),
                                     not_there_.size() == 1 ? "it" : "them"));
    }
    if (!refusals.empty()) throw ConfigError(fmt::format("{}: {}", name_, fmt::join(refusals, "; ")));
    std::vector<std::string> lines;
    for (const auto& [reason, paths] : not_needed_)
      lines.push_back(fmt::format("not needed: \"{}\": {}", fmt::join(paths, "\", \""), reason));
    return lines;
  }

 private:
  // Its other keys are those of that type, and say nothing more.
  bool is_of_unknown_type(const std::string& path, const Json& section) {
    const bool optimizer = path == "optimizer";
    if ((!optimizer && path != "scheduler") || !section.is_object()) return false;
    const auto type = section.find("type");
    if (type == section.end() || !type->is_string()) return false;
    const std::string named = type->get<std::string>();
    if (optimizer ? is_optimizer_type(named) : schedule_named(named).has_value()) return false;
    const std::string key = path + ".type";
    refusals_.push_back(fmt::format("\"{}\" is {}; allowed: {}", key, shown(*type), find_key(key)->allowed));
    return true;
  }

  void look_at_known(const KeyInfo& known, const std::string& path, const Json& value) {
    if (known.kind == KeyKind::kValue || value.is_null()) return;
    const bool list = known.kind == KeyKind::kList;
    const bool objects = std::ranges::all_of(value, [](const Json& each) { return each.is_object(); });
    if (list ? !value.is_array() || !objects : !value.is_object()) refuse_value(path, value, known.allowed);
    if (list) {
      for (const Json& each : value) look_at(each, path);
    }
    if (known.kind == KeyKind::kSection) look_at(value, path);
  }

  void look_at_deepspeed(const DeepSpeedKey& key, const Json& value) {
    if (asks_nothing(value)) return;
    if (key.fate == DeepSpeedKey::Fate::kRenamed) {
      refusals_.push_back(fmt::format("\"{}\" is an old name: write \"{}\"", key.path, key.reason));
      return;
    }
    if (key.fate == DeepSpeedKey::Fate::kNotThere) {
      const Json nothing = Json::parse(key.asks_nothing);
      if (nothing.is_array() ? std::ranges::find(nothing, value) != nothing.end() : value == nothing) return;
      not_there_.push_back(fmt::format("\"{}\" ({})", key.path, key.reason));
      return;
    }
    const auto same = std::ranges::find(not_needed_, key.reason, &NotNeeded::reason);
    NotNeeded& reason = same == not_needed_.end() ? not_needed_.emplace_back(NotNeeded{key.reason, {}}) : *same;
    reason.paths.push_back(key.path);
  }

  [[noreturn]] void refuse_value(const std::string& path, const Json& value, std::string_view allowed) const {
    throw ConfigError(fmt::format("{}: {} is {}; allowed: {}", name_, shown(path), shown(value), allowed));
  }

  // As --set and the README write keys: what reads a path would pass it over.
  [[noreturn]] void refuse_dots(const std::string& section, const std::string& key) const {
    const size_t dot = key.find('.');
    throw ConfigError(fmt::format("{}: key {} {} has a dot: in a file, sections are objects: {}: {{{}: ...}}", name_,
                                  shown(key), section.empty() ? "at the top" : fmt::format("in \"{}\"", section),
                                  shown(key.substr(0, dot)), shown(key.substr(dot + 1))));
  }

  [[noreturn]] void refuse_unknown(const std::string& path, const Json& value) const {
    const size_t dot = path.rfind('.');
    const std::string section = dot == std::string::npos ? "" : path.substr(0, dot);
    const std::string where = section.empty() ? "at the top" : "in \"" + section + "\"";
    const std::string nearest = nearest_key(path);
    const std::string meant = nearest.empty() ? "." : fmt::format("; did you mean \"{}\"?", nearest);
    throw ConfigError(fmt::format("{}: unknown key {} (value {}){} Allowed {}: {}", name_, shown(path), shown(value),
                                  meant, where, keys_of(section)));
  }

  struct NotNeeded {
    std::string_view reason;
    std::vector<std::string_view> paths;
  };
  const std::string& name_;
  std::vector<std::string> not_there_, refusals_;  // keys in quotes; whole sentences
  std::vector<NotNeeded> not_needed_;
};

}  // namespace

std::vector<std::string> check_keys(const std::string& document, const std::string& name) {
  KeyCheck check(name);
  check.look_at(Json::parse(document), "");
  return check.notes();
}

}  // namespace sluice
