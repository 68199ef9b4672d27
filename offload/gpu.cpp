#include "offload/gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <locale>

#include "core/bytes.h"

namespace sluice {
namespace {

// The number that a file of sysfs begins with, or `missing`.
double number_in(const std::filesystem::path& file, double missing) {
  double value = missing;
  std::ifstream stream(file);
  stream.imbue(std::locale::classic());  // the process's may write numbers otherwise
  return stream >> value ? value : missing;
}

}  // namespace

// The link in use may rest at a lower speed, so that the fastest one counts: what card and port above it both can.
PciPlace read_pci_place(const std::filesystem::path& folder) {
  constexpr std::array<double, 7> kGigatransfers = {2.5, 5, 8, 16, 32, 64, 128};  // a second and lane, by generation
  std::error_code error;
  const auto port = std::filesystem::canonical(folder, error).parent_path();
  const auto of_both = [&](const char* file) {
    const double card = number_in(folder / file, 0);
    return std::min(card, number_in(port / file, card));
  };
  const auto found = std::ranges::find(kGigatransfers, of_both("max_link_speed"));
  return {.generation = found == kGigatransfers.end() ? 0 : static_cast<int>(found - kGigatransfers.begin()) + 1,
          .width = static_cast<int>(of_both("max_link_width")),
          .numa_node = static_cast<int>(number_in(folder / "numa_node", -1))};
}

std::string describe(const Gpu& gpu) {
  std::string text = fmt::format("{} (compute capability {}.{}), {} free of {}, at {}", gpu.name,
                                 gpu.compute_capability / 10, gpu.compute_capability % 10, format_bytes(gpu.free_bytes),
                                 format_bytes(gpu.memory_bytes), gpu.pci_address);
  if (gpu.place.generation > 0) text += fmt::format(", PCIe {}.0 x{}", gpu.place.generation, gpu.place.width);
  if (gpu.place.numa_node >= 0) text += fmt::format(", NUMA node {}", gpu.place.numa_node);
  return text;
}

}  // namespace sluice
