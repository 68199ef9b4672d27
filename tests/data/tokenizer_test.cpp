// One contract, every tokenizer.
#include "data/tokenizer.h"

#include <gmock/gmock.h>

#include "core/errors.h"
#include "tests/data/data_support.h"

namespace sluice {
namespace {

std::unique_ptr<Tokenizer> trained_on_code(int64_t vocab_size) {
  const TempFolder folder;
  folder.write("code.py", made_up_code(1000));
  return make_sentencepiece_tokenizer(train_sentencepiece(TextSource::open(folder.path()), vocab_size));
}

std::vector<int32_t> ids_of(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  tokenizer.encode(text, ids);
  return ids;
}

struct Maker {
  const char* name;
  std::unique_ptr<Tokenizer> (*make)();
};

void PrintTo(const Maker& maker, std::ostream* out) { *out << maker.name; }

class TokenizerContract : public testing::TestWithParam<Maker> {
 protected:
  std::unique_ptr<Tokenizer> tokenizer_ = GetParam().make();
};

TEST_P(TokenizerContract, every_text_comes_back_exactly) {
  const std::string nasty[] = {
      "",
      " ",
      "     ",
      "\n",
      "\n\n\n",
      "a\n\n  b\n",
      "\r\n\r\nx\r",
      "\ttab\t\ttab\t",
      "  leading",
      "trailing   ",
      "two  spaces   three",
      "\xE2\x96\x81",  // U+2581
      "a\xE2\x96\x81 \xE2\x96\x81\xE2\x96\x81z",
      "\xE2\x96\x85",  // U+2585
      "\xE2\x81\x87",  // U+2047
      "\xEF\xBB\xBFwith a byte order mark",
      "\xF0\x9F\x98\x80\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x92\xBB",
      "e\xCC\x81 \xC3\xA9 \xEF\xAC\x81 \xE2\x91\xA0 \xEF\xBC\xA1",  // what normalization would change
      "\xC2\xA0no-break\xE3\x80\x80ideographic",
      "<s></s><unk><pad><0x0A><0xFF>",
      std::string("\0\1\2\x1F\x7F", 5),
      "\xFF\xFE broken \xC3( \xE2\x82",
      std::string(70000, ' '),
      std::string(70000, 'x'),
      "\xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E\n",
      made_up_code(50),
  };
  for (const std::string& text : nasty) {
    const std::vector<int32_t> ids = ids_of(*tokenizer_, text);
    EXPECT_EQ(tokenizer_->decode(ids), text) << testing::PrintToString(text.substr(0, 100));
    for (const int32_t id : ids) ASSERT_TRUE(id >= 0 && id < tokenizer_->vocabulary_size());
  }
}

TEST_P(TokenizerContract, random_bytes_come_back_exactly) {
  uint32_t state = 1;
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (int i = 0; i < 200; ++i) {
      state = state * 1664525u + 1013904223u;
      text.push_back(static_cast<char>(round % 2 ? state >> 24 : 0x80 + (state >> 24) % 0x80));
    }
    ASSERT_EQ(tokenizer_->decode(ids_of(*tokenizer_, text)), text) << round;
  }
}

TEST_P(TokenizerContract, cutting_after_a_newline_changes_no_id) {
  const std::string text = made_up_code(40);
  const std::vector<int32_t> whole = ids_of(*tokenizer_, text);
  for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1)) {
    std::vector<int32_t> parts;
    tokenizer_->encode(text.substr(0, at + 1), parts);
    tokenizer_->encode(text.substr(at + 1), parts);
    ASSERT_EQ(parts, whole) << at;
  }
}

TEST_P(TokenizerContract, text_never_gives_the_end_of_document) {
  for (const int32_t id : ids_of(*tokenizer_, made_up_code(100) + "</s><eos>\n"))
    EXPECT_NE(id, tokenizer_->end_of_document());
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerContract,
                         testing::Values(Maker{"bytes", [] { return make_byte_tokenizer(); }},
                                         Maker{"sentencepiece", [] { return trained_on_code(400); }},
                                         Maker{"smallest_sentencepiece", [] { return trained_on_code(300); }}),
                         [](const auto& maker) { return maker.param.name; });

TEST(ByteTokenizer, ids_are_the_bytes) {
  EXPECT_EQ(ids_of(*make_byte_tokenizer(), "A\n\xFF"), (std::vector<int32_t>{65, 10, 255}));
  EXPECT_EQ(make_byte_tokenizer()->vocabulary_size(), 256);
}

TEST(SentencePiece, the_same_text_gives_the_same_model) {
  EXPECT_EQ(trained_on_code(400)->model(), trained_on_code(400)->model());
}

// Words that only stand at the far end of the text get entries of their own.
TEST(SentencePiece, a_sample_is_spread_over_the_whole_text_and_repeatable) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 30; ++i) text += made_up_code(100);
  folder.write("a.py", text);
  for (int i = 0; i < 8000; ++i) text += i % 2 ? "quartz zephyr " : "quartz\nzephyr ";
  folder.write("b.py", text);
  const TextSource source = TextSource::open(folder.path());
  const int64_t sample_bytes = 128 << 10;
  ASSERT_GT(source.bytes(), 2 * sample_bytes);
  const std::string model = train_sentencepiece(source, 350, sample_bytes);
  EXPECT_EQ(train_sentencepiece(source, 350, sample_bytes), model);
  const auto tokenizer = make_sentencepiece_tokenizer(model);
  EXPECT_LT(ids_of(*tokenizer, text).size(), text.size() / 2);
  EXPECT_EQ(ids_of(*tokenizer, " quartz").size(), 1u);
}

TEST(SentencePiece, vocabulary_has_the_size_asked_for_and_compresses) {
  const auto tokenizer = trained_on_code(320);
  EXPECT_EQ(tokenizer->vocabulary_size(), 320);
  const std::string text = made_up_code(500);
  EXPECT_LT(ids_of(*tokenizer, text).size(), text.size() / 2);
  EXPECT_LE(ids_of(*tokenizer, "        ").size(), 2u) << "runs of spaces are entries";
}

TEST(SentencePiece, a_text_without_words_is_refused_with_what_to_do) {
  const TempFolder folder;
  const TextSource text = TextSource::open(folder.write("lines.txt", "\n\n\n\t\n"));
  EXPECT_THAT(message_of<ConfigError>([&] { train_sentencepiece(text, 400); }),
              testing::AllOf(testing::HasSubstr("data.vocab_size is 400"), testing::HasSubstr("\"byte\"")));
}

// The trainer itself ends the process, or passes such lines over.
TEST(SentencePiece, a_text_too_short_or_of_empty_lines_alone_is_refused) {
  const TempFolder folder;
  for (const std::string& content :
       {std::string(100, '\n'), std::string("ab cd ef\n"), made_up_code(9).substr(0, 63)}) {
    const TextSource text = TextSource::open(folder.write("short.txt", content));
    EXPECT_THAT(message_of<ConfigError>([&] { train_sentencepiece(text, 400); }),
                testing::HasSubstr("data.vocab_size is 400"));
  }
}

TEST(SentencePiece, a_text_of_one_long_line_is_learnt_from_too) {
  const TempFolder folder;
  std::string text = made_up_code(1000);
  std::ranges::replace(text, '\n', ' ');
  const std::string model = train_sentencepiece(TextSource::open(folder.write("line.txt", text)), 400);
  EXPECT_LT(ids_of(*make_sentencepiece_tokenizer(model), text).size(), text.size() / 2);
}

TEST(SentencePiece, a_text_for_fewer_entries_than_are_asked_for_gives_those) {
  const TempFolder folder;
  const TextSource text = TextSource::open(folder.write("code.py", made_up_code(30)));
  const auto tokenizer = make_sentencepiece_tokenizer(train_sentencepiece(text, 20'000));
  EXPECT_GE(tokenizer->vocabulary_size(), 300);
  EXPECT_LT(tokenizer->vocabulary_size(), 20'000);
}

TEST(SentencePiece, the_unknown_and_the_end_of_a_document_are_the_first_ids) {
  const auto tokenizer = trained_on_code(320);
  EXPECT_EQ(tokenizer->end_of_document(), 1);
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{1, 0, 1}), "\xEF\xBF\xBD");
}

TEST(SentencePiece, a_damaged_model_is_refused) {
  EXPECT_THROW(make_sentencepiece_tokenizer("not a model"), CorruptionError);
  EXPECT_THROW(make_sentencepiece_tokenizer(""), CorruptionError);
}

}  // namespace
}  // namespace sluice
