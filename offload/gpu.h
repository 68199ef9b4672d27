// The GPUs of this machine as CUDA tells of them, for people and for the planner. Any thread.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace sluice {

// Where a card sits. What the system does not tell is 0, of the node -1.
struct PciPlace {
  int generation = 0;  // of PCI Express, the fastest that card and slot agree on
  int width = 0;       // lanes
  int numa_node = -1;  // whose memory and cores are nearest
};
// From a folder like /sys/bus/pci/devices/0000:01:00.0.
PciPlace read_pci_place(const std::filesystem::path& folder);

struct Gpu {
  std::string name;
  int64_t memory_bytes = 0, free_bytes = 0;
  int compute_capability = 0;  // 90 for 9.0
  std::string pci_address;     // "0000:01:00.0"
  PciPlace place;
};
// In CUDA's order; empty where why_no_gpu() has something to say. Throws DeviceError if a GPU that is there fails.
// Takes some memory of every one of them.
std::vector<Gpu> list_gpus();
// The one that is computed on, and no other is touched. Throws DeviceError where none answers.
Gpu first_gpu();
// Empty where a GPU answers; else what is missing: the build's CUDA side, a driver, a new enough driver, a GPU, one
// that is new enough.
std::string why_no_gpu();

std::string describe(const Gpu& gpu);  // one line

}  // namespace sluice
