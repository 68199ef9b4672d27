// The text to train on: a file, or every text file of a folder.
//
// A folder is walked recursively and its files are taken in ascending order of the bytes of their relative paths, so
// that the same folder gives the same text everywhere. Text is any regular file that is valid UTF-8 without NUL bytes.
// Left out, and counted: hidden files and folders (names with a leading dot), folders named __pycache__, site-packages
// or dist-packages (copies made by installers), symbolic links, empty files, and files that are no text.
//
// Immutable after opening; const members may be called from any thread. Memory: the list of files and one buffer a
// read.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

struct TextFile {
  std::filesystem::path path;
  int64_t bytes = 0;
  uint32_t crc = 0;  // of its contents, as they were when the source was opened
};

struct SkippedFiles {
  int64_t hidden = 0, links = 0, empty = 0, not_text = 0, installed = 0;
  int64_t total() const { return hidden + links + empty + not_text + installed; }
  std::string describe() const;  // "12 hidden, 3 not text"; empty for none
};

// Bytes handled so far, of how many.
using Progress = std::function<void(int64_t done_bytes, int64_t total_bytes)>;

class TextSource {
 public:
  // Throws ConfigError where no file or folder is at the path.
  static void check_is_there(const std::filesystem::path& path);
  // Reads every byte once, to know that it is text and for the fingerprint. Throws ConfigError when the path is
  // missing, when a file given by name is empty or no UTF-8 text (with the byte's offset) or when a folder holds no
  // text; IoError when something cannot be read.
  static TextSource open(const std::filesystem::path& path, const Progress& progress = nullptr);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<TextFile>& files() const { return files_; }
  int64_t bytes() const { return bytes_; }
  const SkippedFiles& skipped() const { return skipped_; }
  // CRC32C over relative paths, sizes and contents: changes when the text does.
  uint32_t fingerprint() const { return fingerprint_; }

  // Calls `take` with consecutive pieces of a file's text: whole lines, at most kMaxPieceBytes each; only a line longer
  // than that is cut, between characters. Throws CorruptionError if the file has changed since opening:
  // in what was there then, and where its contents are the only change when all of it has been taken.
  void read(const TextFile& file, const std::function<void(std::string_view piece)>& take) const;
  // The `bytes` from `offset` (fewer at the file's end) without the broken characters at both ends.
  std::string read_range(const TextFile& file, int64_t offset, int64_t bytes) const;

  static constexpr int64_t kMaxPieceBytes = int64_t{1} << 16;

 private:
  std::filesystem::path path_;
  std::vector<TextFile> files_;
  int64_t bytes_ = 0;
  SkippedFiles skipped_;
  uint32_t fingerprint_ = 0;
};

}  // namespace sluice
