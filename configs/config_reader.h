// Typed values out of a configuration file's JSON, by the paths of their keys. What is not there, or null, keeps what
// it had; a value that is not allowed throws ConfigError with the file's name, the key, the value and what is allowed.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace sluice {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

class ConfigReader {
 public:
  using Json = nlohmann::ordered_json;
  // Where the document is a part of the file: how its keys begin for people, and in the table of keys.
  struct Within {
    std::string shown, known;
  };
  // Document and name outlive the reader.
  ConfigReader(const Json& document, const std::string& name, Within within = {})
      : document_(document), name_(name), within_(std::move(within)) {}

  // Null where the key is not there or its value is null.
  const Json* find(std::string_view path) const;
  // Is the key there, with the value null?
  bool is_null(std::string_view path) const;

  [[noreturn]] void refuse(std::string_view path, const Json& value, const std::string& more = "") const;
  [[noreturn]] void refuse_missing(std::string_view path) const;

  template <typename T>
  void integer(std::string_view path, T& into, int64_t least,
               int64_t most = std::numeric_limits<int64_t>::max()) const {
    if (const Json* value = find(path)) into = static_cast<T>(checked_integer(path, *value, least, most));
  }
  template <typename T>
  void integer_or_auto(std::string_view path, T& into, int64_t least, T most = std::numeric_limits<T>::max()) const {
    const Json* value = find(path);
    if (value == nullptr || *value == "auto") return;
    into = static_cast<T>(checked_integer(path, *value, least, most));
  }

  // least <= value < below; both ends as the key's words say.
  void number(std::string_view path, double& into, double least, double below) const;
  void text(std::string_view path, std::string& into) const;
  void bytes(std::string_view path, int64_t& into) const;

  // Calls `take(bool)` where the key is there.
  template <typename Take>
  void flag(std::string_view path, Take take) const {
    const Json* value = find(path);
    if (value == nullptr) return;
    if (!value->is_boolean()) refuse(path, *value);
    take(value->get<bool>());
  }

  template <typename T>
  void choice(std::string_view path, T& into, std::initializer_list<std::pair<std::string_view, T>> choices) const {
    const Json* value = find(path);
    if (value == nullptr) return;
    for (const auto& [word, meaning] : choices) {
      if (value->is_string() && value->get<std::string>() == word) {
        into = meaning;
        return;
      }
    }
    refuse(path, *value);
  }

  const std::string& name() const { return name_; }

 private:
  std::string_view allowed(std::string_view path) const;
  int64_t checked_integer(std::string_view path, const Json& value, int64_t least, int64_t most) const;

  const Json& document_;
  const std::string& name_;
  Within within_;
};

}  // namespace sluice
