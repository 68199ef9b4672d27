#include <fmt/format.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "cpu_adam/task_fifo.h"
#include "cpu_adam/update_team.h"

namespace sluice {
namespace {

class UpdateTeamStd final : public UpdateTeam {
 public:
  UpdateTeamStd(const Topology& topology, int threads) {
    const auto cpus = cpus_of_team(topology, threads);
    nodes_ = static_cast<int>(cpus.size());
    threads_.reserve(static_cast<size_t>(threads_of(cpus)));
    try {
      for (const auto& node : cpus) {
        for (const int cpu : node) threads_.emplace_back([this, &topology, cpu] { work(topology, cpu); });
      }
    } catch (...) {
      join();
      throw;
    }
  }
  ~UpdateTeamStd() override { join(); }

  void start(void (*task)(void* context, int index), void* context, int index) override {
    {
      std::unique_lock lock(mutex_);
      room_.wait(lock, [this] { return !fifo_.full(); });
      fifo_.push({task, context, index});
    }
    work_.notify_one();
  }
  int threads() const override { return static_cast<int>(threads_.size()); }
  std::string describe() const override {
    return fmt::format("std::thread, threads: {}, NUMA nodes: {}", threads(), nodes_);
  }

 private:
  void work(const Topology& topology, int cpu) noexcept {
    if (cpu >= 0) topology.pin_this_thread(cpu);
    std::unique_lock lock(mutex_);
    while (true) {
      work_.wait(lock, [this] { return ending_ || !fifo_.empty(); });
      if (fifo_.empty()) return;
      const TaskFifo::Task task = fifo_.pop();
      lock.unlock();
      room_.notify_one();
      task.run(task.context, task.index);
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
  int nodes_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<UpdateTeam> make_update_team_std(const Topology& topology, int threads) {
  return std::make_unique<UpdateTeamStd>(topology, threads);
}

}  // namespace sluice
