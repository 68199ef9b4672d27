// What --out replaces, and what it leaves as it is.
#include "app/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/errors.h"
#include "tests/fakes/message_of.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

class OutputFile : public testing::Test {
 protected:
  std::string refusal_of(const std::string& text) const {
    std::ofstream(file_) << text;
    return message_or<ConfigError>("", [this] { static_cast<void>(output_file(file_, kKind)); });
  }
  static constexpr OutputKind kKind{.begins_with = "<page", .name = "a page"};
  TempFolder folder_;
  std::filesystem::path file_ = folder_.path() / "page.html";
};

TEST_F(OutputFile, may_be_new_or_empty_or_an_earlier_one_of_its_kind) {
  EXPECT_EQ(output_file(file_, kKind), std::filesystem::canonical(folder_.path()) / "page.html");
  for (const char* text : {"", "<page of earlier>", "\n  <page of earlier>", "<page"}) EXPECT_EQ(refusal_of(text), "");
}

TEST_F(OutputFile, of_another_kind_stays) {
  for (const char* text : {"page", "<pag", "x<page", "<p age", " "}) {
    EXPECT_THAT(refusal_of(text), testing::HasSubstr("page.html: what is there is not a page, and is not replaced"))
        << text;
  }
  EXPECT_THAT(message_of<ConfigError>([this] { static_cast<void>(output_file(folder_.path(), kKind)); }),
              testing::HasSubstr("is not a page"));
}

// A file that is put in its place would take the place of the link.
TEST_F(OutputFile, behind_a_link_is_what_the_link_leads_to) {
  std::ofstream(file_) << "<page";
  std::filesystem::create_symlink(file_, folder_.path() / "link");
  EXPECT_EQ(output_file(folder_.path() / "link", kKind), std::filesystem::canonical(file_));
}

}  // namespace
}  // namespace sluice
