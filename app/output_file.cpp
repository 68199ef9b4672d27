#include "app/output_file.h"

#include <fmt/format.h>

#include <cctype>
#include <fstream>

#include "core/errors.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

bool begins_with(const fs::path& path, std::string_view text) {
  std::ifstream file(path, std::ios::binary);
  std::string begin;
  for (char c = 0; begin.size() < text.size() && file.get(c);) {
    if (!begin.empty() || !std::isspace(static_cast<unsigned char>(c))) begin += c;
  }
  return begin == text;
}

}  // namespace

fs::path output_file(const fs::path& path, const OutputKind& kind) {
  std::error_code error;
  fs::path target = fs::weakly_canonical(path, error);
  if (error) target = path;
  const fs::file_status there = fs::status(target, error);
  if (!fs::exists(there)) return target;
  if (fs::is_regular_file(there) && (fs::file_size(target, error) == 0 || begins_with(target, kind.begins_with)))
    return target;
  throw ConfigError(fmt::format("{}: what is there is not {}, and is not replaced: give another file with --out",
                                path.string(), kind.name));
}

}  // namespace sluice
