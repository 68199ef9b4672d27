#include "core/read_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "core/errors.h"
#include "core/machine_advice.h"
#include "core/retried.h"

namespace sluice {
namespace {

[[noreturn]] void fail(const char* action, const std::filesystem::path& path, int error_number) {
  if (error_number == EISDIR) throw ConfigError(fmt::format("{}: is a folder, where a file is wanted", path.string()));
  const bool is_refused = error_number == EACCES || error_number == EPERM;
  throw IoError({.action = action,
                 .path = path.string(),
                 .error_number = error_number,
                 .advice = is_refused ? "make it readable"
                                      : advice_of_machine(error_number, "look at the drive and its file system")});
}

std::string read_all(int file, const std::filesystem::path& path) {
  std::string text;
  std::array<char, 65536> part;
  for (;;) {
    const ssize_t moved = retried([&] { return read(file, part.data(), part.size()); });
    if (moved < 0) fail("read", path, errno);
    if (moved == 0) return text;
    text.append(part.data(), static_cast<size_t>(moved));
  }
}

}  // namespace

std::optional<std::string> read_file(const std::filesystem::path& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0 && (errno == ENOENT || errno == ENOTDIR)) return std::nullopt;
  if (file < 0) fail("open", path, errno);
  try {
    std::string text = read_all(file, path);
    close(file);
    return text;
  } catch (...) {
    close(file);
    throw;
  }
}

std::optional<std::string> read_text(const std::filesystem::path& path) {
  std::optional<std::string> text = read_file(path);
  if (!text) return std::nullopt;
  const size_t zero = text->find('\0');
  if (zero == std::string::npos) return text;
  throw ConfigError(fmt::format("{}: byte {} is 0, so it is no text", path.string(), zero));
}

}  // namespace sluice
