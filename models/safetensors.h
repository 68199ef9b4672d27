// Safetensors files: header length (u64, little-endian), header (JSON: name -> dtype, shape, data_offsets), tensors.
// Source: https://huggingface.co/docs/safetensors ("Format").
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/input_file.h"

namespace sluice {

struct SafetensorsEntry {
  std::string name;
  std::string dtype_name;      // as in the file: "BF16", "I64", ...
  std::optional<DType> dtype;  // of those that can be read here
  std::vector<int64_t> shape;
  int64_t begin = 0, bytes = 0;  // in the file
};

// Moves; reading is thread-safe.
class SafetensorsFile {
 public:
  // Reads and checks the header. Throws ConfigError (not there, damaged: names file and what is wrong), IoError.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return path_; }
  std::span<const SafetensorsEntry> entries() const { return entries_; }  // by name
  const SafetensorsEntry* find(std::string_view name) const;
  // Elements [first, first + into.size()) of an entry with a dtype, in fp32. Throws IoError.
  void read(const SafetensorsEntry& entry, int64_t first, std::span<float> into) const;

 private:
  std::string path_;
  InputFile file_;
  std::vector<SafetensorsEntry> entries_;
};

// Length and header of a file that holds `entries` back to back in the given order; name, dtype and shape are used.
std::string safetensors_header(std::span<const SafetensorsEntry> entries);
std::string_view safetensors_dtype_name(DType dtype);

}  // namespace sluice
