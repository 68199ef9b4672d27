#include <fmt/format.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/version.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "core/ieee_arithmetic.h"
#include "cpu_adam/task_fifo.h"
#include "cpu_adam/update_team.h"

namespace sluice {
namespace {

// While it lives the calling thread is pinned to a CPU. Workers are the process's, not a team's: what else runs on TBB
// would stay on that CPU.
class Pinned {
 public:
  Pinned(const Topology& topology, int cpu) : topology_(topology) {
    if (cpu < 0) return;
    before_ = topology.cpus_of_this_thread();
    pinned_ = topology.pin_this_thread(cpu);
  }
  ~Pinned() {
    if (!pinned_ || (before_ && topology_.give_this_thread(*before_))) return;
    topology_.keep_this_thread_on(Topology::kEveryNode);
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  const Topology& topology_;
  std::optional<ThreadCpus> before_;
  bool pinned_ = false;
};

// TBB counts the caller as one, and by default has a worker fewer than the machine has CPUs. Of all the limits in a
// process the lowest holds: ours leaves room for other teams and for what else runs on TBB.
size_t most_workers(int threads) {
  return std::max<size_t>(static_cast<size_t>(threads), size_t{4} * std::thread::hardware_concurrency()) + 1;
}

struct NodeArena {
  NodeArena(int group_number, const std::vector<int>& of_cpus)
      : group(group_number),
        threads(static_cast<int>(of_cpus.size())),
        cpus(of_cpus),
        arena(threads, /*reserved_for_masters=*/0) {}
  // Of the calling worker, by its slot in the arena.
  int cpu() const { return cpus[static_cast<size_t>(tbb::this_task_arena::current_thread_index()) % cpus.size()]; }
  int group, threads;
  std::vector<int> cpus;
  int runners = 0;  // guarded by the team's mutex
  tbb::task_arena arena;
};

// TBB itself promises no order of enqueued tasks: ours wait in a FIFO, and what is enqueued is a runner that takes
// tasks from its front until it has none for its node. A node never has more runners than threads.
class UpdateTeamTbb final : public UpdateTeam {
 public:
  UpdateTeamTbb(const Topology& topology, int threads)
      : topology_(topology),
        cpus_(cpus_of_team(topology, threads)),
        workers_(tbb::global_control::max_allowed_parallelism, most_workers(threads_of(cpus_))) {
    for (const TeamCpus& group : cpus_)
      nodes_.push_back(std::make_unique<NodeArena>(static_cast<int>(nodes_.size()), group.cpus));
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

  // A worker has back what it had, CPUs and arithmetic, before the last runner's end is seen.
  void run(NodeArena& node) noexcept {
    std::optional<Pinned> pinned(std::in_place, topology_, node.cpu());
    std::optional<IeeeArithmetic> arithmetic(std::in_place);
    std::unique_lock lock(mutex_);
    while (const std::optional<Task> task = fifo_.pop(node.group)) {
      lock.unlock();
      room_.notify_one();
      task->run(task->context, task->index);
      lock.lock();
    }
    arithmetic.reset();
    pinned.reset();
    --node.runners;
    if (--runners_ == 0) idle_.notify_one();  // under the lock: the destructor may go on as soon as it has it
  }

  const Topology& topology_;
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
