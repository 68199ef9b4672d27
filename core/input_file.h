// A file that is read by place: text, token ids, tensors. Never mapped: where a drive fails or the file becomes
// shorter, reading a mapping kills the process (SIGBUS), and a call is an error that says what and where.
//
// Const members may be called from any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace sluice {

class InputFile {
 public:
  struct InErrors {
    std::filesystem::path path = {};
    std::string advice = {};               // where a call fails, and no limit of the machine is why
    std::string advice_when_shorter = {};  // where read_whole() meets the file's end
  };
  // Throws IoError, as all of it does.
  InputFile(const std::filesystem::path& path, InErrors in_errors);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;

  int64_t bytes() const;  // now
  // Fills `into` from `offset` on and gives the number of bytes: fewer only at the file's end.
  size_t read(int64_t offset, std::span<std::byte> into) const;
  // Fills all of `into`: an error where the file ends before.
  void read_whole(int64_t offset, std::span<std::byte> into) const;

 private:
  InErrors in_errors_;
  int file_;
};

}  // namespace sluice
