#include "data/dataset.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <numeric>
#include <thread>

#include "core/checksum.h"
#include "core/errors.h"
#include "data/cache_file.h"
#include "data/unigram.h"
#include "tests/data/data_support.h"
#include "tests/fakes/stalled_writes.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class DatasetTest : public testing::Test {
 protected:
  Dataset prepare_only() {
    return Dataset::prepare({.data = data_,
                             .cache_folder = folder_.path() / "run",
                             .use = use_,
                             .progress = [this](int64_t done, int64_t total) { progress_.emplace_back(done, total); },
                             .log = [this](LogLevel, const std::string& line) { said_ += line + "\n"; }});
  }
  Dataset prepare() {
    Dataset dataset = prepare_only();
    dataset.keep();
    return dataset;
  }
  // Were the tokens made anew by the prepare() before?
  bool tokenized() { return !std::exchange(progress_, {}).empty(); }
  std::filesystem::path cached(const char* name) const { return folder_.path() / "run" / name; }
  int64_t files_of_the_run() const {
    return std::distance(std::filesystem::directory_iterator(folder_.path() / "run"), {});
  }

  TempFolder folder_;
  DataOptions data_{.path = folder_.path() / "text", .sequence_length = 4};
  CacheUse use_ = CacheUse::kIfUnchanged;
  std::vector<std::pair<int64_t, int64_t>> progress_;
  std::string said_;
};

std::vector<int64_t> sequence(int64_t first, int64_t count) {
  std::vector<int64_t> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST_F(DatasetTest, documents_follow_each_other_with_an_end_after_each) {
  folder_.write("text/b.txt", "cd");
  folder_.write("text/a.txt", "ab");
  const Dataset dataset = prepare();
  EXPECT_EQ(dataset.tokens(), 6);
  std::vector<int64_t> inputs(4), targets(4);
  dataset.training_sample(0, inputs, targets);
  EXPECT_EQ(inputs, (std::vector<int64_t>{'a', 'b', 0, 'c'}));
  EXPECT_EQ(targets, (std::vector<int64_t>{'b', 0, 'c', 'd'}));
  EXPECT_EQ(dataset.training_samples(), 1);
}

TEST_F(DatasetTest, sample_i_takes_its_tokens_and_the_last_part_is_for_validation) {
  std::string text;
  for (int i = 1; i < 100; ++i) text.push_back(static_cast<char>(i));
  folder_.write("text/a.txt", text);  // tokens 1..99 and the end: 100
  data_.validation_fraction = 0.2;
  const Dataset dataset = prepare();
  EXPECT_EQ(dataset.training_samples(), 19);   // 80 tokens: 4 x 19 + 1 <= 80
  EXPECT_EQ(dataset.validation_samples(), 4);  // 20 tokens: 4 x 4 + 1 <= 20
  std::vector<int64_t> inputs(4), targets(4);
  for (int64_t i = 0; i < 19; ++i) {
    dataset.training_sample(i, inputs, targets);
    EXPECT_EQ(inputs, sequence(4 * i + 1, 4));
    EXPECT_EQ(targets, sequence(4 * i + 2, 4));
  }
  for (int64_t i = 0; i < 4; ++i) {
    dataset.validation_sample(i, inputs, targets);
    EXPECT_EQ(inputs, sequence(81 + 4 * i, 4));
    EXPECT_EQ(targets, sequence(82 + 4 * i, 4));
  }
  EXPECT_THROW(dataset.training_sample(19, inputs, targets), std::logic_error);
  EXPECT_NEAR(dataset.validation_unigram_nats(std::vector<int64_t>{0, 1, 2, 3}), std::log(16.0), 1e-12)
      << "16 different targets";
  EXPECT_NEAR(dataset.validation_unigram_nats(std::vector<int64_t>{2}), std::log(4.0), 1e-12);
}

TEST_F(DatasetTest, a_part_of_a_token_is_not_held_back_for_validation) {
  folder_.write("text/a.txt", std::string(99, 'a'));
  data_.validation_fraction = 0.168;  // 16.8 of 100 tokens
  EXPECT_EQ(prepare().validation_samples(), 3);
  data_ = {.path = data_.path, .sequence_length = 1};
  EXPECT_EQ(prepare().validation_samples(), 0);
  EXPECT_EQ(prepare().training_samples(), 99);
}

TEST_F(DatasetTest, the_entropy_of_validation_is_that_of_the_targets) {
  folder_.write("text/a.txt", "xxxxxaaaa");
  data_.validation_fraction = 0.5;  // a a a a and the end
  EXPECT_NEAR(prepare().validation_unigram_nats(std::vector<int64_t>{0}),
              0.75 * std::log(4.0 / 3) + 0.25 * std::log(4.0), 1e-12);
}

TEST_F(DatasetTest, a_changed_text_has_the_vocabulary_that_it_alone_would_have) {
  data_.tokenizer = TokenizerKind::kSentencePiece;
  data_.vocab_size = 300;
  folder_.write("text/a.txt", made_up_code(300));
  const std::string before(prepare().tokenizer().model());
  std::string other = made_up_code(300);
  std::ranges::replace(other, 'e', 'q');
  folder_.write("text/a.txt", other);
  const std::string after(prepare().tokenizer().model());
  EXPECT_NE(after, before);
  std::filesystem::remove_all(folder_.path() / "run");
  EXPECT_EQ(prepare().tokenizer().model(), after);
}

TEST_F(DatasetTest, a_cache_of_another_kind_or_version_is_not_taken) {
  write_checked(folder_.path() / "cache", 7, "content")->publish();
  EXPECT_EQ(read_checked(folder_.path() / "cache").value().bytes, "content");
  const std::string whole = read_whole(folder_.path() / "cache");
  for (const size_t at : {size_t{0}, size_t{8}}) {  // of the magic and of the version, under a sum that is right
    std::string other = whole;
    other[at] ^= 2;
    const uint32_t crc = crc32c(0, std::as_bytes(std::span(other).first(28)));
    std::memcpy(other.data() + 28, &crc, sizeof crc);
    folder_.write("cache", other);
    EXPECT_FALSE(read_checked(folder_.path() / "cache")) << at;
  }
}

TEST_F(DatasetTest, a_cache_with_a_byte_changed_missing_or_too_many_is_not_taken) {
  write_checked(folder_.path() / "cache", 7, "content")->publish();
  const std::string whole = read_whole(folder_.path() / "cache");
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string other = whole;
    other[at] ^= 1;
    folder_.write("cache", other);
    EXPECT_FALSE(read_checked(folder_.path() / "cache")) << at;
    folder_.write("cache", whole.substr(0, at));
    EXPECT_FALSE(read_checked(folder_.path() / "cache")) << at;
  }
  folder_.write("cache", whole + "more");
  EXPECT_FALSE(read_checked(folder_.path() / "cache"));
}

// A run that is killed as it keeps both files may leave the new tokenizer beside the tokens of the old one.
TEST_F(DatasetTest, tokens_of_another_tokenizer_beside_it_are_made_anew) {
  folder_.write("text/a.txt", made_up_code(300));
  data_.tokenizer = TokenizerKind::kSentencePiece;
  data_.vocab_size = 300;
  prepare();
  const std::string older = read_whole(cached("tokens.cache"));
  data_.vocab_size = 310;
  prepare();
  const std::string newer = read_whole(cached("tokens.cache"));
  ASSERT_NE(newer, older);
  for (const CacheUse use : {CacheUse::kIfUnchanged, CacheUse::kWithoutText}) {
    use_ = use;
    folder_.write("run/tokens.cache", older);
    prepare();
    EXPECT_EQ(read_whole(cached("tokens.cache")), newer);
  }
}

TEST_F(DatasetTest, the_byte_tokenizers_tokens_are_the_same_whatever_vocabulary_is_named) {
  folder_.write("text/a.txt", "some text");
  prepare();
  EXPECT_TRUE(tokenized());
  data_.vocab_size = 300;
  prepare();
  EXPECT_FALSE(tokenized());
}

TEST_F(DatasetTest, a_second_run_takes_the_cache_and_a_changed_text_makes_it_anew) {
  folder_.write("text/a.txt", "some text");
  const uint32_t fingerprint = prepare().fingerprint();
  EXPECT_TRUE(tokenized());
  EXPECT_EQ(prepare().fingerprint(), fingerprint);
  EXPECT_FALSE(tokenized());
  folder_.write("text/a.txt", "some test");
  EXPECT_NE(prepare().fingerprint(), fingerprint);
  EXPECT_TRUE(tokenized());
}

TEST_F(DatasetTest, what_is_not_kept_leaves_the_cache_as_it_was) {
  folder_.write("text/a.txt", made_up_code(300));
  prepare();
  const std::string tokens = read_whole(cached("tokens.cache")), tokenizer = read_whole(cached("tokenizer.cache"));
  folder_.write("text/a.txt", made_up_code(200));
  data_.tokenizer = TokenizerKind::kSentencePiece;
  data_.vocab_size = 300;
  said_.clear();
  {
    const Dataset refused = prepare_only();
    EXPECT_THAT(said_, HasSubstr("take its place when the run begins")) << "and are not there yet";
    std::vector<int64_t> inputs(4), targets(4);
    refused.training_sample(refused.training_samples() - 1, inputs, targets);
    EXPECT_EQ(read_whole(cached("tokens.cache")), tokens);
  }
  EXPECT_EQ(read_whole(cached("tokens.cache")), tokens);
  EXPECT_EQ(read_whole(cached("tokenizer.cache")), tokenizer);
  EXPECT_EQ(files_of_the_run(), 2) << "no temporary file stays";
  Dataset kept = prepare_only();
  kept.keep();
  std::vector<int64_t> before(4), after(4), targets(4);
  kept.training_sample(0, after, targets);
  prepare().training_sample(0, before, targets);
  EXPECT_EQ(before, after);
  EXPECT_NE(read_whole(cached("tokens.cache")), tokens);
  EXPECT_EQ(files_of_the_run(), 2);
}

TEST_F(DatasetTest, changed_settings_make_the_cache_anew) {
  folder_.write("text/a.txt", made_up_code(300));
  data_.tokenizer = TokenizerKind::kSentencePiece;
  data_.vocab_size = 300;
  EXPECT_EQ(prepare().tokenizer().vocabulary_size(), 300);
  EXPECT_TRUE(tokenized());
  data_.vocab_size = 310;
  EXPECT_EQ(prepare().tokenizer().vocabulary_size(), 310);
  EXPECT_TRUE(tokenized());
  data_.sequence_length = 5;
  prepare();
  EXPECT_FALSE(tokenized()) << "the tokens do not depend on the sequence length";
}

TEST_F(DatasetTest, any_flipped_bit_and_any_torn_file_is_noticed_and_made_anew) {
  folder_.write("text/a.txt", made_up_code(20));
  prepare();
  tokenized();
  for (const char* name : {"tokens.cache", "tokenizer.cache"}) {
    const std::string whole = read_whole(cached(name));
    for (size_t at = 0; at < whole.size(); at += at < 80 ? 1 : 37) {
      flip_bit(cached(name), at);
      prepare();
      ASSERT_EQ(read_whole(cached(name)), whole) << name << " " << at;
    }
    for (const size_t length : {size_t{0}, size_t{10}, whole.size() / 2, whole.size() - 1}) {
      std::ofstream(cached(name), std::ios::binary) << whole.substr(0, length);
      prepare();
      ASSERT_EQ(read_whole(cached(name)), whole) << name << " " << length;
    }
  }
  EXPECT_EQ(files_of_the_run(), 2) << "no temporary file stays";
}

TEST_F(DatasetTest, tokens_of_an_older_version_are_made_anew_and_that_is_said) {
  folder_.write("text/a.txt", "some text");
  prepare();
  const std::string whole = read_whole(cached("tokens.cache"));
  const auto older = [](std::string bytes) {
    bytes[8] = 1;
    const uint32_t crc = crc32c(0, std::as_bytes(std::span(bytes).first(60)));
    std::memcpy(bytes.data() + 60, &crc, sizeof crc);
    return bytes;
  };
  for (const std::string& content : {older(whole), older(whole.substr(0, whole.size() - 4))}) {  // without sums at last
    for (const CacheUse use : {CacheUse::kIfUnchanged, CacheUse::kWithoutText}) {
      folder_.write("run/tokens.cache", content);
      use_ = use;
      said_.clear();
      prepare();
      EXPECT_EQ(read_whole(cached("tokens.cache")), whole);
      EXPECT_THAT(said_, AllOf(HasSubstr(cached("tokens.cache").string() + " is damaged"),
                               HasSubstr("by another version: tokens are made anew, and take its place when the "
                                         "run begins")));
    }
  }
}

// Also of tokens that were made anew, in a file without a name.
TEST_F(DatasetTest, tokens_damaged_under_a_run_end_it_and_are_made_anew_when_it_is_resumed) {
  folder_.write("text/a.txt", made_up_code(2000));
  std::vector<int64_t> inputs(4), targets(4), before(4);
  for (const bool made_anew : {true, false}) {
    use_ = CacheUse::kWithoutText;
    const Dataset dataset = prepare();
    EXPECT_EQ(tokenized(), made_anew);
    dataset.training_sample(0, before, targets);
    flip_bit(cached("tokens.cache"), 70);
    EXPECT_THAT(message_of<CorruptionError>([&] { dataset.training_sample(0, inputs, targets); }),
                HasSubstr(cached("tokens.cache").string()));
    dataset.training_sample(dataset.training_samples() - 1, inputs, targets);
    prepare().training_sample(0, inputs, targets);
    EXPECT_TRUE(tokenized());
    EXPECT_EQ(inputs, before);
  }
}

TEST_F(DatasetTest, a_resumed_run_keeps_its_tokens_when_the_text_has_changed_or_gone) {
  folder_.write("text/a.txt", "some text");
  const uint32_t fingerprint = prepare().fingerprint();
  tokenized();
  use_ = CacheUse::kWithoutText;
  folder_.write("text/a.txt", "some test");
  EXPECT_EQ(prepare().fingerprint(), fingerprint);
  std::filesystem::remove_all(folder_.path() / "text");
  EXPECT_EQ(prepare().fingerprint(), fingerprint);
  EXPECT_FALSE(tokenized());
  flip_bit(cached("tokens.cache"), 70);
  EXPECT_THAT(message_of<ConfigError>([&] { prepare(); }), HasSubstr("is not there"));
}

TEST_F(DatasetTest, a_failing_write_is_an_error_and_leaves_no_file) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 4096, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message =
      message_of<IoError>([&] { write_checked(folder_.path() / "full", 1, std::string(10000, 'x')); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(message, AllOf(HasSubstr("write"), HasSubstr("4096"), HasSubstr("ulimit -f")));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(DatasetTest, a_write_that_takes_no_byte_says_so_and_leaves_no_file) {
  if (!StalledWrites::reason().empty()) GTEST_SKIP() << StalledWrites::reason();
  std::string message;
  {
    const StalledWrites stalled;
    message = message_of<IoError>([&] { write_checked(folder_.path() / "cache", 1, "text"); });
  }
  EXPECT_THAT(message, AllOf(HasSubstr("write of " + (folder_.path() / "cache").string()), HasSubstr("at offset 0"),
                             HasSubstr("took no byte of it and gave no error; make room")));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(DatasetTest, runs_that_prepare_the_same_folder_at_once_do_each_other_no_harm) {
  folder_.write("text/a.txt", made_up_code(2000));
  std::vector<uint32_t> fingerprints(4);
  {
    std::vector<std::jthread> runs;
    for (uint32_t& fingerprint : fingerprints) {
      runs.emplace_back([&] {
        Dataset dataset = Dataset::prepare({.data = data_, .cache_folder = folder_.path() / "run"});
        dataset.keep();
        fingerprint = dataset.fingerprint();
      });
    }
  }
  EXPECT_THAT(fingerprints, testing::Each(prepare().fingerprint()));
  EXPECT_FALSE(tokenized()) << "what they left is whole";
}

TEST_F(DatasetTest, progress_ends_at_all_bytes) {
  folder_.write("text/a.txt", made_up_code(10000));
  const Dataset dataset = prepare();
  ASSERT_GT(progress_.size(), 2u);
  EXPECT_EQ(progress_.back(), std::pair(dataset.source_bytes(), dataset.source_bytes()));
}

TEST_F(DatasetTest, the_tokenizer_alone_comes_from_the_cache) {
  folder_.write("text/a.txt", made_up_code(300));
  data_.tokenizer = TokenizerKind::kSentencePiece;
  data_.vocab_size = 300;
  const Dataset dataset = prepare();
  EXPECT_EQ(load_tokenizer(data_, folder_.path() / "run")->model(), dataset.tokenizer().model());
  EXPECT_THAT(message_of<ConfigError>([&] { load_tokenizer(data_, folder_.path()); }),
              HasSubstr("tokenizer.cache is missing"));
  DataOptions others = data_;
  others.tokenizer = TokenizerKind::kIds;
  EXPECT_THROW(load_tokenizer(others, folder_.path() / "run"), ConfigError) << "of as many ids";
  const uint32_t settings = read_checked(cached("tokenizer.cache")).value().fingerprint;
  write_checked(cached("tokenizer.cache"), settings, "cut")->publish();
  EXPECT_THROW(load_tokenizer(data_, folder_.path() / "run"), ConfigError);
}

TEST_F(DatasetTest, too_little_text_and_bad_options_are_refused) {
  folder_.write("text/a.txt", "abc");
  const auto refusal = [&] { return message_of<ConfigError>([&] { prepare(); }); };
  EXPECT_THAT(refusal(), HasSubstr("gives 4 tokens to train on, fewer than one sample"));
  data_.sequence_length = 0;
  EXPECT_EQ(refusal(), "data.sequence_length is 0: allowed are 1 and more");
  data_ = {.path = data_.path, .vocab_size = 255, .sequence_length = 1};
  EXPECT_EQ(refusal(), "data.vocab_size is 255: the byte tokenizer has 256 ids");
  data_ = {.path = data_.path, .tokenizer = TokenizerKind::kSentencePiece, .vocab_size = 299, .sequence_length = 1};
  EXPECT_EQ(refusal(), "data.vocab_size is 299: sentencepiece takes 300 to 1000000 entries");
  data_ = {.path = data_.path, .sequence_length = 1, .validation_fraction = 1};
  EXPECT_EQ(refusal(), "data.validation_fraction is 1: allowed is 0 <= fraction < 1");
  data_ = {.path = data_.path, .sequence_length = 1, .validation_fraction = -0.1};
  EXPECT_EQ(refusal(), "data.validation_fraction is -0.1: allowed is 0 <= fraction < 1");
  data_ = {.path = data_.path, .tokenizer = TokenizerKind::kIds, .sequence_length = 1};
  EXPECT_EQ(refusal(), "data.vocab_size is 0: the tokenizer's number of ids is 1 or more");
  data_ = {.sequence_length = 1};
  EXPECT_EQ(refusal(), "data.path is not given: name a file or a folder of UTF-8 text there, or with --data PATH");
  data_ = {.tokenizer = TokenizerKind::kIds, .vocab_size = 5, .sequence_length = 1};
  EXPECT_EQ(refusal(), "data.path is not given: name a NumPy file of token ids there, or with --data PATH");
}

TEST(DataOptions, take_the_smallest_and_the_largest_vocabulary_of_each_tokenizer) {
  const auto with = [](TokenizerKind kind, int64_t vocabulary) {
    return DataOptions{.path = "text", .tokenizer = kind, .vocab_size = vocabulary, .sequence_length = 1};
  };
  EXPECT_NO_THROW(validate(with(TokenizerKind::kByte, 256)));
  EXPECT_NO_THROW(validate(with(TokenizerKind::kIds, 1)));
  EXPECT_NO_THROW(validate(with(TokenizerKind::kSentencePiece, 300)));
  EXPECT_NO_THROW(validate(with(TokenizerKind::kSentencePiece, kMaxSentencePieceVocabulary)));
  EXPECT_THROW(validate(with(TokenizerKind::kSentencePiece, kMaxSentencePieceVocabulary + 1)), ConfigError);
}

TEST(Unigram, is_the_entropy_of_the_counts) {
  EXPECT_EQ(unigram_nats(std::vector<int64_t>{}), 0);
  EXPECT_EQ(unigram_nats(std::vector<int64_t>{0, 5, 0}), 0);
  EXPECT_NEAR(unigram_nats(std::vector<int64_t>{3, 3, 0, 3, 3}), std::log(4.0), 1e-15);
  EXPECT_NEAR(unigram_nats(std::vector<int64_t>{3, 1}), 0.75 * std::log(4.0 / 3) + 0.25 * std::log(4.0), 1e-15);
}

}  // namespace
}  // namespace sluice
