#include "data/text_source.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "core/errors.h"
#include "tests/data/data_support.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> names_in(const TextSource& source) {
  std::vector<std::string> names;
  for (const TextFile& file : source.files()) names.push_back(file.path.lexically_relative(source.path()).string());
  return names;
}

std::string text_of(const TextSource& source, const TextFile& file) {
  std::string text;
  source.read(file, [&](std::string_view piece) { text += piece; });
  return text;
}

TEST(TextSource, a_folder_gives_its_text_files_in_order_of_their_paths_and_counts_the_rest) {
  const TempFolder folder;
  folder.write("b.txt", "b");
  folder.write("a/z.py", "z");
  folder.write("a-b.md", "-");
  folder.write("empty.txt", "");
  folder.write("binary", std::string("a\0b", 3));
  folder.write("latin1.txt", "caf\xE9");
  folder.write(".hidden", "h");
  folder.write(".git/config", "h");
  folder.write("a/__pycache__/x.py", "x");
  folder.write("site-packages/x.py", "x");
  folder.write("dist-packages/x.py", "x");
  std::filesystem::create_symlink("/etc", folder.path() / "link");
  std::filesystem::create_symlink(folder.path() / "b.txt", folder.path() / "c.txt");
  const TextSource source = TextSource::open(folder.path());
  EXPECT_THAT(names_in(source), ElementsAre("a-b.md", "a/z.py", "b.txt"));
  EXPECT_EQ(source.bytes(), 3);
  EXPECT_EQ(source.skipped().hidden, 2);
  EXPECT_EQ(source.skipped().links, 2);
  EXPECT_EQ(source.skipped().empty, 1);
  EXPECT_EQ(source.skipped().not_text, 2);
  EXPECT_EQ(source.skipped().installed, 3);
  EXPECT_THAT(source.skipped().describe(), HasSubstr("2 symbolic links, 1 empty, 2 not UTF-8 text"));
}

TEST(TextSource, unusable_paths_are_refused_by_name) {
  const TempFolder folder;
  const auto refusal = [&](const std::filesystem::path& path) {
    return message_of<ConfigError>([&] { TextSource::open(path); });
  };
  EXPECT_THAT(refusal(folder.path() / "nowhere"), HasSubstr("nowhere is not there"));
  EXPECT_THAT(refusal(folder.path()), HasSubstr("holds no text"));
  EXPECT_THAT(refusal(folder.write("empty.txt", "")), HasSubstr("empty.txt holds no text"));
  EXPECT_THAT(refusal(folder.path()), HasSubstr("holds no text (1 empty)"));
  EXPECT_THAT(refusal(folder.write("bad.txt", "0123\xFF")), HasSubstr("bad.txt is not UTF-8 text: invalid at byte 4"));
  EXPECT_THAT(refusal(folder.write("nul.txt", std::string("ab\0c", 4))), HasSubstr("invalid at byte 2"));
  EXPECT_THAT(refusal(folder.write("cut.txt", "ab\xE2\x82")), HasSubstr("invalid at byte 2"));
}

TEST(TextSource, a_numpy_file_is_told_from_other_files_that_are_no_text) {
  const TempFolder folder;
  const auto refusal = [&](const std::string& content) {
    const std::filesystem::path path = folder.write("ids.npy", content);
    return message_of<ConfigError>([&] { TextSource::open(path); });
  };
  EXPECT_THAT(refusal(numpy_file<uint16_t>("<u2", {1, 2, 3})),
              testing::EndsWith("ids.npy is no text but a NumPy file: where it is an array of token ids, set "
                                "data.tokenizer to \"ids\""));
  EXPECT_THAT(refusal("\x93NUMP"), HasSubstr("ids.npy is not UTF-8 text: invalid at byte 0"));
}

// Blocks of reading are 1 MiB: characters and faults that lie across their border are seen as anywhere else.
TEST(TextSource, a_fault_beyond_the_first_block_is_found_at_its_offset) {
  const TempFolder folder;
  const size_t border = size_t{1} << 20;
  for (const size_t offset : {border - 3, border - 2, border - 1, border, border + 1}) {
    std::string text = std::string(offset, 'a') + "\xF0\x9F\x98\x80" + std::string(border + 96 - offset, 'a');
    EXPECT_EQ(TextSource::open(folder.write("good.txt", text)).bytes(), static_cast<int64_t>(text.size())) << offset;
    text[offset + 3] = 'x';
    EXPECT_THAT(message_of<ConfigError>([&] { TextSource::open(folder.write("bad.txt", text)); }),
                HasSubstr("invalid at byte " + std::to_string(offset)));
  }
}

TEST(TextSource, fingerprint_changes_with_content_name_and_set_of_files) {
  const TempFolder folder;
  folder.write("a.txt", "one");
  folder.write("b.txt", "two");
  const uint32_t before = TextSource::open(folder.path()).fingerprint();
  EXPECT_EQ(TextSource::open(folder.path()).fingerprint(), before);
  folder.write("b.txt", "twp");
  EXPECT_NE(TextSource::open(folder.path()).fingerprint(), before);
  folder.write("b.txt", "two");
  EXPECT_EQ(TextSource::open(folder.path()).fingerprint(), before);
  std::filesystem::rename(folder.path() / "b.txt", folder.path() / "c.txt");
  EXPECT_NE(TextSource::open(folder.path()).fingerprint(), before);
}

TEST(TextSource, pieces_are_whole_lines_and_put_together_they_are_the_file) {
  const TempFolder folder;
  const std::string text = made_up_code(20000);
  const TextSource source = TextSource::open(folder.write("long.txt", text));
  int pieces = 0;
  std::string whole;
  source.read(source.files()[0], [&](std::string_view piece) {
    ++pieces;
    EXPECT_LE(static_cast<int64_t>(piece.size()), TextSource::kMaxPieceBytes);
    EXPECT_EQ(piece.back(), '\n');
    whole += piece;
  });
  EXPECT_EQ(whole, text);
  EXPECT_GT(pieces, 5);
}

TEST(TextSource, a_line_longer_than_a_piece_is_cut_between_characters) {
  const TempFolder folder;
  std::string text = "x";
  while (text.size() < 300000) text += "\xF0\x9F\x98\x80";
  const TextSource source = TextSource::open(folder.write("line.txt", text));
  source.read(source.files()[0], [&](std::string_view piece) {
    EXPECT_NE(static_cast<uint8_t>(piece[0]) & 0xC0, 0x80) << "begins within a character";
  });
  EXPECT_EQ(text_of(source, source.files()[0]), text);
}

TEST(TextSource, a_range_is_trimmed_to_whole_characters) {
  const TempFolder folder;
  const TextSource source = TextSource::open(folder.write("a.txt", "\xE2\x82\xAC\xE2\x82\xAC\xE2\x82\xAC"));
  EXPECT_EQ(source.read_range(source.files()[0], 1, 6), "\xE2\x82\xAC");
  EXPECT_EQ(source.read_range(source.files()[0], 3, 100), "\xE2\x82\xAC\xE2\x82\xAC");
}

TEST(TextSource, a_file_that_shrinks_after_opening_is_an_error) {
  const TempFolder folder;
  const TextSource source = TextSource::open(folder.write("a.txt", "0123456789"));
  folder.write("a.txt", "0123");
  EXPECT_THAT(message_of<CorruptionError>([&] { text_of(source, source.files()[0]); }), HasSubstr("became shorter"));
}

TEST(TextSource, a_file_whose_text_changes_after_opening_is_an_error) {
  const TempFolder folder;
  const TextSource source = TextSource::open(folder.write("a.txt", "0123456789"));
  folder.write("a.txt", "0123456798");
  EXPECT_THAT(message_of<CorruptionError>([&] { text_of(source, source.files()[0]); }), HasSubstr("a.txt changed"));
  folder.write("a.txt", "0123456789, and more that is none of it");
  EXPECT_EQ(text_of(source, source.files()[0]), "0123456789");
}

TEST(TextSource, a_pipe_is_refused_and_not_waited_for) {
  const TempFolder folder;
  const std::string pipe = (folder.path() / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(message_of<ConfigError>([&] { TextSource::open(pipe); }), HasSubstr(pipe + " is no file and no folder"));
}

TEST(TextSource, a_pipe_in_a_folder_is_left_out_and_not_waited_for) {
  const TempFolder folder;
  folder.write("a.txt", "a");
  ASSERT_EQ(mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  const TextSource source = TextSource::open(folder.path());
  EXPECT_THAT(names_in(source), ElementsAre("a.txt"));
  EXPECT_EQ(source.skipped().not_text, 1);
}

TEST(TextSource, tells_how_much_it_has_read) {
  const TempFolder folder;
  folder.write("a.txt", std::string(3'000'000, 'a'));
  folder.write("b.txt", "12345");
  std::vector<int64_t> done;
  TextSource::open(folder.path(), [&](int64_t bytes, int64_t total) {
    EXPECT_EQ(total, 3'000'005);
    done.push_back(bytes);
  });
  EXPECT_TRUE(std::ranges::is_sorted(done));
  EXPECT_GT(std::ranges::count_if(done, [](int64_t bytes) { return bytes < 3'000'000; }), 1);
  EXPECT_EQ(done.back(), 3'000'005);
}

}  // namespace
}  // namespace sluice
