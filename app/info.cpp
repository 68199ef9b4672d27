#include <fmt/format.h>
#include <sys/resource.h>

#include <iterator>

#include "app/commands.h"
#include "core/bytes.h"
#include "core/topology.h"
#include "cpu_adam/adam.h"
#include "cpu_adam/update_team.h"
#include "libtorch/process.h"
#include "offload/device.h"
#include "offload/gpu.h"
#include "swap/io_queue.h"

namespace sluice {
namespace {

// A limit that holds I/O back, and the line of /etc/security/limits.conf that raises it.
std::string limit_lines(int resource, const char* name, int64_t wanted, const char* unit) {
  rlimit limit = {};
  getrlimit(static_cast<__rlimit_resource_t>(resource), &limit);
  const bool unlimited = limit.rlim_cur == RLIM_INFINITY;
  const bool bytes = std::string_view(unit) == "bytes";
  const std::string now = unlimited ? "unlimited"
                          : bytes   ? format_bytes(static_cast<int64_t>(limit.rlim_cur))
                                    : fmt::format("{}", limit.rlim_cur);
  const std::string line = fmt::format("  {:<18}{}\n", name, now);
  if (unlimited || limit.rlim_cur >= static_cast<rlim_t>(wanted)) return line;
  const std::string value = bytes ? "unlimited" : fmt::format("{}", wanted);
  return line + fmt::format("  {:<18}to raise it, in /etc/security/limits.conf, then log in again: `* - {} {}`\n", "",
                            name, value);
}

std::string adam_words() {
  std::string names;
  for (const std::string_view target : adam_simd_targets())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", target);
  return names.empty() ? "adam_scalar: this CPU has none of the SIMD targets"
                       : fmt::format("adam_simd, of this CPU's targets the best one: {}", names);
}

}  // namespace

void run_info(Console& console) {
  const std::unique_ptr<Topology> topology = make_topology();
  std::string text;
  auto out = std::back_inserter(text);
  fmt::format_to(out, "sluice {}\n\nTwins that `auto` picks here\n", SLUICE_VERSION);
  fmt::format_to(out, "  {:<18}{}\n", "I/O queue", explain_io_backend());
  fmt::format_to(out, "  {:<18}{}\n", "device", explain_device());
  fmt::format_to(out, "  {:<18}{}\n", "topology", topology->describe());
  fmt::format_to(out, "  {:<18}{}\n", "optimizer", adam_words());
  fmt::format_to(out, "  {:<18}{}\n", "update threads", make_update_team(*topology, 1)->describe());
  fmt::format_to(out, "\nMachine\n  {:<18}{}\n", "CPU", topology->cpu_name());
  const int cores = topology->core_count(), usable = usable_cores(*topology);
  fmt::format_to(out, "  {:<18}{} on {} NUMA node(s){}\n", "cores", cores, topology->node_count(),
                 usable < cores ? fmt::format("; the control group's quota is the time of {}", usable) : "");
  const int64_t available = available_host_bytes();
  const std::vector<Gpu> gpus = list_gpus();
  fmt::format_to(out, "  {:<18}{} available; default budgets: device {}, host {}\n", "memory", format_bytes(available),
                 format_bytes(gpus.empty() ? available / 5 : gpus.front().free_bytes / 5 * 4),
                 format_bytes(available / 2));
  for (const Gpu& gpu : gpus) fmt::format_to(out, "  {:<18}{}\n", "GPU", describe(gpu));
  fmt::format_to(out, "\nLimits of this process\n{}{}", limit_lines(RLIMIT_MEMLOCK, "memlock", available, "bytes"),
                 limit_lines(RLIMIT_NOFILE, "nofile", 1024, "files"));
  fmt::format_to(out, "\nLibraries\n  {:<18}{}\n  {:<18}{}", "LibTorch", describe_libtorch(), "others",
                 SLUICE_LIBRARIES);
  console.print(text);
}

}  // namespace sluice
