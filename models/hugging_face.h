// Hugging Face folders: config.json and safetensors files, in and out, and the `model` section of a configuration.
// JSON travels as text here.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "engine/engine.h"
#include "models/gpt2.h"

namespace sluice {

struct ModelSection {
  Gpt2Config config;
  std::string folder;                       // of weights to start from ("path"); empty: initial_values
  std::vector<std::string> without_effect;  // keys of the section that were passed over, as config.json's are
};

// Reads the `model` section: {"type": "gpt2", keys of GPT2Config...} or {"path": FOLDER, keys that override its
// config.json...}, and in either case "tiling": {"linear": N, "embedding": N}. Keys of config.json that do not change
// the forward are passed over by list, there and in the section; any other, a value of the wrong kind and dropout are
// refused with a ConfigError that names key, value, what is allowed and the nearest known key. A relative path is taken
// as it is: resolve it first.
ModelSection read_model_section(const std::string& json_text);

// config.json of an exported folder (a JSON object with "model_type": "gpt2"); also a valid `model` section once "type"
// is added, see model_section_text.
std::string config_json_text(const Gpt2Config& config, DType dtype);
// Whether a config.json is such a one, and no other program has saved the model since.
bool is_export(const std::string& config_json);
// The resolved `model` section: every key written out; read_model_section gives the same config back.
std::string model_section_text(const ModelSection& section);

// Streams weights from FOLDER/model.safetensors, or the shards that FOLDER/model.safetensors.index.json names; fp32,
// fp16 and bf16 files; names with or without "transformer.". Missing, unexpected and misshapen tensors and damaged
// files are refused here with a ConfigError that names file and tensor; so are values that are no numbers or too large
// for the model's precision, for which all of them are read once (`progress`: elements done, elements in all). Each
// call of the source reads its piece with pread; nothing is kept.
ParameterSource hugging_face_source(const std::string& folder, const Gpt2& model,
                                    const std::function<void(int64_t, int64_t)>& progress = {});

struct NamedFile {
  std::string name, content;
};
// The files of the tokenizer that lies beside the weights, of those that transformers knows; none: there is none.
// Throws what read_file does.
std::vector<NamedFile> tokenizer_in(const std::string& folder);
bool has_tokenizer(const std::string& folder);  // without reading it

// Fills `into` with a whole parameter (index into Engine::geometry().parameters()), in the export's dtype.
using ParameterReader = std::function<void(int parameter, std::span<std::byte> into)>;

struct ExportOptions {
  std::string folder;          // created if missing
  DType dtype = DType::kBf16;  // of the tensors in the file: the weights' (Engine::read), or fp32 (Engine::read_master)
  std::optional<int64_t> end_of_document;  // the id that texts begin and end with, in place of the model's
  std::vector<NamedFile> tokenizer;
};
// Writes FOLDER/config.json, the tokenizer's files and FOLDER/model.safetensors, parameter after parameter, those in
// tiles put together, each file under a temporary name first, synced, then renamed. Throws IoError.
void export_hugging_face(const ExportOptions& options, const Gpt2& model, const ParameterReader& read);

}  // namespace sluice
