// Stores that earlier programs wrote (kept_stores/) open, and read to the bytes that were written: what a change of the
// format must not lose. Each is a run of TestRun's (bf16, no scratch) on one drive or two, to step 6, opened anew after
// step 3. A kept store is a text; one that is there is never written again (CONTRIBUTING.md).
//
//   drive NUMBER                              what follows is of its file
//   length BYTES                              zero where nothing below says otherwise
//   bytes OFFSET HEX                          32 bytes of headers, superblocks, openings and tables
//   part OFFSET CHUNK GROUP STEP FROM BYTES   of a record as of a step: fill_content() of tests/fakes/test_store.h
//   crc32c HEX                                of the whole file
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "core/checksum.h"
#include "swap/record_store.h"
#include "swap/store_format.h"
#include "tests/fakes/message_of.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;

constexpr int64_t kLastStep = 6;
constexpr size_t kBytesOfLine = 32;

std::string crc_line(std::span<const std::byte> bytes) { return fmt::format("crc32c {:08x}\n", crc32c(0, bytes)); }

std::string bytes_line(std::span<const std::byte> bytes, size_t at) {
  const auto line = bytes.subspan(at, kBytesOfLine);
  if (std::ranges::all_of(line, [](std::byte byte) { return byte == std::byte{0}; })) return "";
  std::string text = fmt::format("bytes {} ", at);
  for (const std::byte byte : line) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text + "\n";
}

// Kept stores are named by their version and the weights of their drives: "version_4_drives_2_1".
class KeptStores : public testing::TestWithParam<std::vector<uint32_t>> {
 protected:
  StoreOptions options() const {
    StoreOptions options{.folder = folder(0), .drive_weights = GetParam(), .queue = {.depth = 4}};
    for (size_t drive = 1; drive < GetParam().size(); ++drive) options.more_folders.push_back(folder(drive));
    return options;
  }
  std::unique_ptr<RecordStore> open() const { return RecordStore::open(run_.geometry, run_.identity, options()); }
  fs::path folder(size_t drive) const { return folder_.path() / fmt::format("drive{}", drive); }
  fs::path file(size_t drive) const { return folder(drive) / "sluice-0.swap"; }
  std::string drives() const { return fmt::format("_drives_{}.txt", fmt::join(GetParam(), "_")); }

  void make_today() const {
    {
      const auto store = RecordStore::create(run_.geometry, run_.identity, options());
      for (int64_t step = 0; step <= 3; ++step) write_step(*store, run_, step);
    }
    const auto store = open();
    for (int64_t step = 4; step <= kLastStep; ++step) write_step(*store, run_, step);
  }

  // What lies in the files, in the words above.
  std::string text_of_files() const {
    std::string text;
    for (size_t drive = 0; drive < GetParam().size(); ++drive) {
      const Bytes bytes = read_bytes(file(drive));
      text += fmt::format("drive {}\nlength {}\n", drive, bytes.size());
      std::string parts;
      size_t records_begin = bytes.size();
      for (const auto& [record, part, from] : parts_of(drive)) {
        parts += part_line(bytes, record, part, from);
        records_begin = std::min(records_begin, static_cast<size_t>(part.offset));
      }
      for (size_t at = 0; at < records_begin; at += kBytesOfLine) text += bytes_line(bytes, at);
      text += parts + crc_line(bytes);
    }
    return text;
  }

  void make_files(const std::string& text) const {
    std::map<size_t, Bytes> files;
    Bytes* bytes = nullptr;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string what;
      words >> what;
      if (what == "drive") bytes = &files[number(words)];
      ASSERT_NE(bytes, nullptr) << line;
      if (what == "length") bytes->resize(number(words));
      if (what == "bytes") put_hex(words, *bytes);
      if (what == "part") put_part(words, *bytes);
      if (what == "crc32c") {
        ASSERT_EQ(crc_line(*bytes), line + "\n") << "not the bytes that were kept";
      }
    }
    for (const auto& [drive, content] : files) {
      fs::create_directories(folder(drive));
      std::ofstream(file(drive), std::ios::binary)
          .write(reinterpret_cast<const char*>(content.data()), std::ssize(content));
    }
  }

  TempFolder folder_;
  TestRun run_;

 private:
  struct Part {
    RecordId record;
    Extent part;
    int64_t from = 0;  // of the record's bytes
  };
  std::vector<Part> parts_of(size_t drive) const {
    const StoreLayout layout(run_.geometry, run_.identity.format(), GetParam());
    std::vector<Part> parts;
    for (const RecordId record : run_.records()) {
      for (const int slot : {0, 1}) {
        int64_t from = 0;
        const Extents extents = layout.extents(record, slot);
        for (const Extent& extent : extents.span()) {
          if (static_cast<size_t>(extent.drive) == drive) parts.push_back({record, extent, from});
          from += extent.bytes;
        }
      }
    }
    return parts;
  }
  std::string part_line(const Bytes& bytes, RecordId record, const Extent& part, int64_t from) const {
    const auto count = static_cast<size_t>(part.bytes);
    const auto found = std::span(bytes).subspan(static_cast<size_t>(part.offset), count);
    for (int64_t step = 0; step <= kLastStep; ++step) {
      const Bytes content = content_of(record, step);
      if (!std::ranges::equal(std::span(content).subspan(static_cast<size_t>(from), count), found)) continue;
      return fmt::format("part {} {} {} {} {} {}\n", part.offset, record.chunk, name_of(record.group), step, from,
                         count);
    }
    ADD_FAILURE() << "a slot that holds no step's bytes";
    return "";
  }
  Bytes content_of(RecordId record, int64_t step) const {
    Bytes content(static_cast<size_t>(run_.layout(record).bytes));
    fill_content(run_, record, step, content);
    return content;
  }

  static size_t number(std::istream& words) {
    size_t value = 0;
    words >> value;
    return value;
  }
  static void put_hex(std::istream& words, Bytes& bytes) {
    const size_t at = number(words);
    std::string hex;
    words >> hex;
    for (size_t i = 0; i < hex.size() / 2; ++i) {
      bytes.at(at + i) = std::byte(std::stoul(hex.substr(2 * i, 2), nullptr, 16));
    }
  }
  void put_part(std::istream& words, Bytes& bytes) const {
    const size_t at = number(words);
    RecordId record{.chunk = static_cast<uint32_t>(number(words)), .group = Group::kWeights};
    std::string group;
    words >> group;
    if (group == name_of(Group::kState)) record.group = Group::kState;
    const Bytes content = content_of(record, static_cast<int64_t>(number(words)));
    const size_t from = number(words), count = number(words);
    ASSERT_LE(from + count, content.size());
    ASSERT_LE(at + count, bytes.size());
    std::ranges::copy(std::span(content).subspan(from, count), bytes.begin() + static_cast<int64_t>(at));
  }
};

TEST_P(KeptStores, of_every_version_open_at_their_last_step_and_train_on) {
  int versions = 0;
  for (const auto& entry : fs::directory_iterator(SLUICE_KEPT_STORES)) {
    if (!entry.path().filename().string().ends_with(drives())) continue;
    SCOPED_TRACE(entry.path());
    make_files(read_whole(entry.path()));
    {
      const auto store = open();
      expect_step(*store, run_, kLastStep);
      write_step(*store, run_, kLastStep + 1);
    }
    expect_step(*open(), run_, kLastStep + 1);
    ++versions;
  }
  EXPECT_GE(versions, 1);
}

// SLUICE_KEEP_STORES=FOLDER keeps them there.
TEST_P(KeptStores, are_what_this_program_writes_but_for_the_stores_number_and_folders) {
  make_today();
  const std::string text = text_of_files(), name = fmt::format("version_{}{}", kStoreVersion, drives());
  if (const char* const keep = std::getenv("SLUICE_KEEP_STORES")) {
    ASSERT_TRUE(std::ofstream(fs::path(keep) / name) << text) << keep;
  }
  const auto without_identity = [](const std::string& all) {
    std::istringstream lines(all);
    std::string rest;
    for (std::string line; std::getline(lines, line);) {
      int64_t at = 0;
      const bool is_identity =
          std::sscanf(line.c_str(), "bytes %ld", &at) == 1 &&
          std::ranges::find(kIdentityOffset, at / kStoreBlockBytes * kStoreBlockBytes) != std::end(kIdentityOffset);
      if (!is_identity && !line.starts_with("crc32c")) rest += line + "\n";
    }
    return rest;
  };
  EXPECT_EQ(without_identity(text), without_identity(read_whole(fs::path(SLUICE_KEPT_STORES) / name)));
}

INSTANTIATE_TEST_SUITE_P(Drives, KeptStores, testing::Values(std::vector<uint32_t>{1}, std::vector<uint32_t>{2, 1}),
                         [](const auto& weights) { return weights.param.size() == 1 ? "one" : "two"; });

}  // namespace
}  // namespace sluice
