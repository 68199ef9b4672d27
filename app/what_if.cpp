#include "app/what_if.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "app/comma_list.h"
#include "app/speeds.h"
#include "configs/batch.h"
#include "core/bytes.h"
#include "core/errors.h"
#include "core/read_file.h"
#include "swap/record_store.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kAllowed = "allowed is host_memory, device_memory, drives or tokens_per_step, = and a value";

// "host_memory=64GiB, drives=2": without the blanks.
std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(' ');
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(' ') + 1 - first);
}

int64_t positive(std::string_view text, int64_t most) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value > 0 && value <= most) return value;
  throw ConfigError(fmt::format("\"{}\": allowed is a whole number from 1 to {}", text, most));
}

int64_t positive_bytes(std::string_view text, int64_t most) {
  const int64_t bytes = parse_bytes(text);
  if (bytes > 0 && bytes <= most) return bytes;
  throw ConfigError(fmt::format("\"{}\": allowed is more than 0 bytes, and no more than {}", text, format_bytes(most)));
}

struct Change {
  std::string key;
  std::optional<std::string> value;  // nothing: without =
};

struct Room {
  int64_t present, most;
};
// "64GiB" in place of what there is, "+16GiB" beside it. `read` refuses what is not from 1 to `most`.
template <typename Read>
int64_t asked(const std::string& value, Room room, const Read& read) {
  if (!value.starts_with('+')) return read(value, room.most);
  return read(std::to_string(room.present + read(trimmed(value.substr(1)), room.most)), room.most);
}

int64_t tokens_asked(const std::string& value, const Resources& present, int64_t of_micro_batch) {
  const int64_t tokens =
      asked(value, {present.micro_batches * of_micro_batch, kMostMicroBatches * of_micro_batch}, positive);
  if (tokens % of_micro_batch == 0) return tokens;
  throw ConfigError(fmt::format("\"{}\": allowed is a multiple of a micro-batch's {} tokens", value, of_micro_batch));
}

void check_has_value(const Change& change, const char* example) {
  if (change.value && !change.value->empty() && *change.value != "+") return;
  throw ConfigError(fmt::format("{} missing: write for example {}={}",
                                change.value ? "a value is" : "= and a value are", change.key, example));
}

void apply(const Change& change, Resources& resources, int64_t tokens_of_micro_batch) {
  const std::string value = change.value.value_or("");
  if (change.key == "host_memory") {
    check_has_value(change, "64GiB");
    resources.host_bytes = asked(value, {resources.host_bytes, kMostBudgetBytes}, positive_bytes);
  } else if (change.key == "device_memory") {
    check_has_value(change, "8GiB");
    resources.device_bytes = asked(value, {resources.device_bytes, kMostBudgetBytes}, positive_bytes);
  } else if (change.key == "drives") {
    check_has_value(change, "2");
    resources.drives = static_cast<int>(asked(value, {resources.drives, kMaxDrives}, positive));
  } else if (change.key == "tokens_per_step") {
    check_has_value(change, std::to_string(2 * resources.micro_batches * tokens_of_micro_batch).c_str());
    resources.micro_batches =
        static_cast<int>(tokens_asked(value, resources, tokens_of_micro_batch) / tokens_of_micro_batch);
  } else {
    throw ConfigError(kAllowed);
  }
}

// The value that an offer raises, as --what-if has it.
Json raised_json(const Offer& offer, int64_t tokens_of_micro_batch) {
  const Json all = Json::parse(resources_json(offer.resources, tokens_of_micro_batch));
  constexpr std::string_view kKeys[] = {"host_memory", "device_memory", "drives", "tokens_per_step"};
  const std::string key(kKeys[static_cast<size_t>(offer.raised)]);
  Json json = Json::object();
  json[key] = all[key];
  return json;
}

std::string raised_words(const Offer& offer) {
  switch (offer.raised) {
    case Offer::Raised::kHostMemory:
      return fmt::format("+{} host memory", format_bytes(offer.resources.host_bytes / 2));
    case Offer::Raised::kDeviceMemory:
      return fmt::format("+{} device memory", format_bytes(offer.resources.device_bytes / 2));
    case Offer::Raised::kDrives:
      return "one more drive";
    case Offer::Raised::kTokens:
      break;
  }
  return "2x tokens per step";
}

}  // namespace

Resources changed_resources(const Resources& present, std::span<const std::string> changes,
                            int64_t tokens_of_micro_batch) {
  Resources resources = present;
  std::set<std::string> seen;
  const auto apply_word = [&](const std::string& word) {
    const size_t equals = word.find('=');
    Change change{.key = trimmed(word.substr(0, equals)), .value = std::nullopt};
    if (equals != std::string::npos) change.value = trimmed(word.substr(equals + 1));
    if (!seen.insert(change.key).second) throw ConfigError("allowed is each key once");
    apply(change, resources, tokens_of_micro_batch);
  };
  for (const std::string& text : changes) {
    if (trimmed(text).empty()) throw ConfigError(fmt::format("--what-if is empty: {}", kAllowed));
    for (const std::string& word : words_between_commas(text)) {
      try {
        apply_word(word);
      } catch (const ConfigError& error) {
        throw ConfigError(fmt::format("--what-if {}: {}", word.empty() ? text : trimmed(word), error.what()));
      }
    }
  }
  return resources;
}

std::string step_times_words(const StepTime& before, const StepTime& after) {
  const bool seconds = before.step_ms >= 1e4 || after.step_ms >= 1e4;
  const double unit = seconds ? 1e3 : 1;
  return fmt::format("{} -> {} {}, {:.0f} -> {:.0f} tokens/s", digits_of(before.step_ms / unit),
                     digits_of(after.step_ms / unit), seconds ? "s" : "ms", before.tokens_per_s(),
                     after.tokens_per_s());
}

std::string would_help_words(std::span<const Offer> offers, const StepTime& present, int64_t tokens_of_micro_batch) {
  std::string text = "would help   (predicted, the most first)\n";
  const auto row = [&text](const std::string& raised, const std::string& outcome) {
    text += fmt::format("             {:<28} {}\n", raised, outcome);
  };
  std::vector<std::string> no_help;
  for (const Offer& offer : offers) {
    const StepTime after{offer.step_ms.value_or(0), offer.resources.micro_batches * tokens_of_micro_batch};
    if (!offer.step_ms) {
      row(raised_words(offer) + ":", "does not fit the budgets");
    } else if (after.tokens_per_s() < present.tokens_per_s() * kWorthOffering) {
      no_help.push_back(raised_words(offer));
    } else {
      row(raised_words(offer) + ":", step_times_words(present, after));
    }
  }
  if (!no_help.empty()) row("no help:", fmt::format("{}", fmt::join(no_help, ", ")));
  return text;
}

std::string would_help_json(std::span<const Offer> offers, int64_t tokens_of_micro_batch) {
  Json json = Json::array();
  for (const Offer& offer : offers) {
    Json row = {{"with", raised_json(offer, tokens_of_micro_batch)},
                {"step_ms", offer.step_ms ? Json(*offer.step_ms) : Json(nullptr)}};
    row["tokens_per_s"] =
        offer.step_ms ? Json(offer.micro_batches_per_s * static_cast<double>(tokens_of_micro_batch)) : Json(nullptr);
    json.push_back(row);
  }
  return json.dump();
}

std::string kept_json(std::span<const Offer> offers, const StepTime& present, int64_t tokens_of_micro_batch) {
  Json json = {{"step_ms", present.step_ms}, {"tokens_per_s", present.tokens_per_s()}};
  json["would_help"] = Json::parse(would_help_json(offers, tokens_of_micro_batch));
  for (size_t i = 0; i < offers.size(); ++i) json["would_help"][i]["words"] = raised_words(offers[i]);
  return json.dump(2);
}

std::optional<WouldHelp> read_would_help(const std::filesystem::path& file) {
  const std::optional<std::string> text = read_text(file);
  if (!text) return std::nullopt;
  try {
    const Json json = Json::parse(*text);
    WouldHelp help{.step_ms = json.at("step_ms"), .tokens_per_s = json.at("tokens_per_s"), .offers = {}};
    for (const Json& row : json.at("would_help")) {
      Help each{.with = row.at("words"), .step_ms = std::nullopt};
      if (!row.at("step_ms").is_null()) {
        each.step_ms = row.at("step_ms").get<double>();
        each.tokens_per_s = row.at("tokens_per_s").get<double>();
      }
      help.offers.push_back(each);
    }
    return help;
  } catch (const Json::exception&) {
    throw ConfigError(
        fmt::format("{}: this is not what a run writes there: remove it, or go on with the run, which writes it anew",
                    file.string()));
  }
}

std::string resources_json(const Resources& resources, int64_t tokens_of_micro_batch) {
  return Json{{"host_memory", resources.host_bytes},
              {"device_memory", resources.device_bytes},
              {"drives", resources.drives},
              {"tokens_per_step", resources.micro_batches * tokens_of_micro_batch}}
      .dump();
}

}  // namespace sluice
