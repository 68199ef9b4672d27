// What tests of data share.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fakes/message_of.h"
#include "tests/fakes/temp_folder.h"

namespace sluice {

inline void flip_bit(const std::filesystem::path& file, size_t offset) {
  std::string content = read_whole(file);
  content.at(offset) ^= 1;
  std::ofstream(file, std::ios::binary) << content;
}

// An array as numpy.save() writes it; `type` as in "<u2".
template <class Id>
std::string numpy_file(const std::string& type, const std::vector<Id>& ids) {
  std::string header =
      "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + std::to_string(ids.size()) + ",), }";
  header.resize(117, ' ');
  header += '\n';
  const std::string start("\x93NUMPY\1\0\x76\0", 10);
  return start + header + std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(Id));
}

// Lines of made-up words with indentation: the same for the same argument.
inline std::string made_up_code(int lines) {
  static constexpr std::string_view kParts[] = {"ret", "value", "off", "set", "buf", "fer",  "key", "in",
                                                "un",  "size",  "at",  "er",  "map", "node", "is",  "to"};
  std::string text;
  uint32_t state = 12345;
  const auto draw = [&](uint32_t choices) {
    state = state * 1664525u + 1013904223u;
    return (state >> 16) % choices;
  };
  for (int line = 0; line < lines; ++line) {
    text.append(4 * draw(4), ' ');
    for (uint32_t words = 2 + draw(5); words > 0; --words) {
      for (uint32_t parts = 1 + draw(3); parts > 0; --parts) text += kParts[draw(1 + draw(16))];
      text += words > 1 ? " " : draw(11) == 0 ? ":\n\n" : "\n";
    }
  }
  return text;
}

}  // namespace sluice
