// On a machine of several NUMA nodes: the one nearest to the GPU, and threads that stay there. Who calls the engine
// launches what the GPU computes, so its thread stays near while a step runs, and has its CPUs back afterwards.
#pragma once
#include <optional>

#include "core/topology.h"

namespace sluice {

class NearDevice {
 public:
  // `node`: of the topology, which must outlive this; below 0: none is near, and nobody stays anywhere.
  NearDevice(const Topology& topology, int node);
  int node() const { return node_; }

  // While it lives the calling thread runs near the device; threads that it starts meanwhile do for good. A thread that
  // may not run on all CPUs that the maker of `near` could was placed by its owner, and is left alone. Ends on the
  // thread that it began on. Best effort, no allocation.
  class Stay {
   public:
    explicit Stay(const NearDevice& near);
    ~Stay();
    Stay(const Stay&) = delete;
    Stay& operator=(const Stay&) = delete;

   private:
    const Topology& topology_;
    std::optional<ThreadCpus> before_;  // nothing: it was not moved
  };

 private:
  const Topology& topology_;
  int node_;
  std::optional<ThreadCpus> everywhere_, near_;
};

}  // namespace sluice
