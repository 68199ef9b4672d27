// Power cuts: the traffic of several sessions is recorded, and the store is opened on thousands of states that a cut at
// any point of it can leave.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "swap/record_store.h"
#include "swap/store_format.h"
#include "tests/fakes/crash_image.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

class StoreAfterPowerCut : public testing::Test {
 protected:
  struct Commit {
    size_t superblock_event = 0, returned_event = 0;  // events so far when it was issued, when the commit returned
    int64_t step = 0;
  };

  StoreOptions options(std::shared_ptr<ImageDrive> drive) {
    return {.folder = folder_.path(),
            .make_queue = image_queue_factory(std::move(drive)),
            .queue = {.depth = 4},
            .block_bytes = 8192};
  }
  std::unique_ptr<RecordStore> open(std::shared_ptr<ImageDrive> drive) {
    return RecordStore::open(run_.geometry, run_.identity, options(std::move(drive)));
  }

  void step(RecordStore& store, int64_t number, ImageDrive& drive) {
    if (number % 3 == 1) write_records(store, run_, 1000 + number);  // twice in the working slots
    write_step(store, run_, number);
    commits_.push_back(
        {.superblock_event = drive.events.size() - 1, .returned_event = drive.events.size(), .step = number});
  }

  // Three sessions: creation and steps 0 to 2, an opening that does nothing, an opening and steps 3 to 5.
  void record() {
    auto drive = std::make_shared<ImageDrive>();
    {
      auto store = RecordStore::create(run_.geometry, run_.identity, options(drive));
      for (int64_t number = 0; number < 3; ++number) step(*store, number, *drive);
    }
    open(drive);
    {
      auto store = open(drive);
      for (int64_t number = 3; number < 6; ++number) step(*store, number, *drive);
      write_records(*store, run_, 99);
    }
    events_ = drive->events;
  }

  // The state after a cut when `count` events had been issued.
  std::shared_ptr<ImageDrive> cut(size_t count, Survival survival, std::mt19937_64& random) {
    auto after = std::make_shared<ImageDrive>();
    size_t durable = 0;
    for (size_t i = 0; i + 1 < count; ++i) {  // the last one is under way
      if (events_[i].op == IoOp::kSync) durable = i;
    }
    for (size_t i = 0; i < count; ++i) apply(after->image, events_[i], i < durable ? Survival::kAll : survival, random);
    return after;
  }

  // -1: nothing opens.
  int64_t check_state(const std::shared_ptr<ImageDrive>& drive) {
    auto store = open(drive);
    if (!store) return -1;
    const int64_t opened = store->committed().step;
    const StepState expected = run_.state(opened);
    EXPECT_EQ(store->committed().caller, expected.caller);
    EXPECT_EQ(store->committed().data_position, expected.data_position);
    for (RecordId record : run_.records()) {
      const std::vector<std::byte> bytes =
          read_verified(*store, run_, record);  // throws where it is not what was written
      EXPECT_TRUE(std::ranges::equal(plane_crcs(run_, record, bytes), crcs_of(record, opened))) << "step " << opened;
    }
    return opened;
  }

  const std::vector<uint32_t>& crcs_of(RecordId record, int64_t number) {
    std::vector<uint32_t>& crcs = crcs_[{record.chunk, record.group, number}];
    if (crcs.empty()) {
      std::vector<std::byte> bytes(static_cast<size_t>(run_.layout(record).bytes));
      fill_content(run_, record, number, bytes);
      crcs = plane_crcs(run_, record, bytes);
    }
    return crcs;
  }

  TempFolder folder_;
  TestRun run_;
  std::vector<TrafficEvent> events_;
  std::vector<Commit> commits_;
  std::map<std::tuple<uint32_t, Group, int64_t>, std::vector<uint32_t>> crcs_;
};

TEST_F(StoreAfterPowerCut, opens_at_the_last_committed_step_in_every_state_that_a_cut_can_leave) {
  record();
  std::mt19937_64 random(7);
  int64_t states = 0;
  std::set<int64_t> opened;
  for (size_t count = 1; count <= events_.size(); ++count) {
    std::set<int64_t> allowed;
    int64_t last = -1;
    for (const Commit& commit : commits_) {
      if (commit.returned_event <= count - 1) last = commit.step;
      if (commit.superblock_event <= count) allowed.insert(commit.step);
    }
    allowed.insert(-1);
    allowed.erase(allowed.begin(), allowed.lower_bound(last));
    std::vector<Survival> survivals = {Survival::kNone, Survival::kAll};
    survivals.insert(survivals.end(), 4, Survival::kWholeWrites);
    survivals.insert(survivals.end(), 6, Survival::kSectors);
    for (Survival survival : survivals) {
      SCOPED_TRACE(testing::Message() << "cut at event " << count << ", survival " << static_cast<int>(survival));
      const auto drive = cut(count, survival, random);
      const int64_t found = check_state(drive);
      ASSERT_THAT(allowed, testing::Contains(found));
      opened.insert(found);
      ++states;
      if (states % 16 != 0 || found < 0) continue;
      write_step(*open(drive), run_, found + 1);  // and it goes on from there
      ASSERT_EQ(check_state(drive), found + 1);
    }
  }
  EXPECT_GE(states, 2000);
  EXPECT_EQ(opened.size(), 7u);  // nothing, and steps 0 to 5
}

}  // namespace
}  // namespace sluice
