// kill -9 in the middle of the store's traffic: the store opens at the last step whose commit returned, or the one
// whose superblock was on its way, with every byte of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <random>

#include "swap/record_store.h"
#include "tests/fakes/faulty_queue.h"
#include "tests/fakes/io_backends.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

constexpr int64_t kLastStep = 8;

class KilledStore : public OnEachBackend {
 protected:
  StoreOptions options(std::shared_ptr<Faults> faults) {
    return {.folder = folder_.path(),
            .make_queue = faulty_queue_factory(std::move(faults)),
            .queue = {.backend = GetParam(), .depth = 4},
            .block_bytes = 8192};
  }
  std::unique_ptr<RecordStore> open(std::shared_ptr<Faults> faults) {
    return RecordStore::open(run_.geometry, run_.identity, options(std::move(faults)));
  }

  // Steps up to kLastStep from where the store is: some of its records twice, as those with an NVMe home between
  // commits.
  static void train(RecordStore& store, const TestRun& run, int report_to) {
    for (int64_t step = store.committed().step + 1; step <= kLastStep; ++step) {
      for (RecordId record : run.records()) EXPECT_NO_THROW(read_verified(store, run, record));
      if (step % 2 == 0) write_records(store, run, 1000 + step);
      write_step(store, run, step);
      const auto told = static_cast<uint8_t>(step);
      if (report_to >= 0 && write(report_to, &told, 1) != 1) _exit(3);
    }
  }

  // Trains in a process of its own that is killed as `faults` says. Returns the last step whose commit returned there.
  int64_t train_and_be_killed(const Faults& plan) {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe(ends.data()), 0);
    const pid_t child = fork();
    if (child == 0) {
      auto store = open(std::make_shared<Faults>(plan));
      train(*store, run_, ends[1]);
      _exit(0);
    }
    close(ends[1]);
    int64_t last = 0;
    for (uint8_t told = 0; read(ends[0], &told, 1) == 1;) last = told;
    close(ends[0]);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "the plan did not kill the process: " << status;
    return last;
  }

  void make_first_step() {
    auto store = RecordStore::create(run_.geometry, run_.identity, options(std::make_shared<Faults>()));
    write_step(*store, run_, 0);
  }

  // After a kill: which step opens, and it can be trained to the end.
  int64_t recover() {
    auto store = open(std::make_shared<Faults>());
    if (!store) return -1;
    const int64_t step = store->committed().step;
    expect_step(*store, run_, step);
    train(*store, run_, -1);
    expect_step(*store, run_, kLastStep);
    store.reset();
    expect_step(*open(std::make_shared<Faults>()), run_, kLastStep);
    return step;
  }

  TempFolder folder_;
  TestRun run_;
};

TEST_P(KilledStore, opens_at_the_last_committed_step_wherever_it_was_killed) {
  make_first_step();
  auto whole = std::make_shared<Faults>();
  {
    auto store = open(whole);
    train(*store, run_, -1);
  }
  const int64_t traffic = whole->read_bytes + whole->written_bytes;
  std::mt19937_64 random(20);
  for (int kill = 0; kill < 20; ++kill) {
    make_first_step();
    Faults plan;
    plan.kill_after_bytes = static_cast<int64_t>(random() % static_cast<uint64_t>(traffic));
    SCOPED_TRACE(testing::Message() << "killed after " << plan.kill_after_bytes << " of " << traffic << " bytes");
    const int64_t last = train_and_be_killed(plan);
    EXPECT_THAT(recover(), testing::AnyOf(last, last + 1));
  }
}

TEST_P(KilledStore, between_a_table_and_its_superblock_the_step_before_opens) {
  for (int64_t commit = 1; commit <= kLastStep; ++commit) {
    make_first_step();
    Faults plan;
    plan.kill_at_superblock = commit;
    EXPECT_EQ(train_and_be_killed(plan), commit - 1);
    EXPECT_EQ(recover(), commit - 1);
  }
}

INSTANTIATE_TEST_SUITE_P(backends, KilledStore, testing::Values(IoBackend::kUring, IoBackend::kThreads),
                         name_of_backend);

}  // namespace
}  // namespace sluice
