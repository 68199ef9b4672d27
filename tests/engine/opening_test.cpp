// Which store an engine opens or makes, and what it leaves alone where it does not.
#include <gmock/gmock.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

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

TEST_F(Opening, a_step_that_is_asked_for_where_nothing_is_committed_is_refused_and_nothing_is_made) {
  EngineOptions with = options();
  with.open = OpenMode::kResume;
  with.from_step = 1;
  EXPECT_THAT(message_of<ConfigError>([&] { engine(with); }),
              ::testing::HasSubstr("there is no step 1 to go on from; what is committed there: nothing"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(Opening, a_loss_scale_that_means_nothing_is_refused_and_nothing_is_made) {
  EngineOptions with = options();
  with.loss_scale.first = 0;
  EXPECT_THROW(engine(with), ConfigError);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(Opening, a_store_s_queue_has_the_depth_of_the_plan_the_memory_of_its_steps_and_the_run_s_log) {
  EngineOptions with = options();
  with.plan.io_depth = 13;
  std::string said;
  with.log = [&said](LogLevel, const std::string& line) { said += line; };
  IoQueueOptions asked;
  with.store.make_queue = [&asked](const IoQueueOptions& queue) {
    asked = queue;
    return make_io_queue(queue);
  };
  const auto made = engine(with);
  EXPECT_EQ(asked.depth, 13);
  ASSERT_EQ(asked.memory.size(), 1u);
  EXPECT_EQ(static_cast<int64_t>(asked.memory[0].size()), made->plan().host_arena_bytes);
  said.clear();
  say(asked.log, LogLevel::kInfo, "by the queue");
  EXPECT_EQ(said, "by the queue");
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

TEST_F(Opening, tells_chunk_after_chunk_how_far_a_new_store_is_and_one_that_is_verified_first) {
  EngineOptions with = options();
  put_records(with.plan, HomeKind::kNvme);
  with.verify = EngineOptions::Verify::kAllFirst;
  for (const OpenMode mode : {OpenMode::kCreate, OpenMode::kOpen}) {
    with.open = mode;
    std::vector<std::pair<int64_t, int64_t>> told, expected;
    with.progress = [&told](int64_t done, int64_t all) { told.emplace_back(done, all); };
    const std::unique_ptr<Engine> made = engine(with);
    const int64_t chunks = std::ssize(made->geometry().chunks());
    for (int64_t done = 1; done <= chunks; ++done) expected.emplace_back(done, chunks);
    EXPECT_EQ(told, expected);
  }
}

TEST_F(Opening, a_store_that_is_replaced_has_no_say_in_the_chunks_of_the_new_one) {
  engine(options());
  EngineOptions with = options();
  with.open = OpenMode::kOverwrite;
  with.plan.chunk_elements = 0;
  const int64_t planned = make_plan(model_, with.plan).geometry.chunk_elements();
  ASSERT_NE(planned, options().plan.chunk_elements);
  EXPECT_EQ(engine(with)->geometry().chunk_elements(), planned);
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

TEST_F(Opening, requests_of_a_size_that_is_to_stay_are_the_only_ones_that_are_tried) {
  EngineOptions with = options();
  put_records(with.plan, HomeKind::kNvme);
  with.probe_io = ProbeIo::kYes;
  with.block = EngineOptions::Block::kStays;
  with.store.block_bytes = 64 * kKiB;
  std::string said;
  with.log = [&said](LogLevel, const std::string& line) { said += line + "\n"; };
  engine(with);
  EXPECT_THAT(said, ::testing::ContainsRegex("I/O, the best of [12] settings tried: .*, blocks of 64.0 KiB"));
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
  const int64_t used_bytes = kDriveBytes - free_drive_bytes({{drive.path()}});
  drive.resize(used_bytes + 2 * kMiB);
  with.open = OpenMode::kOpen;
  with.probe_io = ProbeIo::kYes;
  std::string said;
  with.log = [&said](LogLevel, const std::string& line) { said += line + "\n"; };
  EXPECT_GT(engine(with)->plan().disk_bytes, 2 * kMiB);
  EXPECT_THAT(said, ::testing::HasSubstr("I/O, the best of"));
  drive.resize(used_bytes + kMiB / 2);
  said.clear();
  EXPECT_NO_THROW(engine(with)) << "without room to try settings in";
  EXPECT_THAT(said, ::testing::HasSubstr("I/O settings are not probed"));
}

}  // namespace
}  // namespace sluice::testing
