#include "bench/io_bench.h"

#include <algorithm>
#include <vector>

#include "core/median.h"

namespace sluice {
namespace {

// What the rounds gave for one figure.
struct Rounds {
  std::vector<double> gb_per_s, ceiling, cpu_ms_per_gb, p50, p99;

  void add(const PassEnd& pass, const PassEnd& bare, const Latencies& latencies) {
    gb_per_s.push_back(static_cast<double>(pass.bytes) / static_cast<double>(pass.ns));
    ceiling.push_back(static_cast<double>(bare.bytes) / static_cast<double>(bare.ns));
    cpu_ms_per_gb.push_back(static_cast<double>(pass.cpu_ns) / 1e6 / (static_cast<double>(pass.bytes) / 1e9));
    p50.push_back(latencies.percentile(50));
    p99.push_back(latencies.percentile(99));
  }
  IoFigure figure() const {
    return {.gb_per_s = median(gb_per_s),
            .ceiling_gb_per_s = median(ceiling),
            .cpu_ms_per_gb = median(cpu_ms_per_gb),
            .p50_us = median(p50),
            .p99_us = median(p99)};
  }
};

Latencies both(const RequestTimes& times) {
  Latencies all = times.read;
  all.add(times.write);
  return all;
}

PassEnd half(PassEnd pass) { return {.bytes = pass.bytes / 2, .ns = pass.ns, .cpu_ns = pass.cpu_ns / 2}; }

}  // namespace

// Bare writes destroy what the records hold: the store writes all of them before it reads any.
IoBenchEnd run_io_bench(const IoStoreOptions& options, int rounds, const std::function<void(int, int)>& progress) {
  IoStore store(options);
  Rounds read, write, mixed;
  for (int round = 0; round < rounds; ++round) {
    progress(round, rounds);
    const PassEnd bare_both = store.run_bare_requests(Direction::kBoth);
    if (options.pattern != IoPattern::kMixed) {
      const PassEnd bare_write = store.run_bare_requests(Direction::kWrite);
      write.add(store.run(Direction::kWrite), bare_write, store.times().write);
      store.commit();
      const PassEnd bare_read = store.run_bare_requests(Direction::kRead);
      read.add(store.run(Direction::kRead), bare_read, store.times().read);
    } else {
      store.run(Direction::kWrite);
      store.commit();
    }
    const PassEnd pass = store.run(Direction::kBoth);
    mixed.add(pass, bare_both, both(store.times()));
    if (options.pattern == IoPattern::kMixed) {
      read.add(half(pass), half(bare_both), store.times().read);
      write.add(half(pass), half(bare_both), store.times().write);
    }
    store.commit();
  }
  return {.read = read.figure(),
          .write = write.figure(),
          .mixed = mixed.figure(),
          .queue = store.describe(),
          .record_bytes = store.largest_record_bytes(),
          .request_bytes = store.largest_request_bytes()};
}

}  // namespace sluice
