// Token ids that another tokenizer made: a NumPy file (.npy) with an array of integers in one dimension.
//
// Immutable after opening; const members may be called from any thread. Memory: one buffer a read.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>

#include "core/input_file.h"
#include "data/text_source.h"

namespace sluice {

// Whether a file with this content, or beginning, is a NumPy file.
bool begins_as_numpy(std::string_view content);

class IdFile {
 public:
  // Throws ConfigError where no file is at the path, or none of that kind; IoError.
  static void check_is_there(const std::filesystem::path& path);
  // Reads every id once, for the fingerprint. Throws ConfigError as above, and where an id is not below `vocabulary`
  // (with its place) or there are none; IoError.
  static IdFile open(const std::filesystem::path& path, int64_t vocabulary, const Progress& progress = nullptr);

  int64_t count() const { return array_.count; }
  int64_t bytes() const { return array_.count * array_.width; }
  uint32_t fingerprint() const { return fingerprint_; }  // of the ids, whatever type they have

  // Calls `take` with consecutive ids. Throws CorruptionError if they have changed since opening.
  using Take = std::function<void(std::span<const int32_t>)>;
  void read(const Take& take, const Progress& progress = nullptr) const;

 private:
  // https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
  struct Array {
    int64_t first_byte = 0, count = 0, width = 0;  // bytes of an id
    enum class Sign { kSigned, kUnsigned } sign = Sign::kSigned;
  };
  IdFile(const std::filesystem::path& path, int64_t vocabulary);
  Array read_header() const;
  uint32_t each_block(const Take& take, const Progress& progress) const;  // the fingerprint
  int32_t id_of(std::span<const std::byte> bytes, int64_t place) const;

  std::filesystem::path path_;
  int64_t vocabulary_;
  InputFile file_;
  Array array_;
  uint32_t fingerprint_ = 0;
};

}  // namespace sluice
