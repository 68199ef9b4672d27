#include <fmt/format.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_scheduler_observer.h>
#include <oneapi/tbb/version.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "cpu_adam/task_fifo.h"
#include "cpu_adam/update_team.h"

namespace sluice {
namespace {

// Pins a worker when it enters the arena, by its slot there; workers move between arenas, so each entry pins anew.
class Pinner final : public tbb::task_scheduler_observer {
 public:
  Pinner(tbb::task_arena& arena, const Topology& topology, const std::vector<int>& cpus)
      : task_scheduler_observer(arena), topology_(topology), cpus_(cpus) {
    observe(true);
  }
  ~Pinner() override { observe(false); }

  void on_scheduler_entry(bool /*is_worker*/) noexcept override {
    const int slot = tbb::this_task_arena::current_thread_index();
    if (slot < 0) return;
    const int cpu = cpus_[static_cast<size_t>(slot) % cpus_.size()];
    if (cpu >= 0) topology_.pin_this_thread(cpu);
  }

 private:
  const Topology& topology_;
  std::vector<int> cpus_;
};

// TBB counts the caller as one, and by default has a worker fewer than the machine has CPUs. Of all the limits in a
// process the lowest holds: ours leaves room for other teams and for what else runs on TBB.
size_t most_workers(int threads) {
  return std::max<size_t>(static_cast<size_t>(threads), size_t{4} * std::thread::hardware_concurrency()) + 1;
}

struct NodeArena {
  NodeArena(const Topology& topology, int group_number, const std::vector<int>& cpus)
      : group(group_number),
        threads(static_cast<int>(cpus.size())),
        arena(threads, /*reserved_for_masters=*/0),
        pinner(arena, topology, cpus) {}
  int group, threads;
  int runners = 0;  // guarded by the team's mutex
  tbb::task_arena arena;
  Pinner pinner;
};

// TBB itself promises no order of enqueued tasks: ours wait in a FIFO, and what is enqueued is a runner that takes
// tasks from its front until it has none for its node. A node never has more runners than threads.
class UpdateTeamTbb final : public UpdateTeam {
 public:
  UpdateTeamTbb(const Topology& topology, int threads)
      : cpus_(cpus_of_team(topology, threads)),
        workers_(tbb::global_control::max_allowed_parallelism, most_workers(threads_of(cpus_))) {
    for (const TeamCpus& group : cpus_)
      nodes_.push_back(std::make_unique<NodeArena>(topology, static_cast<int>(nodes_.size()), group.cpus));
  }
  ~UpdateTeamTbb() override {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return runners_ == 0; });  // a runner ends only when the FIFO has nothing for it
  }

  void start(const Task& task) override {
    NodeArena* runner = nullptr;
    {
      std::unique_lock lock(mutex_);
      room_.wait(lock, [this] { return !fifo_.full(); });
      fifo_.push(task);
      runner = claim_runner(task.group);
    }
    if (runner) runner->arena.enqueue([this, runner]() noexcept { run(*runner); });
  }
  int threads() const override { return threads_of(cpus_); }
  std::string describe() const override {
    return fmt::format("TBB {}.{}, threads: {}, NUMA nodes: {}", TBB_VERSION_MAJOR, TBB_VERSION_MINOR, threads(),
                       nodes_.size());
  }

 private:
  // Of the nodes that may run it the one with most threads free; null when each thread has its runner. The mutex is
  // held.
  NodeArena* claim_runner(int group) {
    NodeArena* best = nullptr;
    for (const auto& node : nodes_) {
      if (group != kAnyGroup && group != node->group) continue;
      const int free = node->threads - node->runners;
      if (free > 0 && (!best || free > best->threads - best->runners)) best = node.get();
    }
    if (best) {
      ++best->runners;
      ++runners_;
    }
    return best;
  }

  void run(NodeArena& node) noexcept {
    std::unique_lock lock(mutex_);
    while (const std::optional<Task> task = fifo_.pop(node.group)) {
      lock.unlock();
      room_.notify_one();
      task->run(task->context, task->index);
      lock.lock();
    }
    --node.runners;
    if (--runners_ == 0) idle_.notify_one();  // under the lock: the destructor may go on as soon as it has it
  }

  std::vector<TeamCpus> cpus_;
  tbb::global_control workers_;
  std::vector<std::unique_ptr<NodeArena>> nodes_;
  std::mutex mutex_;
  std::condition_variable room_, idle_;
  TaskFifo fifo_;
  int runners_ = 0;
};

}  // namespace

std::unique_ptr<UpdateTeam> make_update_team(const Topology& topology, int threads) {
  return std::make_unique<UpdateTeamTbb>(topology, threads);
}

}  // namespace sluice
