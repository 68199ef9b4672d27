#include "swap/trim.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "core/errors.h"
#include "swap/record_store.h"
#include "swap/store_format.h"
#include "tests/fakes/forbidden_call.h"
#include "tests/fakes/message_of.h"
#include "tests/fakes/sector.h"
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
    return message_or<ConfigError>("not refused", [&] { trim_stores(folders, number); });
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

using testing::ElementsAre;
using testing::IsEmpty;

class TrimCutShort : public Trim {
 protected:
  StoreOptions options() const {
    return {.folder = folders_[0], .more_folders = {folders_[1], folders_[2]}, .drive_weights = {1, 1, 1}};
  }
  void create() {
    write_step(*RecordStore::create(run_.geometry, run_.identity, options()), run_, 0);
    number_ = number(folders_[0]);
  }
  std::filesystem::path file(size_t drive) const { return folders_[drive] / "sluice-0.swap"; }
  StoreParts parts() const { return find_parts(folders_, number_); }
  // Before the system would have taken the first file's name away.
  void cut_at_first_removal(const std::vector<std::filesystem::path>& folders) const {
    std::thread([&] {
#ifdef SYS_unlink
      forbid({.number = SYS_unlink, .error_number = EIO});
#endif
      forbid({.number = SYS_unlinkat, .error_number = EIO});
      EXPECT_EQ(failure_of([&] { trim_stores(folders, number_); }).details.error_number, EIO);
    }).join();
  }

  const std::vector<std::filesystem::path> folders_ = {folder_.path() / "a", folder_.path() / "b",
                                                       folder_.path() / "c"};
  std::optional<uint64_t> number_;
};

TEST_F(TrimCutShort, is_not_what_parts_are_missing_for_that_are_not_there) {
  EXPECT_THAT(parts().missing, ElementsAre(file(0), file(1), file(2))) << "no store is there";
  create();
  EXPECT_THAT(parts().missing, IsEmpty());
  for (const size_t away : {0, 1, 2}) {
    std::filesystem::rename(file(away), folder_.path() / "away");
    for (const auto& known : {number_, std::optional<uint64_t>()}) {
      EXPECT_THAT(find_parts(folders_, known).missing, ElementsAre(file(away)));
      EXPECT_THAT(find_parts(folders_, known).trimmed, IsEmpty());
    }
    std::filesystem::rename(folder_.path() / "away", file(away));
  }
  std::filesystem::rename(file(1), folder_.path() / "away");
  std::filesystem::copy(file(2), file(1));
  EXPECT_THAT(parts().missing, ElementsAre(file(1))) << "another drive's file lies in its place";
  std::filesystem::rename(folder_.path() / "away", file(1));
  EXPECT_THAT(find_parts({folders_.data(), 1}, number_).missing, ElementsAre(file(1), file(2)))
      << "its headers know more drives than are named";
}

TEST_F(TrimCutShort, is_told_from_a_drive_that_is_not_there_and_is_gone_on_with) {
  create();
  cut_at_first_removal(folders_);
  EXPECT_THAT(parts().trimmed, IsEmpty());
  std::filesystem::rename(file(1), folder_.path() / "away");
  std::filesystem::remove(file(2));  // the cut was after its removal
  EXPECT_THAT(parts().trimmed, ElementsAre(file(2)));
  EXPECT_THAT(parts().missing, ElementsAre(file(1)));
  std::filesystem::rename(folder_.path() / "away", file(1));
  cut_at_first_removal(folders_);
  std::filesystem::remove(file(1));
  EXPECT_THAT(parts().trimmed, ElementsAre(file(1), file(2)));
  EXPECT_THAT(parts().missing, IsEmpty());
  EXPECT_EQ(trim_stores(folders_, number_).size(), 1u);
  EXPECT_THAT(parts().trimmed, IsEmpty());
}

TEST_F(TrimCutShort, is_known_to_have_removed_what_it_has_when_a_later_drive_comes_back) {
  create();
  std::filesystem::rename(file(2), folder_.path() / "away");
  cut_at_first_removal(folders_);
  std::filesystem::remove(file(1));  // the cut was after its removal
  std::filesystem::rename(folder_.path() / "away", file(2));
  EXPECT_THAT(parts().trimmed, ElementsAre(file(1)));
  cut_at_first_removal(folders_);
  EXPECT_THAT(parts().trimmed, ElementsAre(file(1)));
  EXPECT_THAT(parts().missing, IsEmpty());
}

TEST_F(TrimCutShort, is_not_told_by_a_mark_that_is_damaged) {
  create();
  cut_at_first_removal(folders_);
  std::filesystem::remove(file(2));
  ASSERT_THAT(parts().trimmed, ElementsAre(file(2)));
  const auto mark = static_cast<std::streamoff>(kOpeningOffset[0] + kSectorBytes + offsetof(TrimMark, from_drive));
  std::fstream first(file(0), std::ios::in | std::ios::out | std::ios::binary);
  first.seekp(mark).put('\0').flush();  // as if all drives were gone
  EXPECT_THAT(parts().missing, ElementsAre(file(2)));
  EXPECT_THAT(parts().trimmed, IsEmpty());
}

TEST_F(TrimCutShort, is_marked_in_no_drives_file_but_the_first) {
  create();
  const std::vector<std::byte> before = read_bytes(file(1));
  cut_at_first_removal({folders_[1], folders_[2]});
  EXPECT_TRUE(read_bytes(file(1)) == before);
}

TEST_F(TrimCutShort, has_begun_with_the_last_drive_in_whatever_order_they_are_named) {
  create();
  cut_at_first_removal({folders_[2], folders_[0], folders_[1]});
  std::filesystem::remove(file(2));
  EXPECT_THAT(parts().trimmed, ElementsAre(file(2)));
}

TEST_F(TrimCutShort, is_told_in_whatever_order_the_folders_are_named) {
  create();
  cut_at_first_removal(folders_);
  std::filesystem::remove(file(2));
  const std::vector<std::filesystem::path> turned = {folders_[1], folders_[0], folders_[2]};
  EXPECT_THAT(find_parts(turned, number_).trimmed, ElementsAre(file(2)));
  EXPECT_THAT(find_parts(turned, number_).missing, IsEmpty());
}

TEST_F(TrimCutShort, before_anything_was_removed_leaves_a_store_that_is_as_it_was_once_it_is_opened) {
  for (const int openings : {0, 1, 2}) {
    create();
    StoreOptions opening = options();
    for (int i = 1; i <= openings; ++i) {
      opening.opener = static_cast<uint32_t>(i);
      RecordStore::open(run_.geometry, run_.identity, opening);
    }
    cut_at_first_removal(folders_);
    EXPECT_EQ(RecordStore::last_opener(folders_[0]), static_cast<uint32_t>(openings));
    opening.opener = 9;
    expect_step(*RecordStore::open(run_.geometry, run_.identity, opening), run_, 0);
    EXPECT_EQ(RecordStore::last_opener(folders_[0]), 9u);
    std::filesystem::remove(file(2));
    EXPECT_THAT(parts().trimmed, IsEmpty()) << openings;
    EXPECT_THAT(parts().missing, ElementsAre(file(2)));
  }
}

TEST_F(TrimCutShort, cannot_be_told_of_a_drive_that_takes_no_mark_and_the_trim_is_done_all_the_same) {
  create();
  std::thread([&] {
    forbid({.number = SYS_pwrite64, .error_number = EIO});
    EXPECT_EQ(trim_stores(folders_, number_).size(), 3u);
  }).join();
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
