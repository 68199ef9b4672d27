// Hugging Face folders, out.
#include <cstring>
#include <filesystem>
#include <span>
#include <vector>

#include "core/folders.h"
#include "core/pending_file.h"
#include "models/hugging_face.h"
#include "models/safetensors.h"

namespace sluice {
namespace {

// Fills `into`, exactly large enough, with a whole parameter from its parts.
void put_together(const WholeParameter& whole, const ParameterReader& read, std::vector<std::byte>& scratch,
                  std::span<std::byte> into) {
  const int64_t element_bytes = static_cast<int64_t>(into.size()) / whole.spec.elements();
  for (const auto& [parameter, name, tile] : whole.parts) {
    if (tile == nullptr) {
      read(parameter, into);
      continue;
    }
    const auto run_bytes = static_cast<size_t>(tile->run * element_bytes);
    scratch.resize(run_bytes * static_cast<size_t>(tile->runs));
    read(parameter, scratch);
    for (int64_t run = 0; run < tile->runs; ++run) {
      std::memcpy(into.data() + (tile->first + run * tile->stride) * element_bytes,
                  scratch.data() + static_cast<size_t>(run) * run_bytes, run_bytes);
    }
  }
}

// Into a folder that is there.
void write_export(const ExportOptions& options, const Gpt2& model, const ParameterReader& read) {
  std::vector<SafetensorsEntry> entries;
  const std::vector<WholeParameter> parameters = whole_parameters(model.spec(), model.tiles());
  for (const WholeParameter& parameter : parameters) {
    const auto& [name, shape] = parameter.spec;
    entries.push_back({.name = name, .dtype_name = {}, .dtype = options.dtype, .shape = shape});
  }
  const std::filesystem::path folder = options.folder;
  PendingFile weights(folder / "model.safetensors");
  weights.append(safetensors_header(entries));
  std::vector<std::byte> values, scratch;
  for (const WholeParameter& parameter : parameters) {
    values.resize(static_cast<size_t>(parameter.spec.elements() * bytes_of(options.dtype)));
    put_together(parameter, read, scratch, values);
    weights.append({reinterpret_cast<const char*>(values.data()), values.size()});
  }
  Gpt2Config config = model.config();
  if (options.end_of_document) config.bos_token_id = config.eos_token_id = *options.end_of_document;
  std::vector<NamedFile> texts = {{"config.json", config_json_text(config, options.dtype)}};
  texts.insert(texts.end(), options.tokenizer.begin(), options.tokenizer.end());
  for (const auto& [name, content] : texts) {
    PendingFile text(folder / name);
    text.append(content);
    text.publish();  // config.json first: what is cut off after it can be exported again, weights alone are somebody's
  }
  weights.publish();
}

}  // namespace

void export_hugging_face(const ExportOptions& options, const Gpt2& model, const ParameterReader& read) {
  const FolderWas was = make_folder(options.folder, "name another folder");
  try {
    write_export(options, model, read);
  } catch (...) {
    std::error_code ignored;
    if (was == FolderWas::kMade) std::filesystem::remove(options.folder, ignored);  // where nothing is in it
    throw;
  }
}

}  // namespace sluice
