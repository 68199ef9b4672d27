#include "configs/config_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "configs/keys.h"
#include "core/bytes.h"
#include "core/errors.h"
#include "core/json_integer.h"

namespace sluice {

namespace {

// Null where the key is not there.
const ConfigReader::Json* look_up(const ConfigReader::Json& document, std::string_view path) {
  const ConfigReader::Json* at = &document;
  for (size_t from = 0; from <= path.size();) {
    const size_t dot = std::min(path.find('.', from), path.size());
    const auto found = at->find(std::string(path.substr(from, dot - from)));
    if (found == at->end()) return nullptr;
    at = &*found;
    from = dot + 1;
  }
  return at;
}

}  // namespace

const ConfigReader::Json* ConfigReader::find(std::string_view path) const {
  const Json* found = look_up(document_, path);
  return found == nullptr || found->is_null() ? nullptr : found;
}

bool ConfigReader::is_null(std::string_view path) const {
  const Json* found = look_up(document_, path);
  return found != nullptr && found->is_null();
}

void ConfigReader::refuse(std::string_view path, const Json& value, const std::string& more) const {
  throw ConfigError(
      fmt::format("{}: \"{}{}\" is {}; allowed: {}{}", name_, within_.shown, path, value.dump(), allowed(path), more));
}

void ConfigReader::refuse_missing(std::string_view path) const {
  throw ConfigError(fmt::format("{}: \"{}{}\" is missing; allowed: {}", name_, within_.shown, path, allowed(path)));
}

void ConfigReader::number(std::string_view path, double& into, double least, double below) const {
  const Json* value = find(path);
  if (value == nullptr) return;
  if (!value->is_number()) refuse(path, *value);
  into = value->get<double>();
  if (!std::isfinite(into) || into < least || into >= below) refuse(path, *value);
  if (into <= std::numeric_limits<float>::max()) return;
  throw ConfigError(fmt::format("{}: \"{}{}\" is {}; allowed: what fp32 holds, 3.4e38 at the most", name_,
                                within_.shown, path, value->dump()));
}

void ConfigReader::text(std::string_view path, std::string& into) const {
  const Json* value = find(path);
  if (value == nullptr) return;
  if (!value->is_string() || value->get<std::string>().empty()) refuse(path, *value);
  into = value->get<std::string>();
}

void ConfigReader::bytes(std::string_view path, int64_t& into) const {
  const Json* value = find(path);
  if (value == nullptr) return;
  try {
    into = value->is_string() ? parse_bytes(value->get<std::string>())
                              : checked_integer(path, *value, 1, kMostBudgetBytes);
  } catch (const ConfigError&) {
    into = 0;
  }
  if (into < 1 || into > kMostBudgetBytes) refuse(path, *value);
}

std::string_view ConfigReader::allowed(std::string_view path) const {
  return find_key(within_.known + std::string(path))->allowed;
}

int64_t ConfigReader::checked_integer(std::string_view path, const Json& value, int64_t least, int64_t most) const {
  const std::optional<int64_t> number = integer_of(value);
  if (!number || *number < least || *number > most) refuse(path, value);
  return *number;
}

}  // namespace sluice
