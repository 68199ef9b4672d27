#include "app/scratch_words.h"

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "bench/scratch_folder.h"
#include "swap/advice.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// The scratch folder that has this file; empty: none has.
fs::path scratch_folder_of(const fs::path& file) {
  constexpr size_t kLetters = 6;  // mkdtemp's
  const size_t length = std::string_view(kScratchPrefix).size() + kLetters;
  for (fs::path at = file.parent_path(); at.has_relative_path(); at = at.parent_path()) {
    const std::string name = at.filename().string();
    if (name.size() == length && name.starts_with(kScratchPrefix)) return at;
  }
  return {};
}

void replace_all(std::string& text, std::string_view what, std::string_view with) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size())) {
    text.replace(at, what.size(), with);
  }
}

}  // namespace

void rethrow_in_scratch_words(const IoError& error, std::string_view option) {
  IoError::Details details = error.details();
  const fs::path scratch = scratch_folder_of(details.path);
  if (scratch.empty()) throw error;
  const std::string parent = scratch.parent_path().string();
  details.path = "a file of its own in " + parent;
  replace_all(details.advice, scratch.string(), parent);
  for (const char* options : {kNamesScratchFolders, kNamesFolders}) {
    replace_all(details.advice, options, fmt::format("({})", option));
  }
  for (const char* of_runs : {kGoOn, kStartOver}) replace_all(details.advice, of_runs, "try again");
  throw IoError(std::move(details));
}

}  // namespace sluice
