// The project's own files, and what a check of the house finds in them. Pure functions.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::house {

struct SourceFile {
  std::string path;  // from the root, with '/': "core/arena.cpp"
  std::string text;
};
using SourceTree = std::vector<SourceFile>;

struct Finding {
  std::string path;
  int line = 0;  // counted from 1; 0: the file as a whole
  std::string message;
};

// Every file of ours (C++, CUDA, CMake, Python, the scripts) under `root`, in order of path. Builds, virtual
// environments, runs and hidden folders are left out.
SourceTree read_tree(const std::filesystem::path& root);

// "core" of "core/arena.cpp"; empty for a file at the root.
std::string folder_of(std::string_view path);
bool is_cpp(std::string_view path);  // or CUDA
bool ends_with_one_of(std::string_view path, std::initializer_list<std::string_view> endings);
std::vector<std::string> lines_of(std::string_view text);

// "core/arena.cpp:12: message" a line; for messages of tests.
std::string report(const std::vector<Finding>& findings);

}  // namespace sluice::house
