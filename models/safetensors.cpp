#include "models/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "core/errors.h"
#include "core/half.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;
constexpr int64_t kMaxHeaderBytes = 100'000'000;
constexpr int64_t kReadElements = 1 << 16;

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw ConfigError(fmt::format("{}: not a whole safetensors file: {}", path, what));
}

int64_t element_bytes(std::string_view dtype) {
  constexpr std::pair<std::string_view, int64_t> kSizes[] = {
      {"F64", 8},  {"I64", 8}, {"U64", 8}, {"F32", 4}, {"I32", 4}, {"U32", 4}, {"F16", 2},
      {"BF16", 2}, {"I16", 2}, {"U16", 2}, {"I8", 1},  {"U8", 1},  {"BOOL", 1}};
  for (const auto& [name, bytes] : kSizes) {
    if (name == dtype) return bytes;
  }
  return 0;
}

std::optional<DType> readable(std::string_view dtype) {
  for (const DType type : {DType::kBf16, DType::kFp16, DType::kFp32}) {
    if (safetensors_dtype_name(type) == dtype) return type;
  }
  return std::nullopt;
}

// Opening what is no file waits for a writer, or forever.
InputFile open_file(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    throw ConfigError(fmt::format("{} cannot be opened: there is no such file", path));
  }
  if (!error && status.type() != std::filesystem::file_type::regular) refuse(path, "it is no regular file");
  return InputFile(path, {.path = path,
                          .advice = "make it readable, and look at the drive's health (dmesg)",
                          .advice_when_shorter = "bring back the whole file, then start again"});
}

// Of a file, behind its header.
struct DataBytes {
  int64_t begin = 0, bytes = 0;
};

// Json's own conversion cuts 72.7 to 72.
std::vector<int64_t> whole_numbers(const Json& list) {
  for (const Json& value : list) {
    if (!value.is_number_integer()) throw Json::type_error::create(302, value.dump() + " is no whole number", &value);
  }
  return list.get<std::vector<int64_t>>();
}

// One behind the other, from the first byte to the last: else two would share bytes, or some would be nobody's.
void check_places(const std::string& path, std::vector<SafetensorsEntry> entries, const DataBytes& data) {
  std::ranges::stable_sort(entries, {}, [](const auto& entry) { return std::pair(entry.begin, entry.bytes); });
  int64_t end = data.begin;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != end) {
      refuse(path, fmt::format("tensor {} begins at byte {} of the data, where the one before it ends at {}",
                               entry.name, entry.begin - data.begin, end - data.begin));
    }
    end += entry.bytes;
  }
  if (end == data.begin + data.bytes) return;
  refuse(path, fmt::format("its tensors have {} bytes, behind the header are {}", end - data.begin, data.bytes));
}

SafetensorsEntry parse_entry(const std::string& path, const std::string& name, const Json& value,
                             const DataBytes& data) {
  SafetensorsEntry entry{.name = name, .dtype_name = {}, .dtype = {}, .shape = {}};
  std::array<int64_t, 2> range{};
  try {
    entry.dtype_name = value.at("dtype").get<std::string>();
    entry.shape = whole_numbers(value.at("shape"));
    const std::vector<int64_t> offsets = whole_numbers(value.at("data_offsets"));
    if (offsets.size() != 2)
      refuse(path, fmt::format("tensor {}: data_offsets is {}", name, value["data_offsets"].dump()));
    std::ranges::copy(offsets, range.begin());
  } catch (const Json::exception& error) {
    refuse(path, fmt::format("tensor {}: {}", name, error.what()));
  }
  if (range[0] < 0 || range[1] < range[0] || range[1] > data.bytes) {
    refuse(path, fmt::format("tensor {} lies at bytes {} to {} of {}", name, range[0], range[1], data.bytes));
  }
  entry.dtype = readable(entry.dtype_name);
  entry.begin = data.begin + range[0];
  entry.bytes = range[1] - range[0];
  const int64_t element = element_bytes(entry.dtype_name);
  int64_t left = element == 0 ? 0 : entry.bytes / element;
  int64_t elements = 1;
  for (const int64_t size : entry.shape) {
    if (size < 0 || (size > 0 && elements > left / size)) elements = -1;
    if (elements < 0) break;
    elements *= size;
  }
  if (element != 0 && (elements < 0 || elements * element != entry.bytes)) {
    refuse(path, fmt::format("tensor {} of shape [{}] and type {} has {} bytes", name, fmt::join(entry.shape, ", "),
                             entry.dtype_name, entry.bytes));
  }
  return entry;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path), file_(open_file(path)) {
  const int64_t file_bytes = file_.bytes();
  if (file_bytes < 8) refuse(path, fmt::format("it has {} bytes", file_bytes));
  static_assert(std::endian::native == std::endian::little);
  uint64_t header_bytes = 0;
  file_.read_whole(0, std::as_writable_bytes(std::span(&header_bytes, 1)));
  if (header_bytes > kMaxHeaderBytes || static_cast<int64_t>(header_bytes) > file_bytes - 8) {
    refuse(path, fmt::format("its header would have {} bytes, the file has {}", header_bytes, file_bytes));
  }
  std::string text(header_bytes, '\0');
  file_.read_whole(8, std::as_writable_bytes(std::span(text)));
  // A byte 0 is the end to the parser.
  const bool is_text = text.find('\0') == std::string::npos;
  const Json header = is_text ? Json::parse(text, nullptr, false) : Json();
  if (!header.is_object()) refuse(path, "its header is no JSON object");
  const int64_t data_begin = 8 + static_cast<int64_t>(header_bytes);
  const DataBytes data{data_begin, file_bytes - data_begin};
  for (const auto& [name, value] : header.items()) {
    if (name != "__metadata__") entries_.push_back(parse_entry(path, name, value, data));
  }
  check_places(path, entries_, data);
  std::sort(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto entry =
      std::lower_bound(entries_.begin(), entries_.end(), name,
                       [](const SafetensorsEntry& e, std::string_view wanted) { return e.name < wanted; });
  return entry != entries_.end() && entry->name == name ? &*entry : nullptr;
}

void SafetensorsFile::read(const SafetensorsEntry& entry, int64_t first, std::span<float> into) const {
  SLUICE_CHECK(entry.dtype.has_value(), "a tensor whose type cannot be read");
  const int64_t bytes = bytes_of(*entry.dtype);
  SLUICE_CHECK(first >= 0 && (first + static_cast<int64_t>(into.size())) * bytes <= entry.bytes,
               "elements outside a tensor");
  if (*entry.dtype == DType::kFp32) {
    file_.read_whole(entry.begin + first * bytes, std::as_writable_bytes(into));
    return;
  }
  std::vector<uint16_t> halves(
      static_cast<size_t>(std::min<int64_t>(kReadElements, static_cast<int64_t>(into.size()))));
  for (size_t done = 0; done < into.size();) {
    const std::span<uint16_t> piece = std::span(halves).first(std::min(halves.size(), into.size() - done));
    file_.read_whole(entry.begin + (first + static_cast<int64_t>(done)) * bytes, std::as_writable_bytes(piece));
    const auto convert = *entry.dtype == DType::kBf16 ? float_of_bf16 : float_of_fp16;
    std::transform(piece.begin(), piece.end(), into.begin() + static_cast<std::ptrdiff_t>(done), convert);
    done += piece.size();
  }
}

std::string_view safetensors_dtype_name(DType dtype) {
  return dtype == DType::kBf16 ? "BF16" : dtype == DType::kFp16 ? "F16" : "F32";
}

std::string safetensors_header(std::span<const SafetensorsEntry> entries) {
  Json header = {{"__metadata__", {{"format", "pt"}}}};
  int64_t offset = 0;
  for (const SafetensorsEntry& entry : entries) {
    SLUICE_CHECK(entry.dtype.has_value(), "a tensor without a type");
    int64_t bytes = bytes_of(*entry.dtype);
    for (const int64_t size : entry.shape) bytes *= size;
    header[entry.name] = {{"dtype", safetensors_dtype_name(*entry.dtype)},
                          {"shape", entry.shape},
                          {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text;
}

}  // namespace sluice
