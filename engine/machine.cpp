#include "engine/machine.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "core/errors.h"

namespace sluice {

std::span<const MachineField> machine_fields() {
  using M = MachineSpeeds;
  constexpr auto kAbove = MachineField::Least::kAboveZero, kZero = MachineField::Least::kZero;
  static constexpr MachineField kFields[] = {{"read_gb_per_s", &M::read_gb_per_s, kAbove},
                                             {"write_gb_per_s", &M::write_gb_per_s, kAbove},
                                             {"mixed_gb_per_s", &M::mixed_gb_per_s, kAbove},
                                             {"upload_gb_per_s", &M::upload_gb_per_s, kAbove},
                                             {"download_gb_per_s", &M::download_gb_per_s, kAbove},
                                             {"update_ns_per_element", &M::update_ns_per_element, kAbove},
                                             {"summed_ns_per_element", &M::summed_ns_per_element, kZero},
                                             {"out_of_place_ns_per_element", &M::out_of_place_ns_per_element, kZero},
                                             {"checksum_gb_per_s", &M::checksum_gb_per_s, kAbove},
                                             {"close_gb_per_s", &M::close_gb_per_s, kAbove},
                                             {"device_update_gb_per_s", &M::device_update_gb_per_s, kZero},
                                             {"compute_tflop_per_s", &M::compute_tflop_per_s, kZero},
                                             {"commit_ms", &M::commit_ms, kZero},
                                             {"transfer_us", &M::transfer_us, kZero},
                                             {"read_request_us", &M::read_request_us, kZero},
                                             {"write_request_us", &M::write_request_us, kZero},
                                             {"hop_us", &M::hop_us, kZero},
                                             {"cores", &M::cores, kAbove},
                                             {"compute_cores", &M::compute_cores, kZero},
                                             {"copy_cores", &M::copy_cores, kZero}};
  return kFields;
}

void MachineSpeeds::scale_drives(double times) {
  for (double* speed : {&read_gb_per_s, &write_gb_per_s, &mixed_gb_per_s}) *speed *= times;
}

void MachineSpeeds::validate() const {
  for (const MachineField& field : machine_fields()) {
    const double value = this->*field.value;
    const bool above = field.least == MachineField::Least::kAboveZero;
    if (std::isfinite(value) && (above ? value > 0 : value >= 0)) continue;
    throw ConfigError(fmt::format("a machine's {} is {}: allowed is a number {}", field.name, value,
                                  above ? "above 0" : "of 0 or more"));
  }
  for (const auto& [name, value] : {std::pair{"compute_cores", compute_cores}, {"copy_cores", copy_cores}}) {
    if (value <= cores) continue;
    throw ConfigError(fmt::format("a machine's {} is {}: allowed is up to its cores, {}", name, value, cores));
  }
  if (drives < 0) throw ConfigError(fmt::format("a machine's drives is {}: allowed is 0 or more", drives));
  if (update_threads >= 1) return;
  throw ConfigError(fmt::format("a machine's update_threads is {}: allowed is 1 or more", update_threads));
}

}  // namespace sluice
