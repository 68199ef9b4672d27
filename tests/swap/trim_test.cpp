#include "swap/trim.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "core/errors.h"
#include "swap/record_store.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

using testing::HasSubstr;

class Trim : public testing::Test {
 protected:
  std::unique_ptr<RecordStore> create() {
    return RecordStore::create(run_.geometry, run_.identity, {.folder = folder_.path()});
  }
  std::filesystem::path file() const { return folder_.path() / "sluice-0.swap"; }
  std::string refusal() {
    try {
      trim_store(folder_.path());
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "not refused";
  }

  TempFolder folder_;
  TestRun run_;
};

TEST_F(Trim, gives_back_every_block_of_a_store_and_removes_it) {
  write_step(*create(), run_, 0);
  const int kept_open = open(file().c_str(), O_RDONLY);
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(file()));
  EXPECT_GE(trim_store(folder_.path()), bytes);
  EXPECT_FALSE(std::filesystem::exists(file()));
  struct stat status {};
  ASSERT_EQ(fstat(kept_open, &status), 0);
  close(kept_open);
  EXPECT_EQ(status.st_blocks, 0) << "its blocks are not given back";
}

TEST_F(Trim, leaves_a_store_in_use_alone) {
  auto store = create();
  write_step(*store, run_, 0);
  EXPECT_THAT(refusal(), HasSubstr("in use"));
  expect_step(*store, run_, 0);
}

TEST_F(Trim, leaves_what_is_no_store_alone) {
  EXPECT_THAT(refusal(), HasSubstr("no store is there"));
  const std::string text(10000, 'a');
  std::ofstream(file()) << text;
  EXPECT_THAT(refusal(), HasSubstr("is not a store of sluice"));
  EXPECT_EQ(std::filesystem::file_size(file()), text.size());
}

}  // namespace
}  // namespace sluice
