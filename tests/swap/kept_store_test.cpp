// Stores that earlier programs wrote (kept_stores/version_N.txt) open, and read to the bytes that were written: what a
// change of the format must not lose. A kept store is a text; one that is there is never written again
// (CONTRIBUTING.md).
//
//   length BYTES             of the file, zero where nothing below says otherwise
//   bytes OFFSET HEX         32 bytes of headers, superblocks, openings and tables
//   record OFFSET CHUNK GROUP STEP   a record's bytes as of a step: fill_content() of tests/fakes/test_store.h
//   crc32c HEX               of the whole file
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "core/checksum.h"
#include "tests/fakes/message_of.h"
#include "tests/swap/store_fixture.h"

namespace sluice {
namespace {

constexpr int64_t kLastStep = 6;
constexpr size_t kBytesOfLine = 32;

class KeptStores : public StoreOnADrive {
 protected:
  struct Kept {
    RecordId record;
    int64_t step = 0;
  };

  std::vector<std::byte> file_of(const std::string& text) const {
    std::vector<std::byte> bytes;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string what;
      words >> what;
      if (what == "length") bytes.resize(number(words));
      if (what == "bytes") put_hex(words, bytes);
      if (what == "record") put_record(words, bytes);
      if (what == "crc32c") {
        EXPECT_EQ(crc_line(bytes), line) << "not the bytes that were kept";
      }
    }
    return bytes;
  }

  // What a store of today holds after these steps, in the same words.
  std::string text_of_today() {
    make_steps(kLastStep);
    const std::string file_text = read_whole(file());
    std::vector<std::byte> bytes(file_text.size());
    std::transform(file_text.begin(), file_text.end(), bytes.begin(), [](char c) { return std::byte(c); });
    std::string text = fmt::format("length {}\n", bytes.size());
    const auto records_begin = static_cast<size_t>(layout().extents({0, Group::kWeights}, 0).span().front().offset);
    for (size_t at = 0; at < records_begin; at += kBytesOfLine) text += bytes_line(bytes, at);
    for (const RecordId record : run_.records()) {
      for (const int slot : {0, 1}) text += record_line(bytes, record, slot);
    }
    return text + crc_line(bytes) + "\n";
  }

 private:
  static size_t number(std::istream& words) {
    size_t value = 0;
    words >> value;
    return value;
  }
  static void put_hex(std::istream& words, std::vector<std::byte>& bytes) {
    const size_t at = number(words);
    std::string hex;
    words >> hex;
    for (size_t i = 0; i < hex.size() / 2; ++i) {
      bytes.at(at + i) = std::byte(std::stoul(hex.substr(2 * i, 2), nullptr, 16));
    }
  }
  void put_record(std::istream& words, std::vector<std::byte>& bytes) const {
    const size_t at = number(words);
    RecordId record{.chunk = static_cast<uint32_t>(number(words)), .group = Group::kWeights};
    std::string group;
    words >> group;
    if (group == "state") record.group = Group::kState;
    const std::vector<std::byte> content = content_of(record, static_cast<int64_t>(number(words)));
    ASSERT_LE(at + content.size(), bytes.size());
    std::ranges::copy(content, bytes.begin() + static_cast<int64_t>(at));
  }
  std::vector<std::byte> content_of(RecordId record, int64_t step) const {
    std::vector<std::byte> content(static_cast<size_t>(run_.layout(record).bytes));
    fill_content(run_, record, step, content);
    return content;
  }
  static std::string crc_line(std::span<const std::byte> bytes) {
    return fmt::format("crc32c {:08x}", crc32c(0, bytes));
  }
  static std::string bytes_line(std::span<const std::byte> bytes, size_t at) {
    const auto line = bytes.subspan(at, kBytesOfLine);
    if (std::ranges::all_of(line, [](std::byte byte) { return byte == std::byte{0}; })) return "";
    std::string text = fmt::format("bytes {} ", at);
    for (const std::byte byte : line) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
    return text + "\n";
  }
  std::string record_line(std::span<const std::byte> bytes, RecordId record, int slot) {
    const auto at = static_cast<size_t>(layout().extents(record, slot).span().front().offset);
    for (int64_t step = 0; step <= kLastStep; ++step) {
      const std::vector<std::byte> content = content_of(record, step);
      if (!std::ranges::equal(content, bytes.subspan(at, content.size()))) continue;
      return fmt::format("record {} {} {} {}\n", at, record.chunk, name_of(record.group), step);
    }
    ADD_FAILURE() << "a slot that holds no step's bytes";
    return "";
  }
};

TEST_F(KeptStores, of_every_version_open_at_their_last_step_and_train_on) {
  int versions = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SLUICE_KEPT_STORES)) {
    SCOPED_TRACE(entry.path());
    const std::vector<std::byte> bytes = file_of(read_whole(entry.path()));
    std::ofstream(file(), std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
    {
      auto store = open();
      expect_step(*store, run_, kLastStep);
      write_step(*store, run_, kLastStep + 1);
    }
    expect_step(*open(), run_, kLastStep + 1);
    ++versions;
  }
  EXPECT_GE(versions, 1);
}

// SLUICE_KEEP_STORE=FILE keeps it.
TEST_F(KeptStores, are_what_this_program_writes_but_for_the_stores_number_and_folder) {
  const std::string text = text_of_today();
  if (const char* const keep = std::getenv("SLUICE_KEEP_STORE")) std::ofstream(keep) << text;
  const std::string kept =
      read_whole(std::filesystem::path(SLUICE_KEPT_STORES) / fmt::format("version_{}.txt", kStoreVersion));
  const auto without_identity = [](const std::string& all) {
    std::istringstream lines(all);
    std::string rest;
    for (std::string line; std::getline(lines, line);) {
      size_t at = 0;
      const bool is_identity =
          std::sscanf(line.c_str(), "bytes %zu", &at) == 1 && std::ranges::any_of(kIdentityOffset, [at](int64_t copy) {
            return at / kStoreBlockBytes == static_cast<size_t>(copy) / kStoreBlockBytes;
          });
      if (!is_identity && !line.starts_with("crc32c")) rest += line + "\n";
    }
    return rest;
  };
  EXPECT_EQ(without_identity(text), without_identity(kept));
}

}  // namespace
}  // namespace sluice
