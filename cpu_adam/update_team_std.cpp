#include <fmt/format.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "core/threads.h"
#include "cpu_adam/task_fifo.h"
#include "cpu_adam/update_team.h"

namespace sluice {
namespace {

class UpdateTeamStd final : public UpdateTeam {
 public:
  UpdateTeamStd(const Topology& topology, int threads) {
    const std::vector<TeamCpus> groups = cpus_of_team(topology, threads);
    groups_ = static_cast<int>(groups.size());
    threads_.reserve(static_cast<size_t>(threads_of(groups)));
    try {
      for (int group = 0; group < groups_; ++group) {
        for (const int cpu : groups[static_cast<size_t>(group)].cpus) {
          threads_.push_back(start_thread("a thread for the update", [this, &topology, cpu, group] {
            if (cpu >= 0) topology.pin_this_thread(cpu);
            work(group);
          }));
        }
      }
    } catch (...) {
      join();
      throw;
    }
  }
  ~UpdateTeamStd() override { join(); }

  void start(const Task& task) override {
    {
      std::unique_lock lock(mutex_);
      room_.wait(lock, [this] { return !fifo_.full(); });
      fifo_.push(task);
    }
    if (task.group == kAnyGroup) {
      work_.notify_one();
    } else {
      work_.notify_all();  // threads of all groups wait here
    }
  }
  int threads() const override { return static_cast<int>(threads_.size()); }
  std::string describe() const override {
    return fmt::format("std::thread, threads: {}, NUMA nodes: {}", threads(), groups_);
  }

 private:
  void work(int group) noexcept {
    std::unique_lock lock(mutex_);
    while (true) {
      work_.wait(lock, [&] { return ending_ || fifo_.has_task_for(group); });
      const std::optional<Task> task = fifo_.pop(group);
      if (!task) return;
      lock.unlock();
      room_.notify_one();
      task->run(task->context, task->index);
      lock.lock();
    }
  }

  void join() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    work_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

  std::mutex mutex_;
  std::condition_variable work_, room_;
  TaskFifo fifo_;
  bool ending_ = false;
  int groups_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<UpdateTeam> make_update_team_std(const Topology& topology, int threads) {
  return std::make_unique<UpdateTeamStd>(topology, threads);
}

}  // namespace sluice
