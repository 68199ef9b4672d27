// Power cuts: the traffic of whole runs is recorded, and the store is opened on every state that a cut at any point of
// it can leave.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <utility>

#include "swap/record_store.h"
#include "swap/store_format.h"
#include "tests/fakes/crash_explorer.h"
#include "tests/fakes/recorded_drives.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

// Over one drive and over two.
class StoreAfterPowerCut : public testing::TestWithParam<int> {
 protected:
  using Kind = StepMark::Kind;

  // --- the run that is recorded

  StoreOptions options(std::shared_ptr<RecordedDrives> drives) {
    const bool two = GetParam() == 2;
    return {.folder = folder_.path() / "first",
            .more_folders = two ? std::vector{folder_.path() / "second"} : std::vector<std::filesystem::path>{},
            .drive_weights = two ? std::vector<uint32_t>{3, 2} : std::vector<uint32_t>{},
            .make_queue = recorded_queue_factory(std::move(drives)),
            .queue = {.depth = 4},
            .block_bytes = 32768};
  }
  std::unique_ptr<RecordStore> open(std::shared_ptr<RecordedDrives> drives) {
    return RecordStore::open(run_.geometry, run_.identity, options(std::move(drives)));
  }
  void create() { store_ = RecordStore::create(run_.geometry, run_.identity, options(drives_)); }
  void reopen() {
    store_.reset();
    store_ = open(drives_);
    ASSERT_NE(store_, nullptr);
  }
  size_t events() const { return drives_->events.size(); }
  void mark(Kind kind, size_t at, int64_t step) { marks_.push_back({.kind = kind, .events = at, .step = step}); }

  // A table of more than one block: it can be torn at 4 KiB.
  StepState state(int64_t step) const {
    StepState state = run_.state(step);
    state.caller.resize(5000, std::byte(step));
    return state;
  }
  // All records, as after this step, into their working slots.
  void write(int64_t step) { write_records(*store_, run_, step); }
  void give_up_every(size_t nth) {
    const std::vector<RecordId> records = run_.records();
    for (size_t i = 0; i < records.size(); i += nth) store_->discard(records[i]);
  }
  // A skipped step has the records of an earlier one.
  void commit(int64_t step, int64_t records_of) {
    records_of_[step] = records_of;
    const size_t before = events();
    commit_now(*store_, state(step));
    for (size_t i = before; i < events(); ++i) {
      const bool is_superblock = drives_->events[i].drive == 0 && drives_->events[i].kind == DriveEvent::Kind::kWrite &&
                                 std::ranges::count(kSuperblockOffset, drives_->events[i].offset) > 0;
      if (is_superblock) mark(Kind::kMay, i + 1, step);
    }
    mark(Kind::kMust, events(), step);
  }
  void step(int64_t number) {
    write(number);
    commit(number, number);
  }

  // The drive itself does this to what was durable.
  void damage(size_t drive, int64_t offset) {
    DriveEvent event{.kind = DriveEvent::Kind::kWrite, .drive = drive, .offset = offset};
    event.bytes.resize(kStoreBlockBytes);
    drives_->images[drive].read(offset, event.bytes);
    for (size_t at = 100; at < event.bytes.size(); at += kSectorBytes) event.bytes[at] ^= std::byte{1};
    drives_->images[drive].write(offset, event.bytes);
    const size_t write = events();
    drives_->events.push_back(std::move(event));
    drives_->events.push_back({.kind = DriveEvent::Kind::kWriteDone, .drive = drive, .request = write});
    drives_->events.push_back({.kind = DriveEvent::Kind::kSync, .drive = drive});
    drives_->events.push_back({.kind = DriveEvent::Kind::kSyncDone, .drive = drive, .request = write + 2});
  }

  // --- the states

  void explore() {
    store_.reset();
    CrashExplorer explorer(*drives_, marks_, SLUICE_EVERY_NTH_STATE);
    const int64_t states = explorer.explore([this](const CrashState& state) {
      if (HasFatalFailure()) return;
      check(state);
      if (++visited_ % 101 == 0) go_on(state);
      if (visited_ % kEveryNthTakenBack == 0) take_back(state);
    });
    EXPECT_GE(run_.records().size(), 12u);
    EXPECT_GE(states, 10000 / SLUICE_EVERY_NTH_STATE);
    for (const auto& [number, records] : records_of_) {  // a sample may leave out the few states of a step
      EXPECT_TRUE(opened_.contains(number) || SLUICE_EVERY_NTH_STATE > 1) << number;
    }
    if (SLUICE_EVERY_NTH_STATE == 1) {
      EXPECT_GE(taken_back_, 1);
    }
    EXPECT_EQ(drives_->images.size(), static_cast<size_t>(GetParam()));
    std::cout << states << " crash states of " << run_.records().size() << " records on " << GetParam()
              << " drives opened as they must; of those tried " << taken_back_ << " went back a step and " << refused_
              << " refused to\n";
  }

  void check(const CrashState& crash) {
    auto store = open(crash.drives);
    const int64_t found = store ? store->committed().step : -1;
    ASSERT_THAT(crash.allowed, Contains(found)) << crash.description;
    opened_.insert(found);
    if (!store) return;
    check_content(*store, found, crash);
  }

  void check_content(RecordStore& store, int64_t step, const CrashState& crash) {
    const StepState expected = state(step);
    ASSERT_EQ(store.committed().caller, expected.caller) << crash.description;
    ASSERT_EQ(store.committed().applied_steps, expected.applied_steps) << crash.description;
    ASSERT_EQ(store.committed().data_position, expected.data_position) << crash.description;
    for (RecordId record : run_.records()) {
      const std::vector<std::byte>& content = content_of(record, records_of_.at(step));
      ASSERT_TRUE(read_verified(store, run_, record) == content)
          << crash.description << ": chunk " << record.chunk << ", " << name_of(record.group) << ", step " << step;
    }
  }

  // The step before is there with every byte of it, or it is refused and the newer one stays.
  void take_back(const CrashState& crash) {
    auto store = open(crash.drives);
    if (!store || store->openable_steps().size() < 2) return;
    const std::vector<int64_t> steps = store->openable_steps();
    int64_t step = steps[1];
    try {
      store->open_step(step);
      ++taken_back_;
    } catch (const CorruptionError& error) {
      EXPECT_THAT(error.what(), HasSubstr("the store opens at step " + std::to_string(steps[0]) + " only"));
      ++refused_;
      step = steps[0];
    }
    EXPECT_THAT(store->openable_steps(), ElementsAre(step));
    store.reset();
    store = open(crash.drives);
    ASSERT_NE(store, nullptr) << crash.description;
    ASSERT_EQ(store->committed().step, step) << crash.description;
    check_content(*store, step, crash);
  }

  // Training goes on from the state, and what it commits is what opens next.
  void go_on(const CrashState& crash) {
    const int64_t number = 100 + visited_;
    auto store = open(crash.drives);
    if (!store) return;
    write_step(*store, run_, number);
    store.reset();
    expect_step(*open(crash.drives), run_, number);
  }

  const std::vector<std::byte>& content_of(RecordId record, int64_t step) {
    std::vector<std::byte>& content = contents_[{record.chunk, record.group, step}];
    if (content.empty()) {
      content.resize(static_cast<size_t>(run_.layout(record).bytes));
      fill_content(run_, record, step, content);
    }
    return content;
  }

  TempFolder folder_;
  TestRun run_{Precision::kBf16, 1200};
  std::shared_ptr<RecordedDrives> drives_ = std::make_shared<RecordedDrives>();
  std::unique_ptr<RecordStore> store_;
  std::vector<StepMark> marks_;
  std::map<int64_t, int64_t> records_of_;
  std::set<int64_t> opened_;
  std::map<std::tuple<uint32_t, Group, int64_t>, std::vector<std::byte>> contents_;
  static constexpr int64_t kEveryNthTakenBack = 37;
  int64_t visited_ = 0, taken_back_ = 0, refused_ = 0;
};

TEST_P(StoreAfterPowerCut, a_run_that_commits_every_step_opens_at_the_last_one) {
  create();
  step(0);
  step(1);
  write(92);  // early updates of a step that is then skipped: the table keeps its slots
  give_up_every(1);
  commit(2, 1);
  reopen();
  reopen();
  write(93);  // early updates with the wrong scale, done anew, of some by being written over alone
  give_up_every(2);
  step(3);
  reopen();
  write(94);
  explore();
}

TEST_P(StoreAfterPowerCut, a_run_that_commits_every_third_step_opens_at_the_last_committed_one) {
  create();
  step(0);
  for (int64_t number : {1, 2}) write(number);
  step(3);
  for (int64_t number : {4, 5}) write(number);
  commit(6, 5);  // the commit step was skipped: the records are those of the step before
  reopen();
  for (int64_t number : {7, 8}) write(number);
  explore();
}

TEST_P(StoreAfterPowerCut, a_store_taken_back_a_step_never_opens_at_the_one_that_was_given_up) {
  create();
  step(0);
  step(1);
  reopen();
  EXPECT_THAT(store_->openable_steps(), ElementsAre(1, 0));
  mark(Kind::kMay, events(), 0);
  store_->open_step(0);
  mark(Kind::kMust, events(), 0);
  EXPECT_THAT(store_->openable_steps(), ElementsAre(0));
  write(91);
  step(2);
  explore();
}

TEST_P(StoreAfterPowerCut, a_store_whose_header_was_being_mended_opens_all_the_same) {
  create();
  step(0);
  for (int64_t number = 1; number < 5; ++number) {
    store_.reset();
    damage(static_cast<size_t>(number) % drives_->images.size(), kIdentityOffset[number / 2 % 2]);
    reopen();
    step(number);
  }
  explore();
}

INSTANTIATE_TEST_SUITE_P(drives, StoreAfterPowerCut, testing::Values(1, 2), testing::PrintToStringParamName());

}  // namespace
}  // namespace sluice
