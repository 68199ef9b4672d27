#include "tests/house/source_tree.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace sluice::house {
namespace {

bool is_ours(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  return name == "CMakeLists.txt" || name == "run" || is_cpp(name) || ends_with_one_of(name, {".py", ".cmake"});
}

bool is_foreign(const std::filesystem::path& folder) {
  const std::string name = folder.filename().string();
  if (name == "build" || name == "runs" || name == "__pycache__") return true;
  if (std::filesystem::exists(folder / "pyvenv.cfg")) return true;
  return name.size() > 1 && name[0] == '.' && name != ".ci";
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return text.str();
}

}  // namespace

SourceTree read_tree(const std::filesystem::path& root) {
  SourceTree tree;
  for (auto at = std::filesystem::recursive_directory_iterator(root); at != decltype(at)(); ++at) {
    if (at->is_directory() && is_foreign(at->path())) {
      at.disable_recursion_pending();
    } else if (at->is_regular_file() && is_ours(at->path())) {
      tree.push_back({at->path().lexically_relative(root).generic_string(), text_of(at->path())});
    }
  }
  std::sort(tree.begin(), tree.end(), [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return tree;
}

std::string folder_of(std::string_view path) {
  const size_t slash = path.find('/');
  return slash == std::string_view::npos ? "" : std::string(path.substr(0, slash));
}

bool is_cpp(std::string_view path) { return ends_with_one_of(path, {".h", ".cpp", ".inl", ".cu", ".cuh"}); }

bool ends_with_one_of(std::string_view path, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view ending) { return path.ends_with(ending); });
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  std::istringstream stream{std::string(text)};
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string report(const std::vector<Finding>& findings) {
  std::ostringstream text;
  for (const Finding& finding : findings) {
    text << finding.path;
    if (finding.line > 0) text << ':' << finding.line;
    text << ": " << finding.message << '\n';
  }
  return text.str();
}

}  // namespace sluice::house
