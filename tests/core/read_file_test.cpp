#include "core/read_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "core/errors.h"
#include "tests/fakes/message_of.h"
#include "tests/fakes/temp_folder.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(ReadFile, has_every_byte) {
  const TempFolder folder;
  const std::string bytes = std::string(100'000, 'x') + std::string("\0\n\xff", 3);
  std::ofstream(folder.path() / "file", std::ios::binary) << bytes;
  EXPECT_TRUE(read_file(folder.path() / "file") == bytes);
  EXPECT_THAT(message_of<ConfigError>([&] { read_text(folder.path() / "file"); }),
              AllOf(HasSubstr((folder.path() / "file").string()), HasSubstr("byte 100000 is 0")));
}

TEST(ReadFile, that_is_not_there_is_none) {
  const TempFolder folder;
  EXPECT_EQ(read_file(folder.path() / "file"), std::nullopt);
  EXPECT_EQ(read_text(folder.path() / "no" / "file"), std::nullopt);
  std::ofstream(folder.path() / "file") << "text";
  EXPECT_EQ(read_text(folder.path() / "file" / "file"), std::nullopt);
  EXPECT_EQ(read_text(folder.path() / "file"), "text");
}

TEST(ReadFile, that_is_a_folder_or_whose_reading_fails_is_an_error_with_its_name) {
  const TempFolder folder;
  EXPECT_THAT(message_of<ConfigError>([&] { read_file(folder.path()); }),
              AllOf(HasSubstr(folder.path().string()), HasSubstr("is a folder")));
  // No page of a process lies at its address 0: reading there fails as a drive does.
  EXPECT_THAT(message_of<IoError>([] { read_file("/proc/self/mem"); }),
              AllOf(HasSubstr("/proc/self/mem"), HasSubstr("Input/output error"), HasSubstr("look at the drive")));
}

}  // namespace
}  // namespace sluice
