#include "engine/placement.h"

#include <fmt/format.h>

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
  check_group(state, {"state", {kAuto, kHost, kNvme}, " (state on the device needs an optimizer there)"});
  check_group(gradient, {"gradient", {kAuto, kDevice, kHost, kNvme}, ""});
  check_group(activations, {"activations", {kAuto, kDevice, kHost, kNvme}, ""});
}

}  // namespace sluice
