// Which store an engine opens or makes, and what it leaves alone where it does not.
#include <gmock/gmock.h>

#include <filesystem>
#include <stdexcept>
#include <string>

#include "swap/drive_folders.h"
#include "tests/engine/lifecycle_fixture.h"
#include "tests/fakes/message_of.h"
#include "tests/fakes/mounted_drive.h"

namespace sluice::testing {
namespace {

class Opening : public Lifecycle {};

TEST_F(Opening, a_run_goes_on_from_the_step_before_the_last_where_that_is_asked_for) {
  EngineOptions with = options();
  with.plan.commit_interval = 1;
  {
    auto running = engine(with);
    for (int i = 0; i < 3; ++i) step(*running);
    running->drain();
  }
  with.open = OpenMode::kOpen;
  with.from_step = 1;
  EXPECT_THROW(engine(with), ConfigError) << "two are kept";
  with.from_step = 2;
  auto resumed = engine(with);
  EXPECT_EQ(resumed->step(), 2);
  EXPECT_EQ(finish(*resumed).state_crc32c, expected_.state_crc32c);
}

TEST_F(Opening, whoever_opens_a_store_may_refuse_it_before_anything_in_it_changes) {
  {
    auto running = engine(options());
    step(*running);
    running->drain();
  }
  const std::string before = read_whole(folder_.path() / "sluice-0.swap");
  for (const OpenMode mode : {OpenMode::kOpen, OpenMode::kResume}) {
    EngineOptions with = options();
    with.open = mode;
    int64_t shown = -1;
    with.accept_store = [&shown](const StepState& committed) {
      shown = committed.step;
      throw std::runtime_error("of another run");
    };
    EXPECT_THROW(engine(with), std::runtime_error);
    EXPECT_EQ(shown, 1);
    EXPECT_TRUE(read_whole(folder_.path() / "sluice-0.swap") == before);
  }
}

TEST_F(Opening, a_store_that_somebody_else_makes_meanwhile_is_not_replaced) {
  EngineOptions with = options();
  with.open = OpenMode::kCreate;
  with.make_topology = [this] {
    auto others = engine(options());
    step(*others);
    others->drain();
    return make_topology();
  };
  EXPECT_THROW(engine(with), ConfigError);
  EngineOptions again = options();
  again.open = OpenMode::kOpen;
  EXPECT_EQ(engine(again)->step(), 1);
}

TEST_F(Opening, a_folder_whose_drive_is_away_is_not_probed) {
  TempFolder second;
  EngineOptions with = options();
  with.store.more_folders = {second.path()};
  with.store.drive_weights = {1, 1};
  put_records(with.plan, HomeKind::kNvme);  // rings are large enough to probe with
  engine(with);
  std::filesystem::remove_all(second.path());
  std::filesystem::create_directory(second.path());
  with.open = OpenMode::kOpen;
  with.probe_io = ProbeIo::kYes;
  std::string said;
  with.log = [&said](LogLevel, const std::string& line) { said += line + "\n"; };
  EXPECT_THROW(engine(with), ConfigError);
  using ::testing::HasSubstr, ::testing::Not;
  EXPECT_THAT(said, ::testing::AllOf(Not(HasSubstr("I/O, the best of")), Not(HasSubstr("not probed"))));
}

TEST_F(Opening, a_drive_with_little_room_left_is_probed_within_it) {
  constexpr int64_t kDriveBytes = 64 * kMiB;
  MountedDrive drive(MountedDrive::Kind::kMemory, folder_.path() / "drive", kDriveBytes);
  if (!drive.reason().empty()) GTEST_SKIP() << drive.reason();
  EngineOptions with = options();
  with.store.folder = drive.path();
  with.plan.progress_bytes = kMiB;  // a store of more than what will be left
  put_records(with.plan, HomeKind::kNvme);
  engine(with);
  drive.resize(kDriveBytes - free_drive_bytes({{drive.path()}}) + 2 * kMiB);
  with.open = OpenMode::kOpen;
  with.probe_io = ProbeIo::kYes;
  std::string said;
  with.log = [&said](LogLevel, const std::string& line) { said += line + "\n"; };
  EXPECT_GT(engine(with)->plan().disk_bytes, 2 * kMiB);
  EXPECT_THAT(said, ::testing::HasSubstr("I/O, the best of"));
}

}  // namespace
}  // namespace sluice::testing
