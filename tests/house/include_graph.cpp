#include "tests/house/include_graph.h"

#include <algorithm>
#include <map>
#include <regex>
#include <set>

namespace sluice::house {
namespace {

using Folders = std::set<std::string>;

// The edges of the house, each written once.
const std::map<std::string, Folders>& edges() {
  static const std::map<std::string, Folders> kEdges = {
      {"core", {}},
      {"swap", {"core"}},
      {"offload", {"swap"}},
      {"cpu_adam", {"core"}},
      {"engine", {"offload", "cpu_adam"}},
      {"libtorch", {"engine"}},
      {"models", {"libtorch"}},
      {"data", {"core"}},
      {"configs", {"engine", "data"}},
      {"bench", {"engine"}},
      {"app", {"models", "data", "configs", "bench"}},
  };
  return kEdges;
}

// The folder itself and all below it.
Folders reach_of(const std::string& folder) {
  Folders reach = {folder};
  const auto found = edges().find(folder);
  if (found == edges().end()) return reach;
  for (const std::string& below : found->second) reach.merge(reach_of(below));
  return reach;
}

// A third-party library: how its headers start, and the files (regular expression) that may include them.
struct Library {
  std::string_view headers;
  std::string_view place;
};
constexpr Library kLibraries[] = {
    {"liburing", R"(swap/io_queue_uring\.cpp)"},
    {"hwloc", R"(core/topology_hwloc\.cpp)"},
    {"isa-l", R"(core/checksum\.cpp)"},
    {"tbb/", R"(cpu_adam/update_team_tbb\.cpp)"},
    {"oneapi/", R"(cpu_adam/update_team_tbb\.cpp)"},
    {"lpsolve/", R"(engine/home_program\.cpp)"},
    {"hwy/",
     R"((tests/)?(cpu_adam|offload)/\w*(_simd|gradient_kernels)\w*\.cpp|core/half_lanes\.inl|bench/streams\.cpp)"},
    {"cuda", R"(offload/(device_cuda\.cpp|\w+\.cu))"},
    {"sentencepiece_", R"(data/\w*sentencepiece\w*\.cpp)"},
    {"torch/", R"((tests/)?(libtorch|models)/\w+\.(h|cpp)|bench/\w+\.cpp)"},
    {"ATen/", R"((tests/)?(libtorch|models)/\w+\.(h|cpp)|bench/\w+\.cpp)"},
    {"c10/", R"((tests/)?(libtorch|models)/\w+\.(h|cpp)|bench/\w+\.cpp)"},
    {"nlohmann/",
     R"((configs|models|app)/\w+\.cpp|configs/config_reader\.h|tests/(configs|models|app|engine)/\w+\.(h|cpp)|bench/\w+\.cpp)"},
    {"spdlog/", R"(app/\w+\.cpp)"},
    {"CLI/", R"(app/\w+\.cpp)"},
    {"fmt/", R"([\w/]+\.cpp|bench/\w+\.h)"},
    {"gtest/", R"(tests/[\w/]+\.(h|cpp))"},
    {"gmock/", R"(tests/[\w/]+\.(h|cpp))"},
};

// C++'s own headers have neither folder nor extension; the system's are these. <cassert> is nobody's: checks stay on.
bool is_systems(const std::string& header) {
  static const std::set<std::string> kSystem = {
      "dirent.h", "dlfcn.h",  "errno.h",   "fcntl.h", "fenv.h",    "fnmatch.h", "immintrin.h",
      "malloc.h", "poll.h",   "pthread.h", "sched.h", "signal.h",  "spawn.h",   "stdint.h",
      "stdio.h",  "stdlib.h", "string.h",  "time.h",  "termios.h", "unistd.h",  "sys/types.h"};
  if (header == "cassert" || header == "assert.h") return false;
  return header.find_first_of("/.") == std::string::npos || header.starts_with("sys/") ||
         header.starts_with("linux/") || kSystem.contains(header);
}

std::string fault_of_third_party(const std::string& path, const std::string& header) {
  for (const Library& library : kLibraries) {
    if (!header.starts_with(library.headers)) continue;
    if (std::regex_match(path, std::regex(std::string(library.place)))) return "";
    return "includes <" + header + ">, whose place is " + std::string(library.place);
  }
  return is_systems(header) ? "" : "includes <" + header + ">, which has no place in the house";
}

// What files under `path` may include of ours. Tests mirror the tree; fakes and contracts know all but LibTorch.
Folders allowed_for(const std::string& path) {
  const std::string folder = folder_of(path);
  if (folder == "docs") return reach_of("engine");  // examples of what others embed
  if (folder != "tests") return edges().contains(folder) ? reach_of(folder) : Folders{};
  const std::string mirrored = folder_of(path.substr(folder.size() + 1));
  Folders allowed = edges().contains(mirrored) ? reach_of(mirrored) : reach_of("engine");
  allowed.insert("tests");
  return allowed;
}

std::string fault_of_ours(const std::string& path, const std::string& header, const std::set<std::string>& files) {
  if (!files.contains(header)) return "includes \"" + header + "\", which is no file of the tree (write folder/file.h)";
  if (!ends_with_one_of(header, {".h", ".inl"}) && header != path)
    return "includes \"" + header + "\", which is no header";
  if (allowed_for(path).contains(folder_of(header))) return "";
  return "includes \"" + header + "\", which is not below it in the house";
}

// Words of every call of `command` in a CMake file, comments left out.
std::vector<std::vector<std::string>> calls_of(const std::string& text, const std::string& command) {
  const std::string code = std::regex_replace(text, std::regex("#[^\n]*"), "");
  const std::regex call("\\b" + command + R"(\s*\(([^)]*)\))"), word(R"([^\s"]+)");
  std::vector<std::vector<std::string>> calls;
  for (std::sregex_iterator at(code.begin(), code.end(), call), end; at != end; ++at) {
    const std::string arguments = (*at)[1];
    std::vector<std::string> words;
    for (std::sregex_iterator w(arguments.begin(), arguments.end(), word); w != end; ++w) words.push_back(w->str());
    calls.push_back(words);
  }
  return calls;
}

// Folders that a folder's CMakeLists.txt links to: LINK of sluice_library, and sluice_<folder> wherever it is linked.
Folders linked_by(const SourceFile& file) {
  Folders linked;
  const auto take_target = [&](const std::string& word) {
    if (word.starts_with("sluice_") && edges().contains(word.substr(7))) linked.insert(word.substr(7));
  };
  for (const auto& words : calls_of(file.text, "sluice_library")) {
    auto at = std::find(words.begin(), words.end(), "LINK");
    for (; at != words.end() && *at != "PRIVATE" && *at != "SOURCES"; ++at) {
      if (*at != "LINK") linked.insert(*at);
    }
    std::for_each(words.begin(), words.end(), take_target);
  }
  for (const auto& words : calls_of(file.text, "target_link_libraries")) {
    std::for_each(words.begin(), words.end(), take_target);
  }
  linked.erase(folder_of(file.path));
  return linked;
}

}  // namespace

std::vector<Finding> check_includes(const SourceTree& tree) {
  std::set<std::string> files;
  for (const SourceFile& file : tree) files.insert(file.path);
  const std::regex include(R"re(\s*#\s*include\s*([<"])([^>"]+)[>"].*)re");
  std::vector<Finding> findings;
  for (const SourceFile& file : tree) {
    if (!is_cpp(file.path)) continue;
    const std::vector<std::string> lines = lines_of(file.text);
    for (size_t i = 0; i < lines.size(); ++i) {
      std::smatch match;
      if (!std::regex_match(lines[i], match, include)) continue;
      const std::string fault =
          match[1] == "<" ? fault_of_third_party(file.path, match[2]) : fault_of_ours(file.path, match[2], files);
      if (!fault.empty()) findings.push_back({file.path, static_cast<int>(i) + 1, fault});
    }
  }
  return findings;
}

std::vector<Finding> check_links(const SourceTree& tree) {
  std::vector<Finding> findings;
  for (const SourceFile& file : tree) {
    const std::string folder = folder_of(file.path);
    if (!edges().contains(folder) || file.path != folder + "/CMakeLists.txt") continue;
    const Folders linked = linked_by(file);
    const Folders& wanted = edges().at(folder);
    for (const std::string& other : linked) {
      if (!wanted.contains(other))
        findings.push_back({file.path, 0, "links " + other + ", which is no edge of the house"});
    }
    for (const std::string& other : wanted) {
      if (!linked.contains(other)) findings.push_back({file.path, 0, "does not link " + other});
    }
  }
  return findings;
}

}  // namespace sluice::house
