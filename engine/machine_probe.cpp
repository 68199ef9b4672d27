#include "engine/machine_probe.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "core/arena.h"
#include "core/bytes.h"
#include "core/checksum.h"
#include "core/clock.h"
#include "core/median.h"
#include "core/topology.h"
#include "cpu_adam/adam_out_of_place.h"
#include "cpu_adam/adam_sums.h"
#include "cpu_adam/update_team.h"
#include "engine/device_probe.h"
#include "engine/probe_time.h"
#include "offload/executor.h"
#include "swap/bare_io.h"
#include "swap/drive_weights.h"

namespace sluice {
namespace {

// Of each drive: as far as there is room, more than the caches hold of whatever serves it.
constexpr int64_t kScratchBytes = 512 * kMiB, kLeastScratchBytes = 4 * kMiB;
constexpr int64_t kDriveNs = 200'000'000;
constexpr int64_t kFillingBlockBytes = 4 * kMiB;
// More than caches hold, as in a step.
constexpr int64_t kMemoryBytes = 128 * kMiB;      // of the drives' requests
constexpr int64_t kLeastMemoryBytes = 16 * kMiB;  // ... of each drive's
constexpr int64_t kUpdatedElements = 4 * kMiB;    // by all threads: 56 MiB in bf16

// The drives of a store, all at once, by its kind of queue.
class Drives {
 public:
  Drives(const StoreOptions& store, const Clock& clock)
      : clock_(clock),
        memory_(std::max(kMemoryBytes, kLeastMemoryBytes * static_cast<int64_t>(store.folders().size()))),
        depth_(store.queue.depth),
        weights_(store.drive_weights) {
    for (const auto& folder : store.folders()) {
      const int64_t room = scratch_bytes_in({&folder, 1}, kScratchBytes);
      files_.emplace_back(folder, std::max(room, kLeastScratchBytes), *store.words);
    }
    IoQueueOptions queue = store.queue_for(static_cast<int>(files_.size()));
    queue.memory = {memory_.span()};
    queue.log = nullptr;
    queue_ = store.make_queue(queue);
    block_bytes_ = std::clamp<int64_t>(store.block_bytes, 4 * kKiB, 4 * kMiB);
  }

  void measure(MachineSpeeds& speeds) {
    int64_t whole = 0;
    for (const ScratchFile& file : files_) whole += file.bytes();
    // The first write of a block costs more than the next ones, and is not what is measured: large blocks will do.
    run(BareOp::kWrite, {.bytes = whole, .block_bytes = std::max(block_bytes_, kFillingBlockBytes), .depth = depth_});
    speeds.write_gb_per_s = median_of_runs(BareOp::kWrite, measured());
    speeds.read_gb_per_s = median_of_runs(BareOp::kRead, measured());
    // No more than both alone: where other work slowed these down and has ended since, it would be.
    const double mixed_gb_per_s = median_of_runs(BareOp::kAlternate, measured());
    speeds.mixed_gb_per_s = std::min(mixed_gb_per_s, speeds.read_gb_per_s + speeds.write_gb_per_s);
    speeds.read_request_us = request_us(BareOp::kRead, speeds.read_gb_per_s);
    speeds.write_request_us = request_us(BareOp::kWrite, speeds.write_gb_per_s);
    speeds.commit_ms = taken_ns(kProbeNs, [this] { commit(); }) / 1e6;
    speeds.transfer_us = taken_ns(kProbeNs / 4, [this] { one(files_.front(), IoOp::kRead, 4096); }) / 1e3;
  }

 private:
  struct Pass {
    int64_t bytes = INT64_MAX, block_bytes = 0, limit_ns = INT64_MAX;
    int depth = 0;
  };
  Pass measured() const { return {.block_bytes = block_bytes_, .limit_ns = kDriveNs, .depth = depth_}; }
  // As many under way as a lane has, each on all drives at once.
  double request_us(BareOp op, double gb_per_s) {
    constexpr int64_t kBytes = 16 * kKiB;
    const auto bytes = static_cast<double>(kBytes * std::ssize(files_));
    const int depth = std::min(depth_, in_flight_limit(Lane::kRead, 0));
    const double small_gb_per_s = median_of_runs(op, {.block_bytes = kBytes, .limit_ns = kProbeNs, .depth = depth});
    return std::max(0.0, bytes / small_gb_per_s - bytes / gb_per_s) / 1e3;
  }
  // A drive or a core may be away for a moment: what one run meets decides nothing.
  double median_of_runs(BareOp op, Pass pass) {
    constexpr int kRuns = 3;
    pass.limit_ns /= kRuns;
    std::vector<double> gb_per_s;
    for (int i = 0; i < kRuns; ++i) gb_per_s.push_back(run(op, pass));
    return median(std::move(gb_per_s));
  }
  double run(BareOp op, const Pass& pass) {
    BareRun run{.op = op,
                .bytes = pass.bytes,
                .block_bytes = pass.block_bytes,
                .depth = pass.depth,
                .memory = memory_.span(),
                .limit_ns = pass.limit_ns,
                .clock = clock_};
    for (const ScratchFile& file : files_) run.ranges.push_back(file.whole());
    // Each drive's own: a slow one ends its last requests long after the others.
    const std::vector<double> speeds = run_bare(*queue_, run).range_gb_per_s;
    const double all = std::reduce(speeds.begin(), speeds.end());
    return weights_.empty() ? all : all * share_of_speed(speeds, weights_);
  }

  double taken_ns(int64_t limit_ns, const std::function<void()>& work) const {
    return median_ns(limit_ns, work, clock_);
  }
  // A table, a flush of every drive at once, a superblock, a flush of the first.
  void commit() {
    one(files_.front(), IoOp::kWrite, 4096);
    for (const ScratchFile& file : files_) queue_->submit({.op = IoOp::kSync, .file = file.file()});
    for (const ScratchFile& file : files_) wait_for_one(0, file);
    one(files_.front(), IoOp::kWrite, 4096);
    one(files_.front(), IoOp::kSync, 0);
  }

  void one(const ScratchFile& file, IoOp op, uint32_t bytes) {
    queue_->submit({.op = op, .file = file.file(), .memory = memory_.at(0), .bytes = bytes});
    wait_for_one(bytes, file);
  }
  void wait_for_one(uint32_t bytes, const ScratchFile& file) {
    queue_->flush();
    std::array<IoCompletion, 1> done;
    while (queue_->poll(done, Wait::kUntilOne) == 0) {
    }
    check_whole(done[0], bytes, file.path());
  }

  const Clock clock_;
  std::vector<ScratchFile> files_;
  Arena memory_;
  int depth_;
  std::vector<uint32_t> weights_;  // empty: each drive's share is as its speed
  int64_t block_bytes_ = 0;
  std::unique_ptr<IoQueue> queue_;  // last: its end waits for what uses the memory
};

// The update's kernel by the whole team, each thread over memory of its own.
class Updates {
 public:
  Updates(const MachineProbeOptions& options, const Topology& topology)
      : format_{.precision = options.format.precision,
                .gradient = options.gradient_dtype,
                .moments = options.format.moments},
        kernel_(summing_adam_simd(format_)),
        out_of_place_(out_of_place_adam_simd(format_)),
        step_(adam_step({.kind = options.kind, .learning_rate = 0}, 1, 1.0)),
        team_(make_update_team_std(topology, options.update_threads)) {
    each_ = kUpdatedElements / team_->threads();
    layouts_ = {record_layout(options.format, Group::kWeights, each_),
                record_layout(options.format, Group::kState, each_)};
    const int64_t gradient_bytes = round_up(each_ * bytes_of(options.gradient_dtype), kPlaneAlignmentBytes);
    bytes_ = 2 * records_bytes() + gradient_bytes;
    memory_ = Arena(bytes_ * team_->threads());
    std::memset(memory_.at(0), kSmallValue, static_cast<size_t>(memory_.bytes()));
    sums_.resize(static_cast<size_t>(team_->threads()));
  }

  int threads() const { return team_->threads(); }
  enum class How : uint8_t { kPlain, kSummed, kOutOfPlace };
  double ns_per_element(How how) {
    return median_ns(kProbeNs, [=, this] { sweep(how); }) / static_cast<double>(each_ * team_->threads());
  }

 private:
  void sweep(How how) {
    std::latch done(team_->threads());
    done_ = &done;
    how_ = how;
    for (int thread = 0; thread < team_->threads(); ++thread) {
      const auto task = [](void* self, int index) {
        auto* updates = static_cast<Updates*>(self);
        updates->update(index);
        updates->done_->count_down();
      };
      team_->start({.run = task, .context = this, .index = thread});
    }
    done.wait();
  }

  void update(int thread) {
    std::byte* const records = memory_.at(thread * bytes_);
    const AdamRun run{step_, planes(records), each_};
    if (how_ == How::kOutOfPlace) {
      out_of_place_(run.step, run.planes, planes(records + bytes_ - records_bytes()), run.elements);
    } else {
      kernel_(run.step, run.planes, run.elements, sums(thread));
    }
  }

  AdamSums sums(int thread) {
    if (how_ == How::kPlain) return {};
    ThreadSums& to = sums_[static_cast<size_t>(thread)];
    return {.weights_in = &to.weights,
            .state_in = to.state,
            .gradient_in = &to.gradient,
            .weights_out = &to.weights_out,
            .state_out = to.state_out};
  }

  // A thread's memory: records, their gradient, other records.
  int64_t records_bytes() const { return layouts_[0].bytes + layouts_[1].bytes; }
  AdamPlanes planes(std::byte* records) const {
    std::byte* const state = records + layouts_[0].bytes;
    return planes_of_records(format_, {layouts_[1], records, state, state + layouts_[1].bytes});
  }

  struct alignas(64) ThreadSums {
    uint32_t weights = 0, state[kMaxPlanes] = {}, gradient = 0, weights_out = 0, state_out[kMaxPlanes] = {};
  };

  AdamFormat format_;
  SummingAdamKernel kernel_;
  OutOfPlaceAdamKernel out_of_place_;
  AdamStep step_;
  int64_t each_ = 0, bytes_ = 0;  // of a thread
  std::array<RecordLayout, 2> layouts_;
  Arena memory_;
  std::vector<ThreadSums> sums_;  // by thread
  How how_ = How::kPlain;
  std::latch* done_ = nullptr;
  std::unique_ptr<UpdateTeam> team_;  // last: its threads use all of the above
};

// Of bytes that have just come, in cache.
double checksum_gb_per_s() {
  constexpr int64_t kTileBytes = 32 * kKiB, kTiles = 256;
  const std::vector<std::byte> tile(kTileBytes);
  const double ns = median_ns(kProbeNs / 4, [&] {
    uint32_t sum = 0;
    for (int64_t i = 0; i < kTiles; ++i) sum = crc32c(sum, tile);
  });
  return static_cast<double>(kTileBytes * kTiles) / ns;
}

// A hop that ends wakes the executor, which wakes who runs the next: there and back between two threads.
double handover_us() {
  std::mutex mutex;
  std::condition_variable wake;
  enum class Turn { kOurs, kTheirs, kOver } turn = Turn::kOurs;
  std::jthread other([&] {
    std::unique_lock lock(mutex);
    for (;;) {
      wake.wait(lock, [&] { return turn != Turn::kOurs; });
      if (turn == Turn::kOver) return;
      turn = Turn::kOurs;
      wake.notify_one();
    }
  });
  const double ns = median_ns(kProbeNs / 4, [&] {
    std::unique_lock lock(mutex);
    turn = Turn::kTheirs;
    wake.notify_one();
    wake.wait(lock, [&] { return turn == Turn::kOurs; });
  });
  {
    std::lock_guard lock(mutex);
    turn = Turn::kOver;
  }
  wake.notify_one();
  return ns / 1e3;
}

}  // namespace

void probe_drives(const StoreOptions& store, MachineSpeeds& speeds, const Clock& clock) {
  Drives(store, clock).measure(speeds);
}

MachineSpeeds probe_machine(const MachineProbeOptions& options) {
  const auto topology = make_topology();
  MachineSpeeds speeds;
  probe_drives(options.store, speeds);
  const DeviceSpeeds device = probe_device({.device = options.device,
                                            .format = options.format,
                                            .gradient_dtype = options.gradient_dtype,
                                            .kind = options.kind});
  speeds.upload_gb_per_s = device.upload_gb_per_s;
  speeds.download_gb_per_s = device.download_gb_per_s;
  speeds.close_gb_per_s =
      device.close_gb_per_s * 4 / static_cast<double>(4 + bytes_of(options.gradient_dtype));  // of what is read
  {
    Updates updates(options, *topology);
    speeds.update_threads = updates.threads();
    speeds.update_ns_per_element = updates.ns_per_element(Updates::How::kPlain);
    speeds.summed_ns_per_element = updates.ns_per_element(Updates::How::kSummed);
    speeds.out_of_place_ns_per_element = updates.ns_per_element(Updates::How::kOutOfPlace);
  }
  speeds.checksum_gb_per_s = checksum_gb_per_s();
  speeds.hop_us = handover_us();
  speeds.cores = usable_cores(*topology);
  if (is_gpu(options.device)) {
    speeds.device_update_gb_per_s = device.update_gb_per_s;
  } else {  // host memory plays the device: its compute and its copies are threads of this machine
    speeds.compute_cores = std::min<double>(options.compute_threads, speeds.cores);
    speeds.copy_cores = std::min<double>(1, speeds.cores);
  }
  return speeds;
}

}  // namespace sluice
