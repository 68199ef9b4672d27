#include "engine/near_device.h"

namespace sluice {

NearDevice::NearDevice(const Topology& topology, int node) : topology_(topology), node_(node) {
  if (node < 0) return;
  everywhere_ = topology.cpus_of_this_thread();
  if (!everywhere_ || !topology.keep_this_thread_on(node)) return;
  near_ = topology.cpus_of_this_thread();
  topology.give_this_thread(*everywhere_);
}

NearDevice::Stay::Stay(const NearDevice& near) : topology_(near.topology_) {
  if (!near.near_) return;
  const std::optional<ThreadCpus> now = topology_.cpus_of_this_thread();
  if (now == near.everywhere_ && topology_.give_this_thread(*near.near_)) before_ = now;
}
NearDevice::Stay::~Stay() {
  if (before_) topology_.give_this_thread(*before_);
}

}  // namespace sluice
