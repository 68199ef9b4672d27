// `sluice bench io`: the store that training uses against bare requests on the same files, in turns.
#pragma once
#include <functional>
#include <string>

#include "bench/io_store.h"

namespace sluice {

struct IoFigure {
  double gb_per_s = 0, ceiling_gb_per_s = 0;
  double cpu_ms_per_gb = 0;
  double p50_us = 0, p99_us = 0;  // of single requests
  double percent_of_ceiling() const { return ceiling_gb_per_s > 0 ? 100 * gb_per_s / ceiling_gb_per_s : 0; }
};
struct IoBenchEnd {
  IoFigure read, write, mixed;
  std::string queue;  // the store's words for it
  int64_t record_bytes = 0, request_bytes = 0;  // of the largest: a small store has smaller ones than were asked for
};

// Medians over `rounds`. With kMixed both directions are always under way: read and write are each one's share.
// `progress`: rounds done, rounds in all.
IoBenchEnd run_io_bench(const IoStoreOptions& options, int rounds, const std::function<void(int, int)>& progress);

}  // namespace sluice
