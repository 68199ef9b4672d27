// Power cuts of whole training runs: whatever a cut leaves of a run's traffic opens at the newest step whose commit had
// returned, or at the next one once its superblock was on its way; every record holds the bytes that it had then.
#include <gmock/gmock.h>

#include <cstring>
#include <iostream>
#include <limits>
#include <map>

#include "swap/record_checksums.h"
#include "swap/store_format.h"
#include "tests/engine/engine_fixture.h"
#include "tests/fakes/crash_explorer.h"
#include "tests/fakes/recorded_drives.h"

namespace sluice::testing {
namespace {

using ::testing::Contains;

// Every n-th step is committed.
class RunAfterPowerCut : public ::testing::TestWithParam<int> {
 protected:
  using Records = std::vector<std::vector<std::byte>>;

  EngineOptions options() {
    EngineOptions options = engine_options(folder_, reference_);
    options.plan.commit_interval = GetParam();
    options.plan.placement.state = {{HomeKind::kHost, 0.4}, {HomeKind::kNvme, 0.6}};
    options.plan.placement.gradient = {{HomeKind::kNvme, 1}};
    options.store.make_queue = recorded_queue_factory(drives_);
    return options;
  }
  // The gradients of this step are not finite: it is skipped.
  static constexpr int64_t kSkipped = 3;
  void train(int64_t steps) {
    Engine engine(model_, options(), toy_source());
    note_commit(engine);
    for (int64_t number = 1; number <= steps; ++number) {
      const Compute good = toy_compute(model_, number);
      engine.train_step(1e-2, [&](Use& use) {
        good(use);
        if (number == kSkipped && use.pass() == Pass::kBackward && use.visit() == 1)
          use.open_gradient(0)[0] = std::numeric_limits<float>::quiet_NaN();
      });
      note_commit(engine);
    }
    engine.drain();
    note_commit(engine);
    geometry_ = std::make_unique<Geometry>(engine.geometry());
    identity_ = {.model = model_.canonical_text(),
                 .precision = reference_.precision,
                 .chunk_elements = geometry_->chunk_elements(),
                 .chunk_count = static_cast<int64_t>(geometry_->chunks().size())};
  }
  // What has been committed by now, and from where on its superblock was on its way.
  void note_commit(const Engine& engine) {
    const int64_t step = engine.committed().step;
    if (step == noted_) return;
    for (size_t i = looked_at_; i < drives_->events.size(); ++i) {
      const DriveEvent& event = drives_->events[i];
      if (event.kind != DriveEvent::Kind::kWrite || std::ranges::count(kSuperblockOffset, event.offset) == 0) continue;
      Superblock superblock;
      std::memcpy(&superblock, event.bytes.data(), sizeof superblock);
      marks_.push_back({.kind = StepMark::Kind::kMay, .events = i + 1, .step = superblock.step});
    }
    looked_at_ = drives_->events.size();
    noted_ = step;
    marks_.push_back({.kind = StepMark::Kind::kMust, .events = looked_at_, .step = step});
  }

  std::unique_ptr<RecordStore> open(const std::shared_ptr<RecordedDrives>& drives) {
    StoreOptions store{.folder = folder_.path(), .make_queue = recorded_queue_factory(drives), .queue = {.depth = 8}};
    return RecordStore::open(*geometry_, identity_, store);
  }
  Records records_of(RecordStore& store) {
    Records records;
    for (uint32_t chunk = 0; chunk < geometry_->chunks().size(); ++chunk) {
      for (const Group group : {Group::kWeights, Group::kState}) {
        const AlignedBuffer buffer(store.layout({chunk, group}).bytes);
        read_now(store, {chunk, group}, buffer.data());
        verify_record(store, {chunk, group}, buffer.data(), "block of the test");
        records.emplace_back(buffer.span().begin(), buffer.span().end());
      }
    }
    return records;
  }
  // The traffic up to each commit's return, all of it on the drive: what the step's records are.
  void record_steps() {
    auto drives = std::make_shared<RecordedDrives>();
    drives->record = RecordedDrives::Record::kNo;
    drives->paths = drives_->paths;
    drives->images.resize(drives_->images.size());
    size_t next = 0;
    for (const StepMark& mark : marks_) {
      if (mark.kind != StepMark::Kind::kMust) continue;
      for (; next < mark.events; ++next) {
        const DriveEvent& event = drives_->events[next];
        if (event.kind == DriveEvent::Kind::kWrite) drives->images[event.drive].write(event.offset, event.bytes);
      }
      for (DriveImage& image : drives->images) image.mark();
      const auto store = open(drives);
      ASSERT_NE(store, nullptr);
      ASSERT_EQ(store->committed().step, mark.step);
      steps_[mark.step] = records_of(*store);
      for (DriveImage& image : drives->images) image.undo();
    }
  }
  void check(const CrashState& crash) {
    const auto store = open(crash.drives);
    const int64_t found = store ? store->committed().step : -1;
    ASSERT_THAT(crash.allowed, Contains(found)) << crash.description;
    if (store) {
      ASSERT_TRUE(records_of(*store) == steps_.at(found)) << crash.description << ", step " << found;
    }
  }

  TempFolder folder_;
  ReferenceOptions reference_{.max_norm = 0.05};
  ModelSpec model_ = toy_model({.visits = 3, .elements = 600}, Precision::kBf16);
  std::shared_ptr<RecordedDrives> drives_ = std::make_shared<RecordedDrives>();
  std::unique_ptr<Geometry> geometry_;
  StoreIdentity identity_;
  std::vector<StepMark> marks_;
  size_t looked_at_ = 0;
  int64_t noted_ = -1;
  std::map<int64_t, Records> steps_;
};

TEST_P(RunAfterPowerCut, opens_at_the_last_committed_step_with_every_byte_of_it) {
  train(GetParam() == 1 ? 4 : 7);
  record_steps();
  CrashExplorer explorer(*drives_, marks_, SLUICE_EVERY_NTH_STATE);
  const int64_t states = explorer.explore([this](const CrashState& crash) {
    if (!HasFatalFailure()) check(crash);
  });
  EXPECT_GE(2 * geometry_->chunks().size(), 12u);
  EXPECT_GE(states, 15000 / SLUICE_EVERY_NTH_STATE);
  std::cout << states << " crash states of a run of " << 2 * geometry_->chunks().size() << " records, committed at "
            << steps_.size() << " steps\n";
}

INSTANTIATE_TEST_SUITE_P(commits_every, RunAfterPowerCut, ::testing::Values(1, 3), ::testing::PrintToStringParamName());

}  // namespace
}  // namespace sluice::testing
