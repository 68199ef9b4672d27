#include "engine/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "core/errors.h"

namespace sluice {
namespace {

struct Allowed {
  std::string_view group;
  std::vector<HomeKind> homes;
  std::string_view advice;
};

void check_group(const HomeShares& shares, const Allowed& allowed) {
  double sum = 0;
  for (const HomeShare& share : shares) {
    if (share.home == HomeKind::kAuto && shares.size() > 1) {
      throw ConfigError(fmt::format(
          "sluice.placement.{}: \"auto\" stands alone: give the share of each home, or \"auto\"", allowed.group));
    }
    bool known = false;
    std::string names;
    for (HomeKind home : allowed.homes) {
      known |= home == share.home;
      names += fmt::format("{}{}", names.empty() ? "" : " | ", name_of(home));
    }
    if (!known) {
      throw ConfigError(fmt::format("sluice.placement.{}: \"{}\" is not possible; allowed: {}{}", allowed.group,
                                    name_of(share.home), names, allowed.advice));
    }
    if (!(share.share >= 0 && share.share <= 1)) {
      throw ConfigError(fmt::format("sluice.placement.{}: the share of \"{}\" is {}; allowed: 0 to 1", allowed.group,
                                    name_of(share.home), share.share));
    }
    sum += share.share;
  }
  if (!shares.empty() && std::abs(sum - 1) > 1e-6) {
    throw ConfigError(fmt::format("sluice.placement.{}: the shares sum to {}, not to 1", allowed.group, sum));
  }
}

// The device updates a chunk where its state, its gradient and its weights lie.
void check_beside_state_on_device(std::string_view group, const HomeShares& shares, std::span<const HomeKind> allowed,
                                  std::string_view advice) {
  for (const HomeShare& share : shares) {
    if (share.home == HomeKind::kAuto || std::ranges::find(allowed, share.home) != allowed.end()) continue;
    throw ConfigError(fmt::format(
        "sluice.placement.{}: \"{}\" does not go with sluice.placement.state \"device\": the device updates "
        "a chunk where its state, its gradient and its weights lie; leave sluice.placement.{} out, or {}",
        group, name_of(share.home), group, advice));
  }
}

}  // namespace

std::string_view name_of(HomeKind kind) {
  constexpr std::string_view kNames[] = {"auto", "device", "host", "nvme", "host+device", "nvme+device"};
  return kNames[static_cast<int>(kind)];
}

void Placement::validate() const {
  using enum HomeKind;
  check_group(weights, {"weights",
                        {kAuto, kHost, kNvme, kHostAndDevice, kNvmeAndDevice},
                        " (\"host+device\" and \"nvme+device\" keep a copy on the device)"});
  check_group(state, {"state", {kAuto, kDevice, kHost, kNvme}, ""});
  check_group(gradient, {"gradient", {kAuto, kDevice, kHost, kNvme}, ""});
  check_group(activations, {"activations", {kAuto, kDevice, kHost, kNvme}, ""});
  if (std::ranges::none_of(state, [](const HomeShare& s) { return s.home == kDevice && s.share > 0; })) return;
  check_beside_state_on_device("weights", weights, std::array{kHostAndDevice, kNvmeAndDevice},
                               "keep them on the device (\"host+device\", \"nvme+device\")");
  check_beside_state_on_device("gradient", gradient, std::array{kDevice}, "set it to \"device\"");
}

}  // namespace sluice
