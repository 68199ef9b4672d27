#include "data/id_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <regex>
#include <string>
#include <vector>

#include "core/checksum.h"
#include "core/errors.h"
#include "data/options.h"

namespace sluice {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNumpyMagic = "\x93NUMPY";
constexpr int64_t kIdsOfBlock = int64_t{1} << 16;
constexpr int64_t kMostHeaderBytes = int64_t{1} << 16;
constexpr const char* kWriteIt = "write one with numpy.save(FILE, numpy.array(ids, dtype=numpy.uint32))";

[[noreturn]] void refuse(const fs::path& path, const std::string& what) {
  throw ConfigError(fmt::format("data.path: {} {}: {}", path.string(), what, kWriteIt));
}

InputFile open_file(const fs::path& path) {
  if (path.empty()) refuse_no_path(TokenizerKind::kIds);
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (status.type() == fs::file_type::not_found) refuse(path, "is not there");
  if (!fs::is_regular_file(status)) refuse(path, "is no file of token ids");
  return InputFile(path, {.path = path,
                          .advice = "see that the file can be read",
                          .advice_when_shorter = "the file became shorter as it was read"});
}

}  // namespace

bool begins_as_numpy(std::string_view content) { return content.starts_with(kNumpyMagic); }

IdFile::IdFile(const fs::path& path, int64_t vocabulary)
    : path_(path), vocabulary_(vocabulary), file_(open_file(path)), array_(read_header()) {}

void IdFile::check_is_there(const fs::path& path) { IdFile(path, std::numeric_limits<int32_t>::max()); }

IdFile::Array IdFile::read_header() const {
  char start[12] = {};
  const size_t got = file_.read(0, std::as_writable_bytes(std::span(start)));
  if (got < sizeof start || !begins_as_numpy({start, got})) refuse(path_, "is no NumPy file");
  const bool is_first_version = start[6] == 1;
  uint32_t header_bytes = 0;
  std::memcpy(&header_bytes, start + 8, is_first_version ? 2 : 4);
  const int64_t header_at = is_first_version ? 10 : 12;
  if (header_bytes > kMostHeaderBytes) refuse(path_, "has a damaged header");
  std::string header(header_bytes, ' ');
  header.resize(file_.read(header_at, std::as_writable_bytes(std::span(header))));

  static const std::regex kType(R"('descr': *'([<|])([iu])([1248])')"), kShape(R"('shape': *\((\d{1,18}),? *\))");
  std::smatch type, shape;
  if (!std::regex_search(header, type, kType)) refuse(path_, "holds no little-endian integers");
  if (!std::regex_search(header, shape, kShape)) refuse(path_, "holds no array of one dimension");
  const Array array{.first_byte = header_at + static_cast<int64_t>(header_bytes),
                    .count = std::stoll(shape[1].str()),
                    .width = std::stoll(type[3].str()),
                    .sign = type[2].str() == "i" ? Array::Sign::kSigned : Array::Sign::kUnsigned};
  if (array.count == 0) refuse(path_, "holds no ids");
  if (array.count > (file_.bytes() - array.first_byte) / array.width) {
    refuse(path_, fmt::format("has been cut short: its header says {} ids", array.count));
  }
  return array;
}

int32_t IdFile::id_of(std::span<const std::byte> bytes, int64_t place) const {
  uint64_t id = 0;
  std::memcpy(&id, bytes.data(), bytes.size());
  const int unused_bits = 64 - 8 * static_cast<int>(bytes.size());
  const int64_t as_signed = static_cast<int64_t>(id << unused_bits) >> unused_bits;
  const bool is_negative = array_.sign == Array::Sign::kSigned && as_signed < 0;
  if (!is_negative && id < static_cast<uint64_t>(vocabulary_)) return static_cast<int32_t>(id);
  const std::string shown = is_negative ? std::to_string(as_signed) : std::to_string(id);
  throw ConfigError(
      fmt::format("data.path: {}: the id {} in place {} is none of 0 to {}: data.vocab_size (where it is not given "
                  "model.vocab_size) is how many ids the tokenizer has",
                  path_.string(), shown, place, vocabulary_ - 1));
}

uint32_t IdFile::each_block(const Take& take, const Progress& progress) const {
  const auto width = static_cast<size_t>(array_.width);
  std::vector<std::byte> bytes(static_cast<size_t>(kIdsOfBlock) * width);
  std::vector<int32_t> ids;
  uint32_t crc = 0;
  for (int64_t first = 0; first < array_.count; first += kIdsOfBlock) {
    const auto count = static_cast<size_t>(std::min(kIdsOfBlock, array_.count - first));
    const auto block = std::span(bytes).first(count * width);
    file_.read_whole(array_.first_byte + first * array_.width, block);
    ids.clear();
    for (size_t i = 0; i < count; ++i) {
      ids.push_back(id_of(block.subspan(i * width, width), first + static_cast<int64_t>(i)));
    }
    crc = crc32c(crc, std::as_bytes(std::span(ids)));
    take(ids);
    if (progress) progress((first + static_cast<int64_t>(count)) * array_.width, this->bytes());
  }
  return crc;
}

IdFile IdFile::open(const fs::path& path, int64_t vocabulary, const Progress& progress) {
  IdFile file(path, vocabulary);
  file.fingerprint_ = file.each_block([](std::span<const int32_t>) {}, progress);
  return file;
}

void IdFile::read(const Take& take, const Progress& progress) const {
  if (each_block(take, progress) == fingerprint_) return;
  throw CorruptionError(fmt::format("{}: the ids changed as they were read: begin again", path_.string()));
}

}  // namespace sluice
