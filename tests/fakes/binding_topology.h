// A machine that is not this one and writes down what is bound to its nodes.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/topology.h"

namespace sluice {

// What is done to a machine, and to the thread that made its topology; others are left alone.
struct Touched {
  std::map<int, int64_t> bound_bytes;  // by node
  std::vector<int> kept_on;            // the nodes that the thread was kept on, in turn
  int now_on = Topology::kEveryNode;   // ... and is
};

class BindingTopology final : public Topology {
 public:
  BindingTopology(const std::string& machine, Touched& touched)
      : machine_(make_topology_synthetic(machine)), touched_(touched) {}
  std::string describe() const override { return machine_->describe(); }
  int node_count() const override { return machine_->node_count(); }
  std::vector<int> cpus_of_node(int node) const override { return machine_->cpus_of_node(node); }
  int cores_of_node(int node) const override { return machine_->cores_of_node(node); }
  int core_count() const override { return machine_->core_count(); }
  bool pin_this_thread(int cpu) const noexcept override { return machine_->pin_this_thread(cpu); }
  bool keep_this_thread_on(int node) const noexcept override {
    if (!is_makers_thread()) return true;
    touched_.kept_on.push_back(node);
    touched_.now_on = node;
    return true;
  }
  std::optional<ThreadCpus> cpus_of_this_thread() const noexcept override {
    return ThreadCpus{{static_cast<uint64_t>(is_makers_thread() ? touched_.now_on : kEveryNode)}};
  }
  bool give_this_thread(const ThreadCpus& cpus) const noexcept override {
    return keep_this_thread_on(static_cast<int>(cpus.bits[0]));
  }
  int node_of_system(int number) const override { return machine_->node_of_system(number); }
  bool bind_memory(std::span<std::byte> pages, int node) const noexcept override {
    touched_.bound_bytes[node] += static_cast<int64_t>(pages.size());
    return false;  // and the engine goes on
  }
  std::string cpu_name() const override { return machine_->cpu_name(); }

 private:
  bool is_makers_thread() const noexcept { return std::this_thread::get_id() == maker_; }

  const std::thread::id maker_ = std::this_thread::get_id();
  std::unique_ptr<Topology> machine_;
  Touched& touched_;
};

}  // namespace sluice
