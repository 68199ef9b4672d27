#include "swap/trim.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <vector>

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
  static std::optional<uint64_t> number(const std::filesystem::path& folder) {
    return RecordStore::store_number(folder);
  }
  std::vector<TrimmedStore> trim() { return trim_stores({&folder_.path(), 1}, number(folder_.path())); }
  static std::string refusal(std::span<const std::filesystem::path> folders, std::optional<uint64_t> number = {}) {
    try {
      trim_stores(folders, number);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "not refused";
  }
  std::string refusal() { return refusal({&folder_.path(), 1}); }

  TempFolder folder_;
  TestRun run_;
};

TEST_F(Trim, gives_back_every_block_of_a_store_and_removes_it) {
  write_step(*create(), run_, 0);
  const int kept_open = open(file().c_str(), O_RDONLY);
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(file()));
  EXPECT_GE(trim().front().bytes, bytes);
  EXPECT_FALSE(std::filesystem::exists(file()));
  struct stat status {};
  ASSERT_EQ(fstat(kept_open, &status), 0);
  close(kept_open);
  EXPECT_EQ(status.st_blocks, 0) << "its blocks are not given back";
}

// As a backup made of links has it.
TEST_F(Trim, leaves_its_bytes_to_who_has_given_the_file_another_name) {
  write_step(*create(), run_, 0);
  const std::filesystem::path kept = folder_.path() / "kept", elsewhere = folder_.path() / "elsewhere";
  std::filesystem::create_hard_link(file(), kept);
  EXPECT_EQ(trim().front().bytes, 0) << "nothing is freed";
  EXPECT_FALSE(std::filesystem::exists(file()));
  std::filesystem::create_directory(elsewhere);
  std::filesystem::rename(kept, elsewhere / "sluice-0.swap");
  expect_step(*RecordStore::open(run_.geometry, run_.identity, {.folder = elsewhere}), run_, 0);
}

TEST_F(Trim, removes_a_store_behind_a_link_and_the_link) {
  write_step(*create(), run_, 0);
  const std::filesystem::path target = folder_.path() / "elsewhere", link = folder_.path() / "link";
  std::filesystem::rename(file(), target);
  std::filesystem::create_symlink(target, link);
  std::filesystem::create_symlink(link, file());
  EXPECT_GT(trim().front().bytes, 0);
  EXPECT_FALSE(std::filesystem::exists(target));
  EXPECT_FALSE(std::filesystem::is_symlink(file()));
}

class TrimDrives : public Trim {
 protected:
  std::unique_ptr<RecordStore> create() {
    return RecordStore::create(run_.geometry, run_.identity,
                               {.folder = folders_[0], .more_folders = {folders_[1]}, .drive_weights = {1, 1}});
  }
  std::filesystem::path file(size_t drive) const { return folders_[drive] / "sluice-0.swap"; }
  // A store of its own on that drive, in place of what is there.
  uint64_t create_another(size_t drive) {
    write_step(*RecordStore::create(run_.geometry, run_.identity, {.folder = folders_[drive]}), run_, 0);
    return number(folders_[drive]).value();
  }
  const std::vector<std::filesystem::path> folders_ = {folder_.path() / "a", folder_.path() / "b"};
};

TEST_F(TrimDrives, gives_back_what_is_there_and_tells_how_much_of_each) {
  write_step(*create(), run_, 0);
  const auto bytes = [&](size_t drive) { return static_cast<int64_t>(std::filesystem::file_size(file(drive))); };
  const std::vector<int64_t> sizes = {bytes(0), bytes(1)};
  const std::vector<TrimmedStore> trimmed = trim_stores(folders_, number(folders_[0]));
  ASSERT_EQ(trimmed.size(), 2u);
  for (size_t drive : {0, 1}) {
    EXPECT_EQ(trimmed[drive].folder, folders_[drive]);
    EXPECT_GE(trimmed[drive].bytes, sizes[drive]);
    EXPECT_FALSE(std::filesystem::exists(file(drive)));
  }
  EXPECT_THAT(refusal(folders_),
              testing::AllOf(HasSubstr(file(0).string() + ", " + file(1).string()), HasSubstr("no store")));
}

TEST_F(TrimDrives, finishes_what_was_cut_short) {
  for (size_t gone : {0, 1}) {
    for (const bool is_known : {true, false}) {
      write_step(*create(), run_, 0);
      const auto known = is_known ? number(folders_[0]) : std::nullopt;
      std::filesystem::remove(file(gone));
      const std::vector<TrimmedStore> trimmed = trim_stores(folders_, known);
      ASSERT_EQ(trimmed.size(), 1u);
      EXPECT_EQ(trimmed[0].folder, folders_[1 - gone]);
      EXPECT_FALSE(std::filesystem::exists(file(1 - gone)));
    }
  }
}

TEST_F(TrimDrives, removes_nothing_where_another_store_lies_on_one_of_them) {
  for (const size_t theirs : {0, 1}) {
    write_step(*create(), run_, 0);
    const auto own = number(folders_[0]);
    const uint64_t other = create_another(theirs);
    EXPECT_THAT(refusal(folders_, own),
                testing::AllOf(HasSubstr("the store in " + file(theirs).string() + " is another run's"),
                               HasSubstr("put that one back"),
                               HasSubstr("what is left of this run's store: " + file(1 - theirs).string())));
    EXPECT_THAT(refusal(folders_), HasSubstr(file(0).string() + " and " + file(1).string()));
    for (const size_t drive : {0, 1}) EXPECT_TRUE(std::filesystem::exists(file(drive)));
    // Once the other one is gone too, what is left of this one can go.
    EXPECT_EQ(trim_stores({&folders_[theirs], 1}, other).size(), 1u);
    EXPECT_EQ(trim_stores(folders_, own).size(), 1u);
  }
}

TEST_F(TrimDrives, removes_nothing_where_all_that_is_left_is_another_store) {
  write_step(*create(), run_, 0);
  const auto own = number(folders_[0]);
  create_another(1);
  std::filesystem::remove(file(0));
  EXPECT_THAT(refusal(folders_, own), HasSubstr("nothing is left of this run's store"));
  EXPECT_TRUE(std::filesystem::exists(file(1)));
}

TEST_F(TrimDrives, removes_nothing_where_one_is_in_use_or_no_store) {
  auto store = create();
  write_step(*store, run_, 0);
  EXPECT_THAT(refusal(folders_), HasSubstr("in use"));
  expect_step(*store, run_, 0);
  store.reset();
  std::filesystem::rename(file(1), folders_[1] / "away");
  std::ofstream(file(1)) << std::string(10000, 'a');
  EXPECT_THAT(refusal(folders_), HasSubstr(file(1).string() + " is not a store of sluice"));
  EXPECT_TRUE(std::filesystem::exists(file(0)));
}

TEST_F(TrimDrives, removes_nothing_where_a_folder_cannot_be_looked_into) {
  write_step(*create(), run_, 0);
  const auto own = number(folders_[0]);
  std::filesystem::rename(folders_[1], folder_.path() / "away");
  std::filesystem::create_symlink(folders_[1], folders_[1]);  // goes round in a circle
  const auto [details, message] = failure_of([&] { trim_stores(folders_, own); });
  EXPECT_EQ(details.error_number, ELOOP);
  EXPECT_THAT(message, HasSubstr(file(1).string()));
  EXPECT_TRUE(std::filesystem::exists(file(0)));
  EXPECT_EQ(failure_of([&] { find_store(folders_[1]); }).details.error_number, ELOOP);
  std::filesystem::remove(folders_[1]);
  EXPECT_EQ(find_store(folders_[1]), StoreExists::kNo);
  EXPECT_EQ(trim_stores(folders_, own).size(), 1u) << "a folder that is not there is passed over";
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
