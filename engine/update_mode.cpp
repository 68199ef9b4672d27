#include "engine/update_mode.h"

#include <fmt/format.h>

#include "core/errors.h"

namespace sluice {

std::string_view name_of(UpdateMode mode) {
  constexpr std::string_view kNames[] = {"auto", "deferred", "speculative", "replay"};
  return kNames[static_cast<int>(mode)];
}

void check_update_mode(UpdateMode mode, int commit_interval, const Placement& placement) {
  if (mode != UpdateMode::kSpeculative && mode != UpdateMode::kReplay) return;
  if (commit_interval > 1) {
    throw ConfigError(
        fmt::format("sluice.update is \"{}\" and sluice.commit_interval is {}: an update that may have to be undone "
                    "needs a commit in every step; set sluice.commit_interval to 1 or sluice.update to \"deferred\"",
                    name_of(mode), commit_interval));
  }
  if (mode == UpdateMode::kReplay && !free_to_choose(placement.gradient)) {
    throw ConfigError(
        "sluice.update is \"replay\", which keeps no gradients, and sluice.placement.gradient names a home for them: "
        "leave out one of the two");
  }
}

}  // namespace sluice
