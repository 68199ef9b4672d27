// `sluice bench copy`: copies through the device's lanes, as a step makes them, beside plain copies of the same memory;
// and a drive's bytes on their whole way to the device. Hops and ceilings take turns; the best pass of each counts. Not
// thread-safe: one measurement at a time.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "offload/device.h"
#include "swap/store_words.h"

namespace sluice {

struct CopyBenchOptions {
  DeviceKind device = DeviceKind::kAuto;
  int64_t size_bytes = int64_t{256} << 20;  // of host and of device memory: one half goes up, the other comes down
  std::vector<int64_t> copy_bytes = {64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20};
  std::filesystem::path folder;  // of a drive; empty: no figure from NVMe
  const StoreWords* words = &kPlainWords;
  int rounds = 5;
};

struct CopyFigure {
  double gb_per_s = 0;          // of both ways together where both are under way
  double ceiling_gb_per_s = 0;  // plain copies: one call after another, a thread each way
  double percent_of_ceiling() const { return ceiling_gb_per_s > 0 ? 100 * gb_per_s / ceiling_gb_per_s : 0; }
};
struct CopyRow {
  int64_t copy_bytes = 0;
  CopyFigure upload, download, both;
};
// Reads in flight and uploads behind them, in blocks of 1 MiB; its ceiling is the slower of the two alone.
struct NvmeToDevice {
  CopyFigure figure;
  double read_gb_per_s = 0, upload_gb_per_s = 0;
};
struct CopyBenchEnd {
  std::string device;  // its words for itself
  std::vector<CopyRow> rows;
  std::optional<NvmeToDevice> from_nvme;
};

// `progress`: figures done, figures in all. Throws DeviceError, IoError, and ConfigError for memory that is not there.
CopyBenchEnd run_copy_bench(const CopyBenchOptions& options, const std::function<void(int, int)>& progress);

}  // namespace sluice
