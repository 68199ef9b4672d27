// The `model` section of a configuration and config.json of a Hugging Face folder, in and out: one table of keys.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "core/errors.h"
#include "core/json_integer.h"
#include "core/nearest_name.h"
#include "core/read_file.h"
#include "models/hugging_face.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

struct Key {
  std::string_view name, allowed;
  bool (*set)(Gpt2Config&, const Json&);  // false: not a value of the allowed kind
  Json (*get)(const Gpt2Config&);         // null pointer: never written
};

template <auto kMember>
constexpr Key integer(std::string_view name) {
  return {name, "a positive integer",
          [](Gpt2Config& config, const Json& value) {
            const std::optional<int64_t> number = integer_of(value);
            if (number) config.*kMember = *number;
            return number.has_value();
          },
          [](const Gpt2Config& config) { return Json(config.*kMember); }};
}

template <auto kMember>
bool set_integer_or_null(Gpt2Config& config, const Json& value) {
  const int64_t none = Gpt2Config().*kMember;
  const std::optional<int64_t> number = value.is_null() ? none : integer_of(value);
  if (!number || (!value.is_null() && *number <= none)) return false;
  config.*kMember = *number;
  return true;
}

template <auto kMember>
Json integer_or_null_of(const Gpt2Config& config) {
  return config.*kMember == Gpt2Config().*kMember ? Json(nullptr) : Json(config.*kMember);
}

template <auto kMember>
constexpr Key integer_or_null(std::string_view name, std::string_view allowed) {
  return {name, allowed, set_integer_or_null<kMember>, integer_or_null_of<kMember>};
}

// Hugging Face's may be a list, of which the first counts.
template <auto kMember>
constexpr Key token_id(std::string_view name) {
  return {name, "an integer of 0 or more, null, or a list that begins with one",
          [](Gpt2Config& config, const Json& value) {
            const bool is_list = value.is_array() && !value.empty();
            return set_integer_or_null<kMember>(config, is_list ? value.front() : value);
          },
          integer_or_null_of<kMember>};
}

template <auto kMember>
constexpr Key number(std::string_view name, std::string_view allowed) {
  return {name, allowed,
          [](Gpt2Config& config, const Json& value) {
            if (!value.is_number() || value.get<double>() > std::numeric_limits<float>::max()) return false;
            config.*kMember = value.get<double>();
            return true;
          },
          [](const Gpt2Config& config) { return Json(config.*kMember); }};
}

template <auto kMember>
constexpr Key flag(std::string_view name) {
  return {name, "true or false",
          [](Gpt2Config& config, const Json& value) {
            if (!value.is_boolean()) return false;
            config.*kMember = value.get<bool>();
            return true;
          },
          [](const Gpt2Config& config) { return Json(config.*kMember); }};
}

constexpr std::string_view kTiling = "tiling";

// A key that would change the forward in a way that is not there.
constexpr Key only_false(std::string_view name) {
  return {name, "false", [](Gpt2Config&, const Json& value) { return value == Json(false); }, nullptr};
}

bool set_tiling(Gpt2Config& config, const Json& value) {
  if (value.is_null()) return true;  // none
  if (!value.is_object()) return false;
  for (const auto& [name, tiles] : value.items()) {
    const bool linear = name == "linear";
    const std::optional<int64_t> number = integer_of(tiles);
    if ((!linear && name != "embedding") || !number) return false;
    (linear ? config.tiling.linear : config.tiling.embedding) = *number;
  }
  return true;
}

constexpr Key kKeys[] = {
    integer<&Gpt2Config::vocab_size>("vocab_size"),
    integer<&Gpt2Config::n_positions>("n_positions"),
    integer<&Gpt2Config::n_embd>("n_embd"),
    integer<&Gpt2Config::n_layer>("n_layer"),
    integer<&Gpt2Config::n_head>("n_head"),
    integer_or_null<&Gpt2Config::n_inner>("n_inner", "a positive integer or null (4 x n_embd)"),
    {"activation_function", "\"gelu_new\"",
     [](Gpt2Config& config, const Json& value) {
       if (!value.is_string()) return false;
       config.activation_function = value.get<std::string>();
       return true;
     },
     [](const Gpt2Config& config) { return Json(config.activation_function); }},
    number<&Gpt2Config::layer_norm_epsilon>("layer_norm_epsilon", "a number above 0 that fp32 holds"),
    number<&Gpt2Config::initializer_range>("initializer_range", "a number, 0 or more, that fp32 holds"),
    flag<&Gpt2Config::tie_word_embeddings>("tie_word_embeddings"),
    flag<&Gpt2Config::scale_attn_weights>("scale_attn_weights"),
    number<&Gpt2Config::resid_pdrop>("resid_pdrop", "0"),
    number<&Gpt2Config::embd_pdrop>("embd_pdrop", "0"),
    number<&Gpt2Config::attn_pdrop>("attn_pdrop", "0"),
    token_id<&Gpt2Config::bos_token_id>("bos_token_id"),
    token_id<&Gpt2Config::eos_token_id>("eos_token_id"),
    only_false("scale_attn_by_inverse_layer_idx"),
    only_false("reorder_and_upcast_attn"),
    only_false("add_cross_attention"),
    {"pruned_heads", "{} or null, a model with all of its heads",
     [](Gpt2Config&, const Json& value) { return value.is_null() || value == Json::object(); }, nullptr},
    // Not Hugging Face's: config.json never has it.
    {kTiling, "{\"linear\": tiles, \"embedding\": tiles} with integers, 1 for a layer that stays whole", set_tiling,
     nullptr},
};

// Of an exported config.json; of one that transformers has saved.
constexpr const char* kExportedBy = "exported_by";
constexpr const char* kTransformersVersion = "transformers_version";

// Keys of config.json that do not change the forward of a language model in training or its loss.
constexpr std::string_view kWithoutEffect[] = {kExportedBy,
                                               "_name_or_path",
                                               "name_or_path",
                                               "_commit_hash",
                                               "_attn_implementation",
                                               "_attn_implementation_autoset",
                                               "architectures",
                                               "attn_implementation",
                                               kTransformersVersion,
                                               "torch_dtype",
                                               "dtype",
                                               "torchscript",
                                               "task_specific_params",
                                               "tokenizer_class",
                                               "finetuning_task",
                                               "gradient_checkpointing",
                                               "use_cache",
                                               "n_ctx",
                                               "pad_token_id",
                                               "sep_token_id",
                                               "decoder_start_token_id",
                                               "summary_type",
                                               "summary_use_proj",
                                               "summary_activation",
                                               "summary_proj_to_labels",
                                               "summary_first_dropout",
                                               "output_hidden_states",
                                               "output_attentions",
                                               "output_past",
                                               "return_dict",
                                               "return_dict_in_generate",
                                               "id2label",
                                               "label2id",
                                               "num_labels",
                                               "problem_type",
                                               "prefix",
                                               "is_encoder_decoder",
                                               "is_decoder",
                                               "cross_attention_hidden_size",
                                               "tie_encoder_decoder",
                                               "chunk_size_feed_forward",
                                               "use_bfloat16",
                                               "tf_legacy_loss",
                                               "max_length",
                                               "min_length",
                                               "do_sample",
                                               "early_stopping",
                                               "num_beams",
                                               "num_beam_groups",
                                               "diversity_penalty",
                                               "temperature",
                                               "top_k",
                                               "top_p",
                                               "typical_p",
                                               "repetition_penalty",
                                               "length_penalty",
                                               "no_repeat_ngram_size",
                                               "encoder_no_repeat_ngram_size",
                                               "bad_words_ids",
                                               "num_return_sequences",
                                               "output_scores",
                                               "forced_bos_token_id",
                                               "forced_eos_token_id",
                                               "remove_invalid_values",
                                               "suppress_tokens",
                                               "begin_suppress_tokens",
                                               "exponential_decay_length_penalty"};

const Key* find_key(std::string_view name) {
  const auto* key = std::find_if(std::begin(kKeys), std::end(kKeys), [&](const Key& k) { return k.name == name; });
  return key == std::end(kKeys) ? nullptr : key;
}

void set_key(Gpt2Config& config, const Key& key, const Json& value, const std::string& where) {
  if (key.set(config, value)) return;
  throw ConfigError(
      fmt::format("{}.{} is {}: allowed is {}; another value in a file is overridden with --set model.{}=...", where,
                  key.name, value.dump(), key.allowed, key.name));
}

bool is_without_effect(std::string_view name, const Json& value) {
  if (name == "model_type") return value == "gpt2";
  return std::ranges::find(kWithoutEffect, name) != std::end(kWithoutEffect);
}

std::vector<std::string_view> known_names() {
  std::vector<std::string_view> names;
  for (const Key& key : kKeys) names.push_back(key.name);
  return names;
}

// Empty: none is like it.
std::string did_you_mean(const std::string& name) {
  const std::vector<std::string_view> known = known_names();
  const std::string_view nearest = nearest_name(name, known);
  return slip_between(nearest, name) ? fmt::format("; did you mean \"model.{}\"?", nearest) : "";
}

[[noreturn]] void refuse_unknown(const std::string& name, const Json& value) {
  const std::string meant = did_you_mean(name);
  throw ConfigError(fmt::format("unknown key \"model.{}\" (value {}){} Allowed in model: type, path, {}", name,
                                value.dump(), meant.empty() ? "." : meant, fmt::join(known_names(), ", ")));
}

Json parse_object(const std::string& text, const std::string& where) {
  Json object;
  try {
    object = Json::parse(text);
  } catch (const Json::exception& error) {
    throw ConfigError(fmt::format("{} is not JSON: {}", where, error.what()));
  }
  if (!object.is_object())
    throw ConfigError(fmt::format("{} must be a JSON object, as {{\"type\": \"gpt2\", ...}}", where));
  return object;
}

// Everything but keys that the section overrides.
void read_folder_config(Gpt2Config& config, const std::string& folder, const Json& overrides) {
  const std::string path = folder + "/config.json";
  const std::optional<std::string> text = read_text(path);
  if (!text) {
    throw ConfigError(
        fmt::format("model.path: there is no {}: give a folder with config.json and safetensors files", path));
  }
  const Json file = parse_object(*text, path);
  if (!file.contains("model_type") || file["model_type"] != "gpt2") {
    throw ConfigError(fmt::format("{}: model_type is {}: \"gpt2\" is what there is", path,
                                  file.contains("model_type") ? file["model_type"].dump() : "missing"));
  }
  for (const auto& [name, value] : file.items()) {
    if (overrides.contains(name) || is_without_effect(name, value)) continue;
    if (const Key* key = find_key(name); key != nullptr && name != kTiling) {
      set_key(config, *key, value, path + ": model");
    } else {
      throw ConfigError(
          fmt::format("{}: key \"{}\" (value {}) is not known, and may change the forward: remove it if it does not{}",
                      path, name, value.dump(), did_you_mean(name)));
    }
  }
}

void check_type(const Json& section) {
  if (section.contains("path")) {
    if (!section["path"].is_string() || section["path"].get<std::string>().empty()) {
      throw ConfigError(fmt::format("model.path is {}: a Hugging Face folder", section["path"].dump()));
    }
    if (!section.contains("type")) return;
  }
  if (!section.contains("type")) {
    throw ConfigError(
        "model.type is missing: {\"type\": \"gpt2\", ...}, or {\"path\": \"FOLDER\"} of a Hugging Face folder");
  }
  if (section["type"] != "gpt2") {
    throw ConfigError(fmt::format("model.type is {}: \"gpt2\" is what there is", section["type"].dump()));
  }
}

Json keys_of(const Gpt2Config& config) {
  Json keys = Json::object();
  for (const Key& key : kKeys) {
    if (key.get != nullptr) keys[std::string(key.name)] = key.get(config);
  }
  return keys;
}

}  // namespace

ModelSection read_model_section(const std::string& json_text) {
  const Json section = parse_object(json_text, "model");
  check_type(section);
  ModelSection read;
  if (section.contains("path")) {
    read.folder = section["path"].get<std::string>();
    read_folder_config(read.config, read.folder, section);
  }
  for (const auto& [name, value] : section.items()) {
    if (name == "type" || name == "path") continue;
    if (is_without_effect(name, value)) {
      read.without_effect.push_back(name);
      continue;
    }
    const Key* const key = find_key(name);
    if (key == nullptr) refuse_unknown(name, value);
    set_key(read.config, *key, value, "model");
  }
  read.config.validate();
  return read;
}

std::string config_json_text(const Gpt2Config& config, DType dtype) {
  Json file = {{"architectures", {"GPT2LMHeadModel"}}, {"model_type", "gpt2"}, {kExportedBy, "sluice"}};
  file.update(keys_of(config));
  file["torch_dtype"] = dtype == DType::kBf16 ? "bfloat16" : dtype == DType::kFp16 ? "float16" : "float32";
  return file.dump(2) + "\n";
}

bool is_export(const std::string& config_json) {
  const Json file = Json::parse(config_json, nullptr, false);
  // transformers takes over what it does not know when it saves a model, and adds this.
  return file.is_object() && file.value(kExportedBy, Json()) == "sluice" && !file.contains(kTransformersVersion);
}

std::string model_section_text(const ModelSection& section) {
  Json written = {{"type", "gpt2"}};
  if (!section.folder.empty()) written["path"] = section.folder;
  written.update(keys_of(section.config));
  const Gpt2Tiling& tiling = section.config.tiling;
  if (tiling != Gpt2Tiling()) {
    written[std::string(kTiling)] = {{"linear", tiling.linear}, {"embedding", tiling.embedding}};
  }
  return written.dump();
}

}  // namespace sluice
