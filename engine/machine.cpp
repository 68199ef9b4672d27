#include "engine/machine.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "core/errors.h"

namespace sluice {

void MachineSpeeds::validate() const {
  const std::pair<const char*, double> speeds[] = {
      {"read_gb_per_s", read_gb_per_s},         {"write_gb_per_s", write_gb_per_s},
      {"mixed_gb_per_s", mixed_gb_per_s},       {"upload_gb_per_s", upload_gb_per_s},
      {"download_gb_per_s", download_gb_per_s}, {"update_ns_per_element", update_ns_per_element},
      {"checksum_gb_per_s", checksum_gb_per_s}, {"close_gb_per_s", close_gb_per_s},
      {"update_threads", update_threads},       {"cores", cores}};
  for (const auto& [name, value] : speeds) {
    if (!std::isfinite(value) || value <= 0) {
      throw ConfigError(fmt::format("a machine's {} is {}: it must be a number above 0", name, value));
    }
  }
  const std::pair<const char*, double> maybe[] = {{"compute_tflop_per_s", compute_tflop_per_s},
                                                  {"commit_ms", commit_ms},
                                                  {"transfer_us", transfer_us},
                                                  {"hop_us", hop_us},
                                                  {"copy_cores", copy_cores},
                                                  {"compute_cores", compute_cores}};
  for (const auto& [name, value] : maybe) {
    if (!std::isfinite(value) || value < 0) {
      throw ConfigError(fmt::format("a machine's {} is {}: it must be a number, 0 or more", name, value));
    }
  }
}

}  // namespace sluice
