// Where bytes may rest: what the user forces, per group, and what the planner decides. Plain values.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// Homes that can be asked for. kHostAndDevice, kNvmeAndDevice: weights that are also kept on the device.
enum class HomeKind : uint8_t { kAuto, kDevice, kHost, kNvme, kHostAndDevice, kNvmeAndDevice };
std::string_view name_of(HomeKind kind);  // "auto", "device", "host", "nvme", "host+device", "nvme+device"

struct HomeShare {
  HomeKind home = HomeKind::kAuto;
  double share = 1;  // of the chunks, in canonical order; shares of a group sum to 1
  bool operator==(const HomeShare&) const = default;
};
// Empty: auto, which stands alone.
using HomeShares = std::vector<HomeShare>;
inline bool free_to_choose(const HomeShares& shares) { return shares.empty() || shares[0].home == HomeKind::kAuto; }

struct Placement {
  HomeShares weights, state, gradient, activations;
  // Throws ConfigError for a home the group cannot have (naming group, home and what is allowed), shares whose sum is
  // not 1, or homes of weights or gradients that do not go with state at home on the device.
  void validate() const;
  bool operator==(const Placement&) const = default;
};

}  // namespace sluice
