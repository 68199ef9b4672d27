#include "app/tokenizer_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "core/read_file.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;
using Kind = VocabularyEntry::Kind;

// Cuts text where control characters are, which no entry has, so that they become their bytes, and before the last
// character of what reads like the name of a byte, so that it is no byte.
constexpr const char* kCuts = R"([\x00-\x1F]|(?<=<0x[0-9A-F]{2})>)";
constexpr const char* kTokenizerFile = "tokenizer.json";

// None that a text can have, but of the end of documents.
std::string name_of(const VocabularyEntry& entry) {
  if (entry.kind == Kind::kByte) return fmt::format("<0x{:02X}>", static_cast<uint8_t>(entry.text.front()));
  return entry.kind == Kind::kUnknown ? entry.text + '\x1F' : entry.text;
}

// Characters, none of which is an entry: each becomes its bytes.
Json byte_model(const std::vector<VocabularyEntry>& entries) {
  Json names = Json::object();
  for (size_t id = 0; id < entries.size(); ++id) names[name_of(entries[id])] = id;
  return {{"type", "BPE"}, {"byte_fallback", true}, {"vocab", names}, {"merges", Json::array()}};
}

// Entries with their spaces, not with U+2581 in place of them: so that character has no entry, and becomes its bytes,
// as here.
Json unigram_model(const std::vector<VocabularyEntry>& entries) {
  float least = 0;
  for (const VocabularyEntry& entry : entries) least = std::min(least, entry.score);
  Json scores = Json::array();
  for (const VocabularyEntry& entry : entries) {
    scores.push_back({name_of(entry), entry.kind == Kind::kText ? entry.score : least});
  }
  const auto unknown = std::ranges::find(entries, Kind::kUnknown, &VocabularyEntry::kind);
  return {{"type", "Unigram"}, {"unk_id", unknown - entries.begin()}, {"byte_fallback", true}, {"vocab", scores}};
}

}  // namespace

std::vector<NamedFile> tokenizer_files(const Tokenizer& tokenizer, int64_t longest) {
  const std::vector<VocabularyEntry> entries = tokenizer.vocabulary();
  const std::optional<int32_t> end = tokenizer.end_of_document();
  if (entries.empty() || !end) return {};
  const std::string end_name = name_of(entries[static_cast<size_t>(*end)]);
  const Json end_token = {{"id", *end},      {"content", end_name}, {"single_word", false}, {"lstrip", false},
                          {"rstrip", false}, {"normalized", false}, {"special", true}};
  const Json cuts = {{"type", "Split"}, {"pattern", {{"Regex", kCuts}}}, {"behavior", "Isolated"}, {"invert", false}};
  const Json decoders = Json::array({Json{{"type", "ByteFallback"}}, Json{{"type", "Fuse"}}});
  const bool bytes = tokenizer.kind() == TokenizerKind::kByte;
  const Json json = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", Json::array({end_token})},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", cuts},
                     {"post_processor", nullptr},
                     {"decoder", {{"type", "Sequence"}, {"decoders", decoders}}},
                     {"model", bytes ? byte_model(entries) : unigram_model(entries)}};
  const Json config = {
      {"tokenizer_class", "PreTrainedTokenizerFast"},
      {"bos_token", end_name},
      {"eos_token", end_name},
      {"clean_up_tokenization_spaces", false},
      {"model_input_names", {"input_ids", "attention_mask"}},  // GPT-2 adds other token types' embedding
      {"model_max_length", longest}};
  return {{kTokenizerFile, json.dump() + "\n"}, {"tokenizer_config.json", config.dump(2) + "\n"}};
}

void warn_of_other_ids(const std::string& weights_folder, const Tokenizer& tokenizer, const Log& log) {
  if (weights_folder.empty() || tokenizer.kind() == TokenizerKind::kIds) return;
  const std::string_view kind = name_of(tokenizer.kind());
  if (!has_tokenizer(weights_folder)) {
    return say(log, LogLevel::kWarning,
               fmt::format("{}: no tokenizer lies beside the weights there: unless they were trained on the ids of "
                           "data.tokenizer \"{}\", write ids with theirs, and train on those (data.tokenizer \"ids\")",
                           weights_folder, kind));
  }
  const std::vector<NamedFile> own = tokenizer_files(tokenizer, 0);
  const bool is_own = std::ranges::any_of(own, [&](const NamedFile& file) {
    return file.name == kTokenizerFile && read_file(std::filesystem::path(weights_folder) / file.name) == file.content;
  });
  if (is_own) return;
  say(log, LogLevel::kWarning,
      fmt::format("{}: the tokenizer there is not read, and data.tokenizer \"{}\" gives other ids than those that its "
                  "weights know: write ids with it, and train on them (data.tokenizer \"ids\")",
                  weights_folder, kind));
}

}  // namespace sluice
