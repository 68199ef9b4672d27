// Runs on ids that another tokenizer made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "tests/app/command_fixture.h"
#include "tests/data/data_support.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class IdsTest : public CommandTest {
 protected:
  IdsTest() {
    // What the byte tokenizer makes of the text: its bytes, and the end of the document.
    std::vector<uint16_t> ids;
    for (const char each : text_in("text.txt")) ids.push_back(static_cast<uint8_t>(each));
    ids.push_back(0);
    std::ofstream(file("ids.npy"), std::ios::binary) << numpy_file("<u2", ids);
  }
  Ended train_on_ids(const std::string& out, const std::vector<std::string>& more) const {
    std::vector<std::string> words{"train",     "@run.json",     "--data", "@ids.npy", "--set", "data.tokenizer=ids",
                                   "--machine", "@machine.json", "--out",  "@" + out};
    words.insert(words.end(), more.begin(), more.end());
    return sluice(words);
  }
};

TEST_F(IdsTest, train_as_the_text_that_they_were_made_of_and_go_on_without_their_file) {
  const Ended text = train("text", {"--set", "data.tokenizer=byte"});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  const Ended ids = train_on_ids("ids", {"--steps", "3"});
  ASSERT_EQ(ids.exit_code, 0) << ids.err;
  EXPECT_THAT(ids.err, HasSubstr("ids of another tokenizer"));
  std::filesystem::remove(file("ids.npy"));
  const Ended more = train_on_ids("ids", {"--steps", "6", "--resume"});
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_EQ(numbers(metrics("ids")), numbers(metrics("text")));

  const Ended made = sluice({"generate", "@ids", "--prompt", "108 105", "--tokens", "3"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, testing::ContainsRegex("108 105 [0-9]+ [0-9]+ [0-9]+\n"));
  const Ended refused = sluice({"generate", "@ids", "--prompt", "line", "--tokens", "3"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("\"line\" is no id"));
  EXPECT_THAT(sluice({"generate", "@ids", "--prompt", "", "--tokens", "3"}).err, HasSubstr("the prompt is empty"));
}

TEST_F(IdsTest, that_are_not_there_or_beyond_the_vocabulary_are_refused_and_nothing_is_made) {
  const Ended beyond = train_on_ids("run", {"--steps", "1", "--set", "data.vocab_size=100"});
  EXPECT_EQ(beyond.exit_code, 2);
  EXPECT_THAT(beyond.err, AllOf(HasSubstr(file("ids.npy")), HasSubstr("is none of 0 to 99")));
  std::filesystem::remove(file("ids.npy"));
  const Ended gone = train_on_ids("run", {"--steps", "1"});
  EXPECT_EQ(gone.exit_code, 2);
  EXPECT_THAT(gone.err, HasSubstr("is not there"));
  EXPECT_FALSE(std::filesystem::exists(file("run")));
}

TEST_F(IdsTest, refuse_a_prompt_of_words_before_the_first_step) {
  const Ended ended = train_on_ids("run", {"--steps", "1", "--sample", "some words"});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("\"some\" is no id"), Not(HasSubstr("step 1"))));
  EXPECT_FALSE(std::filesystem::exists(file("run")));
}

TEST_F(IdsTest, are_asked_for_where_weights_come_with_a_tokenizer_of_their_own) {
  ASSERT_EQ(train("run", {"--steps", "1"}).exit_code, 0);
  ASSERT_EQ(sluice({"checkpoint", "export", "@run", "@weights"}).exit_code, 0);
  const std::string model = R"(model={"path": ")" + file("weights") + R"("})";
  const auto warning = AllOf(HasSubstr("the tokenizer there is not read"), HasSubstr("data.tokenizer \"ids\""));
  EXPECT_THAT(train("none", {"--set", model, "--steps", "1"}).err, Not(warning));
  std::ofstream(file("weights/tokenizer.json")) << "{}";
  EXPECT_THAT(train("text", {"--set", model, "--steps", "1"}).err, warning);
  EXPECT_THAT(train_on_ids("ids", {"--set", model, "--steps", "1"}).err, Not(warning));
}

}  // namespace
}  // namespace sluice
