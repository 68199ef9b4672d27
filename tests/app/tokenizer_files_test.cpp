// An exported folder has the run's tokenizer.
#include "app/tokenizer_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "data/dataset.h"
#include "tests/app/command_fixture.h"
#include "tests/data/data_support.h"

namespace sluice {
namespace {

using testing::HasSubstr;
using testing::Not;

class TokenizerFilesTest : public CommandTest {
 protected:
  // transformers reads the folder's tokenizer, and gives every text of these the ids that the run's own gives.
  void expect_same_ids(const std::string& folder, const DataOptions& data) const {
    const std::unique_ptr<Tokenizer> ours = load_tokenizer(data, file("run"));
    const std::string text = text_in("text.txt") + kStrange;
    std::vector<int32_t> ids;
    ours->encode(text, ids);
    std::ofstream(file("strange.txt"), std::ios::binary) << text;
    std::ofstream(file("ids.json")) << fmt::format("[{}]", fmt::join(ids, ","));
    const Ended theirs = run_process({SLUICE_PYTHON, SLUICE_SAME_IDS, file(folder), file("strange.txt"),
                                      file("ids.json"), std::to_string(ours->end_of_document().value())});
    EXPECT_EQ(theirs.exit_code, 0) << theirs.err;
  }
  // Spaces and lines in a row, what the vocabulary has no character for, U+2581, which stands for a space elsewhere,
  // and names of bytes and of the unknown.
  static constexpr const char* kStrange =
      "  two  spaces\n\n\tthe tab\r\n\x01 na\xC3\xAFve \xE6\xBC\xA2\xE5\xAD\x97 \xF0\x9F\x99\x82 \xE2\x96\x81the "
      "\xC2\x85\xE2\x80\xA8 <0x0A> <unk> fox ";
};

TEST_F(TokenizerFilesTest, of_bytes_give_transformers_the_same_ids) {
  if (!has_transformers()) GTEST_SKIP() << "no transformers here";
  ASSERT_EQ(train("run", {"--steps", "1", "--set", "data.tokenizer=byte"}).exit_code, 0);
  const Ended ended = sluice({"checkpoint", "export", "@run", "@out"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("config.json, tokenizer.json, tokenizer_config.json and model.safetensors"));
  expect_same_ids("out", {.tokenizer = TokenizerKind::kByte});
}

TEST_F(TokenizerFilesTest, of_sentencepiece_give_transformers_the_same_ids) {
  if (!has_transformers()) GTEST_SKIP() << "no transformers here";
  ASSERT_EQ(
      train("run", {"--steps", "1", "--set", "data.tokenizer=sentencepiece", "--set", "data.vocab_size=320"}).exit_code,
      0);
  const Ended ended = sluice({"checkpoint", "export", "@run", "@out"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  expect_same_ids("out", {.tokenizer = TokenizerKind::kSentencePiece, .vocab_size = 320});
}

// Another run that begins with the weights has their tokenizer where it makes the same one.
TEST_F(TokenizerFilesTest, are_known_again_beside_weights_to_begin_with) {
  ASSERT_EQ(train("run", {"--steps", "1"}).exit_code, 0);
  ASSERT_EQ(sluice({"checkpoint", "export", "@run", "@out"}).exit_code, 0);
  const std::string model = R"(model={"path": ")" + file("out") + R"("})";
  const auto warning = HasSubstr("the tokenizer there is not read");
  EXPECT_THAT(train("bytes", {"--set", model, "--steps", "1"}).err, Not(warning));
  const Ended pieces = train("pieces", {"--set", model, "--steps", "1", "--set", "data.tokenizer=sentencepiece",
                                        "--set", "data.vocab_size=320"});
  ASSERT_EQ(pieces.exit_code, 0) << pieces.err;
  EXPECT_THAT(pieces.err, warning);
  std::filesystem::remove(file("out/tokenizer.json"));
  std::filesystem::remove(file("out/tokenizer_config.json"));
  EXPECT_THAT(train("unknown", {"--set", model, "--steps", "1"}).err,
              HasSubstr("no tokenizer lies beside the weights there: unless they were trained on the ids of "
                        "data.tokenizer \"byte\""));
}

TEST_F(TokenizerFilesTest, of_a_run_on_ids_are_those_of_the_weights_that_it_began_with) {
  ASSERT_EQ(train("run", {"--steps", "1"}).exit_code, 0);
  ASSERT_EQ(sluice({"checkpoint", "export", "@run", "@weights"}).exit_code, 0);
  std::ofstream(file("weights/tokenizer.json")) << "its own";
  std::ofstream(file("weights/merges.txt")) << "a b";
  std::ofstream(file("ids.npy"), std::ios::binary) << numpy_file("<u2", std::vector<uint16_t>(400, 7));
  const std::string model = R"(model={"path": ")" + file("weights") + R"("})";
  const Ended ids = sluice({"train", "@run.json", "--data", "@ids.npy", "--set", "data.tokenizer=ids", "--set", model,
                            "--steps", "1", "--machine", "@machine.json", "--out", "@ids"});
  ASSERT_EQ(ids.exit_code, 0) << ids.err;
  const Ended with = sluice({"checkpoint", "export", "@ids", "@with"});
  ASSERT_EQ(with.exit_code, 0) << with.err;
  EXPECT_EQ(text_in("with/tokenizer.json"), "its own");
  EXPECT_EQ(text_in("with/merges.txt"), "a b");
  EXPECT_EQ(json_in("with/config.json")["eos_token_id"], json_in("weights/config.json")["eos_token_id"]);
  for (const char* name : {"weights/tokenizer.json", "weights/merges.txt"}) std::filesystem::remove(file(name));
  const Ended without = sluice({"checkpoint", "export", "@ids", "@without"});
  ASSERT_EQ(without.exit_code, 0) << without.err;
  EXPECT_THAT(without.err, HasSubstr("the tokenizer that made the run's ids is not known here"));
  EXPECT_FALSE(std::filesystem::exists(file("without/tokenizer.json")));
  std::ofstream(file("without/tokenizer.json")) << "copied there";
  const Ended again = sluice({"checkpoint", "export", "@ids", "@without"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("the tokenizer there stays as it is"));
  EXPECT_EQ(text_in("without/tokenizer.json"), "copied there");
}

TEST_F(TokenizerFilesTest, that_are_lost_keep_no_weights_back_and_nobody_elses_are_replaced) {
  ASSERT_EQ(
      train("run", {"--steps", "1", "--set", "data.tokenizer=sentencepiece", "--set", "data.vocab_size=320"}).exit_code,
      0);
  std::filesystem::create_directory(file("other"));
  std::ofstream(file("other/tokenizer.json")) << "somebody's";
  const Ended refused = sluice({"checkpoint", "export", "@run", "@other"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("a tokenizer.json is there without a model"));
  EXPECT_EQ(text_in("other/tokenizer.json"), "somebody's");
  std::filesystem::remove(tokenizer_file(file("run")));
  const Ended lost = sluice({"checkpoint", "export", "@run", "@out"});
  ASSERT_EQ(lost.exit_code, 0) << lost.err;
  EXPECT_THAT(lost.err, HasSubstr("exported without a tokenizer: " + tokenizer_file(file("run")).string()));
  EXPECT_TRUE(std::filesystem::exists(file("out/model.safetensors")));
}

}  // namespace
}  // namespace sluice
