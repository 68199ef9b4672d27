// What an action that must fail says, and what is in a file.
#pragma once
#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

namespace sluice {

// Runs `act`, which may throw Error, and gives its message; else these words.
template <class Error, class Act>
std::string message_or(std::string otherwise, const Act& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return otherwise;
}

// Runs `act`, which must throw Error, and gives its message.
template <class Error, class Act>
std::string message_of(const Act& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing of the expected type was thrown";
  return "";
}

inline std::string read_whole(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::vector<std::byte> read_bytes(const std::filesystem::path& path) {
  const std::string text = read_whole(path);
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

}  // namespace sluice
