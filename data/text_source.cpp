#include "data/text_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <span>

#include "core/checksum.h"
#include "core/errors.h"
#include "core/input_file.h"
#include "data/id_file.h"
#include "data/utf8.h"

namespace sluice {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kBlockBytes = int64_t{1} << 20;

constexpr const char* kAdvice = "make it readable, or move it out of the text";

InputFile open_text(const fs::path& path) {
  return InputFile(path, {.path = path, .advice = kAdvice, .advice_when_shorter = {}});
}

// Appends up to `bytes` from `offset`; fewer only at the file's end.
void append(const InputFile& file, int64_t offset, int64_t bytes, std::string& into) {
  const size_t start = into.size();
  into.resize(start + static_cast<size_t>(bytes));
  into.resize(start + file.read(offset, std::as_writable_bytes(std::span(into).subspan(start))));
}

struct Scan {
  int64_t bytes = 0;
  uint32_t crc = 0;
  std::optional<int64_t> bad_offset;  // of the first byte that is no text
};

// Reads the whole file; stops at the first byte that is no text. `read` is told of bytes as they come.
Scan scan(const fs::path& path, const std::function<void(int64_t)>& read) {
  const InputFile file = open_text(path);
  Scan result;
  std::string block;  // begins with what the last block left of a character
  int64_t offset = 0;
  for (;;) {
    const size_t carried = block.size();
    append(file, offset, kBlockBytes, block);
    const size_t fresh = block.size() - carried;
    offset += static_cast<int64_t>(fresh);
    read(static_cast<int64_t>(fresh));
    result.crc = crc32c(result.crc, std::string_view(block).substr(carried));
    const size_t valid = std::min(utf8_valid_prefix(block), block.find('\0'));
    result.bytes += static_cast<int64_t>(valid);
    const size_t rest = block.size() - valid;
    // Fewer than four bytes may be the beginning of a character that the next block ends.
    if (rest >= 4 || (rest > 0 && (fresh == 0 || block[valid] == '\0'))) {
      result.bad_offset = result.bytes;
      return result;
    }
    if (fresh == 0) return result;
    block.erase(0, valid);
  }
}

[[noreturn]] void refuse_file(const fs::path& path, int64_t bad_offset) {
  std::string start;
  append(open_text(path), 0, 16, start);
  if (begins_as_numpy(start)) {
    throw ConfigError(
        fmt::format("data.path: {} is no text but a NumPy file: where it is an array of token ids, set data.tokenizer "
                    "to \"ids\"",
                    path.string()));
  }
  throw ConfigError(fmt::format("data.path: {} is not UTF-8 text: invalid at byte {}", path.string(), bad_offset));
}

bool is_installed_folder(const std::string& name) {
  return name == "__pycache__" || name == "site-packages" || name == "dist-packages";
}

// Relative paths of the regular files below `folder` that may be text, in no order.
std::vector<fs::path> walk(const fs::path& folder, SkippedFiles& skipped) {
  std::vector<fs::path> found;
  for (auto entry = fs::recursive_directory_iterator(folder); entry != fs::recursive_directory_iterator(); ++entry) {
    const std::string name = entry->path().filename().string();
    const bool folder_here = entry->is_directory() && !entry->is_symlink();
    int64_t* left_out = entry->is_symlink()                         ? &skipped.links
                        : name.front() == '.'                       ? &skipped.hidden
                        : folder_here && is_installed_folder(name)  ? &skipped.installed
                        : !folder_here && !entry->is_regular_file() ? &skipped.not_text
                                                                    : nullptr;
    if (left_out) {
      ++*left_out;
      if (folder_here) entry.disable_recursion_pending();
    } else if (!folder_here) {
      found.push_back(entry->path().lexically_relative(folder));
    }
  }
  return found;
}

std::vector<fs::path> walk_or_throw(const fs::path& folder, SkippedFiles& skipped) {
  try {
    return walk(folder, skipped);
  } catch (const fs::filesystem_error& error) {
    const fs::path& named = error.path1().empty() ? folder : error.path1();
    throw IoError(
        {.action = "read folder", .path = named.string(), .error_number = error.code().value(), .advice = kAdvice});
  }
}

}  // namespace

std::string SkippedFiles::describe() const {
  std::vector<std::string> parts;
  const auto add = [&](int64_t count, const char* what) {
    if (count > 0) parts.push_back(fmt::format("{} {}", count, what));
  };
  add(hidden, "hidden");
  add(installed, "folders of installed or compiled files");
  add(links, "symbolic links");
  add(empty, "empty");
  add(not_text, "not UTF-8 text");
  return fmt::format("{}", fmt::join(parts, ", "));
}

void TextSource::check_is_there(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    throw ConfigError(fmt::format("data.path: {} is not there: name a file or a folder of UTF-8 text", path.string()));
  }
  if (fs::is_directory(status) || fs::is_regular_file(status)) return;
  throw ConfigError(
      fmt::format("data.path: {} is no file and no folder: name one of UTF-8 text; what comes from a pipe must be "
                  "written to a file first",
                  path.string()));
}

TextSource TextSource::open(const fs::path& path, const Progress& progress) {
  check_is_there(path);
  TextSource source;
  source.path_ = path;
  std::error_code error;
  const bool whole_folder = fs::is_directory(path, error);
  std::vector<fs::path> names = whole_folder ? walk_or_throw(path, source.skipped_) : std::vector{fs::path()};
  std::sort(names.begin(), names.end(), [](const auto& a, const auto& b) { return a.native() < b.native(); });
  const auto file_of = [&](const fs::path& name) { return whole_folder ? path / name : path; };
  int64_t done_bytes = 0, total_bytes = 0;
  for (const fs::path& name : names) {
    const auto bytes = fs::file_size(file_of(name), error);
    if (!error) total_bytes += static_cast<int64_t>(bytes);
  }
  const auto tell = [&](int64_t bytes) {
    done_bytes += bytes;
    if (progress) progress(std::min(done_bytes, total_bytes), total_bytes);
  };
  for (const fs::path& name : names) {
    const fs::path file = file_of(name);
    const Scan found = scan(file, tell);
    if (found.bad_offset && !whole_folder) refuse_file(file, *found.bad_offset);
    if (found.bad_offset || found.bytes == 0) {
      ++(found.bad_offset ? source.skipped_.not_text : source.skipped_.empty);
      continue;
    }
    source.files_.push_back({file, found.bytes, found.crc});
    source.bytes_ += found.bytes;
    source.fingerprint_ =
        crc32c(source.fingerprint_, fmt::format("{}\n{} {:08x}\n", name.string(), found.bytes, found.crc));
  }
  if (source.files_.empty()) {
    const std::string skipped = source.skipped_.total() > 0 ? " (" + source.skipped_.describe() + ")" : "";
    throw ConfigError(
        fmt::format("data.path: {} holds no text{}: name a file or a folder of UTF-8 text", path.string(), skipped));
  }
  return source;
}

void TextSource::read(const TextFile& file, const std::function<void(std::string_view)>& take) const {
  const InputFile input = open_text(file.path);
  std::string buffer;
  int64_t offset = 0;
  uint32_t crc = 0;
  while (offset < file.bytes || !buffer.empty()) {
    const int64_t wanted = std::min(kMaxPieceBytes - static_cast<int64_t>(buffer.size()), file.bytes - offset);
    const size_t before = buffer.size();
    append(input, offset, wanted, buffer);
    if (static_cast<int64_t>(buffer.size() - before) != wanted) {
      throw CorruptionError(fmt::format("{} became shorter while it was read ({} bytes before): start again",
                                        file.path.string(), file.bytes));
    }
    offset += wanted;
    crc = crc32c(crc, std::string_view(buffer).substr(before));
    size_t cut = buffer.size();
    if (offset < file.bytes) {
      const size_t newline = buffer.rfind('\n');
      // The last four bytes may hold a character that is cut off; without a newline the cut comes before them.
      cut = newline != std::string::npos ? newline + 1 : utf8_cut(buffer, buffer.size() - 4);
    }
    take(std::string_view(buffer).substr(0, cut));
    buffer.erase(0, cut);
  }
  if (crc == file.crc) return;
  throw CorruptionError(fmt::format("{} changed while it was read: start again", file.path.string()));
}

std::string TextSource::read_range(const TextFile& file, int64_t offset, int64_t bytes) const {
  const InputFile input = open_text(file.path);
  std::string text;
  append(input, offset, bytes, text);
  size_t first = 0;
  while (first < text.size() && (static_cast<uint8_t>(text[first]) & 0xC0) == 0x80) ++first;
  text.erase(0, first);
  text.resize(utf8_valid_prefix(text));
  return text;
}

}  // namespace sluice
