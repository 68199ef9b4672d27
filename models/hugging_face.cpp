// Weights from a Hugging Face folder.
#include "models/hugging_face.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "core/errors.h"
#include "core/read_file.h"
#include "models/safetensors.h"

namespace sluice {
namespace {

constexpr std::string_view kPrefix = "transformer.";
constexpr const char* kTokenizerFiles[] = {"tokenizer.json", "vocab.json", "tokenizer.model", "spiece.model"};
constexpr const char* kBesideTokenizer[] = {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                                            "merges.txt", "chat_template.jinja"};

struct Found {
  const SafetensorsFile* file = nullptr;
  const SafetensorsEntry* entry = nullptr;
};

// The open files, and where each parameter lies in them. Immutable once made.
struct Folder {
  std::vector<SafetensorsFile> files;
  std::map<std::string, Found, std::less<>> parameters;
};

std::set<std::string> shard_names(const std::string& index_path) {
  const nlohmann::json index = nlohmann::json::parse(read_text(index_path).value_or(""), nullptr, false);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    throw ConfigError(fmt::format("{}: no \"weight_map\" object in it", index_path));
  }
  std::set<std::string> names;
  for (const auto& [tensor, shard] : index["weight_map"].items()) {
    if (!shard.is_string() || shard.get<std::string>().find('/') != std::string::npos) {
      throw ConfigError(
          fmt::format("{}: tensor {} is mapped to {}: a file name beside it", index_path, tensor, shard.dump()));
    }
    names.insert(shard.get<std::string>());
  }
  return names;
}

std::vector<SafetensorsFile> open_files(const std::string& folder) {
  std::vector<SafetensorsFile> files;
  const std::string one = folder + "/model.safetensors", index = one + ".index.json";
  if (std::filesystem::exists(one)) {
    files.emplace_back(one);
  } else if (std::filesystem::exists(index)) {
    for (const std::string& name : shard_names(index)) files.emplace_back(folder + "/" + name);
  } else {
    throw ConfigError(
        fmt::format("model.path: {} has neither model.safetensors nor model.safetensors.index.json", folder));
  }
  return files;
}

// Masks that older files carry: nothing that is trained.
bool is_without_effect(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

std::map<std::string, Found, std::less<>> tensors_of(const std::vector<SafetensorsFile>& files) {
  std::map<std::string, Found, std::less<>> tensors;
  for (const SafetensorsFile& file : files) {
    for (const SafetensorsEntry& entry : file.entries()) {
      if (is_without_effect(entry.name)) continue;
      const bool whole = entry.name.starts_with(kPrefix) || entry.name.starts_with("lm_head.");
      const std::string name = whole ? entry.name : std::string(kPrefix) + entry.name;
      if (!tensors.emplace(name, Found{&file, &entry}).second) {
        throw ConfigError(fmt::format("{}: tensor {} is there twice", file.path(), entry.name));
      }
    }
  }
  return tensors;
}

void check_tensor(const Found& found, const ParameterSpec& parameter) {
  if (found.entry->shape != parameter.shape) {
    throw ConfigError(fmt::format("{}: tensor {} has the shape [{}], the model wants [{}]", found.file->path(),
                                  found.entry->name, fmt::join(found.entry->shape, ", "),
                                  fmt::join(parameter.shape, ", ")));
  }
  if (!found.entry->dtype) {
    throw ConfigError(fmt::format("{}: tensor {} is of type {}: F32, F16 and BF16 can be read", found.file->path(),
                                  found.entry->name, found.entry->dtype_name));
  }
}

std::string type_words(const SafetensorsEntry& entry) {
  return entry.dtype ? std::string(name_of(*entry.dtype)) : entry.dtype_name;
}

// Older files carry a copy of the tied embedding: it is left out. One with other values is a head of its own, whatever
// config.json says, and transformers takes it for one.
void leave_out_tied_head(std::map<std::string, Found, std::less<>>& tensors) {
  constexpr int64_t kPieceElements = int64_t{1} << 20;
  const auto head = tensors.find("lm_head.weight"), wte = tensors.find("transformer.wte.weight");
  if (head == tensors.end()) return;
  if (wte == tensors.end()) {  // which is told then
    tensors.erase(head);
    return;
  }
  const SafetensorsEntry &of_head = *head->second.entry, &of_wte = *wte->second.entry;
  if (!of_head.dtype || !of_wte.dtype || of_head.shape != of_wte.shape) {
    throw ConfigError(fmt::format(
        "{}: tensor lm_head.weight, [{}] of {}, is no copy of wte.weight, [{}] of {}, and the embeddings are tied "
        "(model.tie_word_embeddings): bring back a folder whose tensors agree",
        head->second.file->path(), fmt::join(of_head.shape, ", "), type_words(of_head), fmt::join(of_wte.shape, ", "),
        type_words(of_wte)));
  }
  bool same = true;
  int64_t elements = 1;
  for (const int64_t size : head->second.entry->shape) elements *= size;
  std::vector<float> values[2];
  for (int64_t first = 0; same && first < elements; first += kPieceElements) {
    const auto count = static_cast<size_t>(std::min(kPieceElements, elements - first));
    for (int i : {0, 1}) {
      values[i].resize(count);
      const Found& found = i == 0 ? head->second : wte->second;
      found.file->read(*found.entry, first, values[i]);
    }
    same = std::memcmp(values[0].data(), values[1].data(), count * sizeof(float)) == 0;
  }
  if (!same) {
    throw ConfigError(fmt::format(
        "{}: tensor lm_head.weight is not the same as wte.weight, and the embeddings are to be tied "
        "(model.tie_word_embeddings): take it for a head of its own with --set model.tie_word_embeddings=false, or "
        "bring back a folder whose tensors agree",
        head->second.file->path()));
  }
  tensors.erase(head);
}

void check_all(const std::string& folder, const std::map<std::string, Found, std::less<>>& tensors, const Gpt2& model) {
  const std::vector<WholeParameter> wanted = whole_parameters(model.spec(), model.tiles());
  std::set<std::string_view> known;
  for (const auto& [parameter, parts] : wanted) {
    known.insert(parameter.name);
    const auto found = tensors.find(parameter.name);
    if (found == tensors.end()) {
      throw ConfigError(fmt::format("model.path: {}: tensor {} is missing{}", folder, parameter.name,
                                    parameter.name == "lm_head.weight"
                                        ? ": its embeddings may be tied (--set model.tie_word_embeddings=true)"
                                        : ""));
    }
    check_tensor(found->second, parameter);
  }
  for (const auto& [name, found] : tensors) {
    if (known.contains(name)) continue;
    throw ConfigError(fmt::format("{}: tensor {} is none of the model's", found.file->path(), found.entry->name));
  }
}

// About a weight that check_values() refuses.
std::string what_to_do(float value, Precision precision) {
  if (std::isnan(value)) return "no number: bring back the file that was saved";
  if (std::isinf(value)) return "no finite number: bring back the file that was saved";
  const bool bf16_holds_it = std::abs(value) < too_large_for(Precision::kBf16);
  return fmt::format("too large for {}: train in {}", name_of(precision), bf16_holds_it ? "bf16 or fp32" : "fp32");
}

// Before anything is made of them: a weight that is no number makes every loss none.
void check_values(const std::map<std::string, Found, std::less<>>& tensors, Precision precision,
                  const std::function<void(int64_t, int64_t)>& progress) {
  constexpr int64_t kPieceElements = int64_t{1} << 20;
  const float too_large = too_large_for(precision);
  const auto elements_of = [](const Found& found) { return found.entry->bytes / bytes_of(*found.entry->dtype); };
  int64_t total = 0, done = 0;
  for (const auto& [name, found] : tensors) total += elements_of(found);
  std::vector<float> values(static_cast<size_t>(std::min(kPieceElements, total)));
  for (const auto& [name, found] : tensors) {
    const int64_t elements = elements_of(found);
    for (int64_t first = 0; first < elements; first += kPieceElements) {
      const std::span<float> piece =
          std::span(values).first(static_cast<size_t>(std::min(kPieceElements, elements - first)));
      found.file->read(*found.entry, first, piece);
      const auto wrong = std::ranges::find_if(piece, [&](float value) { return !(std::abs(value) < too_large); });
      if (wrong != piece.end()) {
        throw ConfigError(fmt::format("{}: tensor {}: element {} is {}, {}", found.file->path(), found.entry->name,
                                      first + (wrong - piece.begin()), *wrong, what_to_do(*wrong, precision)));
      }
      done += std::ssize(piece);
      if (progress) progress(done, total);
    }
  }
}

}  // namespace

ParameterSource hugging_face_source(const std::string& folder, const Gpt2& model,
                                    const std::function<void(int64_t, int64_t)>& progress) {
  auto opened = std::make_shared<Folder>();
  opened->files = open_files(folder);
  opened->parameters = tensors_of(opened->files);
  if (model.config().tie_word_embeddings) leave_out_tied_head(opened->parameters);
  check_all(folder, opened->parameters, model);
  check_values(opened->parameters, model.options().precision, progress);
  return model.tiles().cut([opened](const Parameter& parameter, int64_t first, std::span<float> into) {
    const auto found = opened->parameters.find(parameter.name);
    SLUICE_CHECK(found != opened->parameters.end(), "a parameter of another model");
    found->second.file->read(*found->second.entry, first, into);
  });
}

bool has_tokenizer(const std::string& folder) {
  return std::ranges::any_of(kTokenizerFiles, [&](const char* name) {
    std::error_code ignored;
    return std::filesystem::exists(std::filesystem::path(folder) / name, ignored);
  });
}

std::vector<NamedFile> tokenizer_in(const std::string& folder) {
  if (!has_tokenizer(folder)) return {};
  std::vector<NamedFile> files;
  const auto add = [&](const char* name) {
    std::optional<std::string> content = read_file(std::filesystem::path(folder) / name);
    if (content) files.push_back({name, std::move(*content)});
  };
  std::ranges::for_each(kTokenizerFiles, add);
  std::ranges::for_each(kBesideTokenizer, add);
  return files;
}

}  // namespace sluice
