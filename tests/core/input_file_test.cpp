#include "core/input_file.h"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <utility>

#include "core/errors.h"
#include "tests/fakes/awkward_reads.h"
#include "tests/fakes/message_of.h"
#include "tests/fakes/temp_folder.h"

namespace sluice {
namespace {

class InputFileTest : public testing::Test {
 protected:
  InputFileTest() { std::ofstream(path_) << "0123456789"; }
  InputFile open() const { return InputFile(path_, {.path = "a name", .advice = "a", .advice_when_shorter = "look"}); }
  std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(text_)); }
  std::string text(size_t size) const { return {text_.data(), size}; }

  TempFolder folder_;
  std::filesystem::path path_ = folder_.path() / "file";
  std::array<char, 6> text_{};
};

TEST_F(InputFileTest, reads_up_to_its_end) {
  const InputFile file = open();
  EXPECT_EQ(file.bytes(), 10);
  EXPECT_EQ(file.read(2, bytes()), 6);
  EXPECT_EQ(text(6), "234567");
  EXPECT_EQ(file.read(7, bytes()), 3);
  EXPECT_EQ(text(3), "789");
  EXPECT_EQ(file.read(10, bytes()), 0);
}

TEST_F(InputFileTest, that_ends_in_what_is_wanted_whole_says_where) {
  const InputFile file = open();
  file.read_whole(4, bytes());
  EXPECT_EQ(text(6), "456789");
  std::filesystem::resize_file(path_, 8);
  EXPECT_EQ(message_of<IoError>([&] { file.read_whole(4, bytes()); }),
            "read of a name failed (2 bytes at offset 8): the file ends there: it has become shorter since it was "
            "opened; look");
}

TEST_F(InputFileTest, goes_on_where_a_read_is_interrupted_or_short) {
  if (!AwkwardReads::reason().empty()) GTEST_SKIP() << AwkwardReads::reason();
  const InputFile file = open();
  const AwkwardReads awkward(AwkwardReads::Kind::kInterruptedAndShort);
  std::array<char, 10> all{};
  file.read_whole(0, std::as_writable_bytes(std::span(all)));
  EXPECT_EQ(std::string(all.data(), all.size()), "0123456789");
}

TEST_F(InputFileTest, on_a_drive_that_fails_says_where_with_advice) {
  if (!AwkwardReads::reason().empty()) GTEST_SKIP() << AwkwardReads::reason();
  const InputFile file = open();
  const AwkwardReads failing(AwkwardReads::Kind::kFailing);
  EXPECT_EQ(message_of<IoError>([&] { file.read(3, bytes()); }),
            "read of a name failed (at offset 3): Input/output error (errno 5); a");
}

TEST_F(InputFileTest, moves_with_its_descriptor) {
  InputFile first = open();
  const InputFile second = std::move(first);
  EXPECT_EQ(second.read(9, bytes()), 1);
}

TEST_F(InputFileTest, that_is_not_there_is_an_error_with_advice) {
  EXPECT_EQ(message_of<IoError>([&] { InputFile(path_ / "x", {.path = "a name", .advice = "do this"}); }),
            "open of a name failed: Not a directory (errno 20); do this");
}

}  // namespace
}  // namespace sluice
