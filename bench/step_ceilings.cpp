#include "bench/step_ceilings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "core/arena.h"
#include "core/bytes.h"
#include "core/checksum.h"
#include "core/clock.h"
#include "core/median.h"
#include "cpu_adam/adam.h"
#include "cpu_adam/adam_out_of_place.h"
#include "cpu_adam/adam_sums.h"
#include "engine/probe_time.h"
#include "offload/device.h"
#include "swap/bare_io.h"
#include "swap/io_queue.h"
#include "swap/store_format.h"

namespace sluice {
namespace {

constexpr int64_t kHalfBytes = 256 * kMiB;     // of all files, where there is room: what is read, and what is written
constexpr int64_t kBufferBytes = 64 * kMiB;    // of a drive's requests in flight, at the most
constexpr int64_t kUpdateElements = 4 * kMiB;  // of a thread: more than its caches hold
constexpr int kSweeps = 3;                     // of which the median is taken
constexpr int64_t kCopyBytes = 4 * kMiB, kColdBytes = 128 * kMiB;  // no cache holds that much

double ms_since(int64_t begin_ns) { return static_cast<double>(now_ns() - begin_ns) / 1e6; }

// Where copies of one direction come from and go to, one after the other and then again: as many bytes as a step's do,
// so that caches help them as much, but for what no cache holds anyway.
struct CopiedMemory {
  int64_t in_host = 0, on_device = 0;
};
struct CopiedBytes {
  CopiedMemory up, down;
  explicit CopiedBytes(const Plan& plan);
};
CopiedBytes::CopiedBytes(const Plan& plan)
    : up{.in_host = plan.host_staging.bytes, .on_device = plan.device_weights.bytes},
      down{.in_host = plan.host_gradients.bytes, .on_device = plan.device_open.bytes} {
  const auto chunks = plan.geometry.chunks();
  for (size_t c = 0; c < chunks.size(); ++c) {
    const ChunkHomes& homes = plan.chunks[c];
    const int64_t weights = plan.weights_bytes(chunks[c].elements);
    if (homes.weights == Home::kHost) up.in_host += weights;
    if (plan.kept_offset[chunks[c].partition] >= 0) up.on_device += weights;
    const int64_t gradient = plan.gradient_bytes(chunks[c].elements);
    if (homes.gradient == Home::kHost) down.in_host += gradient;
    if (homes.gradient == Home::kDevice) down.on_device += gradient;
  }
  for (int64_t* const bytes : {&up.in_host, &up.on_device, &down.in_host, &down.on_device}) {
    *bytes = std::clamp(round_up(*bytes, kCopyBytes), kCopyBytes, kColdBytes);
  }
}

struct UpdatedMemory {
  UpdatedMemory(const PlanOptions& plan, int64_t elements)
      : gradient_bytes(elements * bytes_of(plan.gradient_dtype)),
        layouts{record_layout(plan.format(), Group::kWeights, elements),
                record_layout(plan.format(), Group::kState, elements)},
        memory(2 * records_bytes() + gradient_bytes) {
    std::memset(memory.at(0), kSmallValue, static_cast<size_t>(memory.bytes()));
  }
  int64_t records_bytes() const { return layouts[0].bytes + layouts[1].bytes; }
  std::byte* other_slot() const { return memory.at(memory.bytes() - records_bytes()); }
  int64_t gradient_bytes;
  RecordLayout layouts[2];
  Arena memory;  // records, their gradient, other records
};

// What an update of a chunk does is told by this.
struct Updated {
  Home weights, state;
  bool moves;  // out of place: to the other slot in the backward
  bool operator==(const Updated&) const = default;
};

}  // namespace

struct StepCeilings::Impl {
  Impl(const EngineOptions& options, const Plan& the_plan)
      : plan(the_plan),
        format{.precision = plan.options.precision,
               .gradient = plan.options.gradient_dtype,
               .moments = plan.options.moments},
        kernel(summing_adam_simd(format)),
        out_of_place(out_of_place_adam_simd(format)),
        threads(std::max(1, options.update_threads)),
        gpu(is_gpu(options.device)),
        step(adam_step(options.adam, 1, 1.0)),
        request_bytes(std::min(options.store.block_bytes, largest_record_bytes(the_plan))),
        in_flight(in_flight_on_each_of(options.store)),
        buffers(std::ssize(options.store.folders()) * in_flight * request_bytes),
        copied(the_plan),
        copied_host(copied.up.in_host + copied.down.in_host),
        device(make_device(options.device, copied.up.on_device + copied.down.on_device)),
        queue(make_queue(options.store)) {
    const auto folders = options.store.folders();
    half_bytes = half_bytes_in(folders);
    BareRun fill{.op = BareOp::kWrite, .block_bytes = request_bytes, .depth = in_flight, .memory = buffers.span()};
    for (const auto& folder : folders) {
      drives.push_back({.scratch = ScratchFile(folder, 2 * half_bytes, *options.store.words)});
      fill.ranges.push_back(drives.back().scratch.whole());
      fill.bytes += drives.back().scratch.bytes();
    }
    for (int i = 0; i < threads; ++i) updated.push_back(std::make_unique<UpdatedMemory>(plan.options, kUpdateElements));
    std::memset(copied_host.at(0), 0, static_cast<size_t>(copied_host.bytes()));
    device->register_host(copied_host.span());
    run_bare(*queue, fill);  // no later write meets an extent that was never written
  }

  struct Drive {
    ScratchFile scratch;
    int64_t reads = 0, writes = 0;  // begun: each goes through its half of the file, again and again
  };
  static int64_t largest_record_bytes(const Plan& plan) {
    int64_t largest = 0;
    for (int chunk = 0; chunk < std::ssize(plan.chunks); ++chunk) {
      for (const Group group : {Group::kWeights, Group::kState}) {
        largest = std::max(largest, plan.record_bytes(chunk, group));
      }
    }
    return largest;
  }
  int in_flight_on_each_of(const StoreOptions& store) const {
    const auto count = static_cast<int>(store.folders().size());
    return static_cast<int>(std::clamp<int64_t>(kBufferBytes / request_bytes, 1, store.queue_for(count).depth / count));
  }
  std::unique_ptr<IoQueue> make_queue(const StoreOptions& store) const {
    IoQueueOptions wanted = store.queue_for(static_cast<int>(store.folders().size()));
    wanted.memory = {buffers.span()};
    wanted.log = nullptr;
    return store.make_queue(wanted);
  }
  // Of each drive's file: whole requests, one at the least.
  int64_t half_bytes_in(std::span<const std::filesystem::path> folders) const {
    const int64_t bytes = scratch_bytes_in(folders, 2 * kHalfBytes / std::ssize(folders)) / 2;
    return std::max<int64_t>(1, bytes / request_bytes) * request_bytes;
  }

  void transfer(int64_t read_bytes, int64_t write_bytes);
  double nvme_ms(const StepLanes& replayed);
  double cpu_ms(const Replay& replayed);
  double verify_ms(int64_t bytes) const;
  double copies_ms(const StepLanes& replayed);
  double sweep_ms(const Updated& chunk) const;
  void update(UpdatedMemory& memory, const Updated& chunk) const;
  int64_t elements_of(const Updated& chunk, const Replay& replayed) const;

  const Plan& plan;
  AdamFormat format;
  SummingAdamKernel kernel;
  OutOfPlaceAdamKernel out_of_place;
  int threads;
  bool gpu;  // computes, and updates what is at home in its memory
  AdamStep step;
  int64_t request_bytes;
  int in_flight;  // on each drive
  Arena buffers;
  CopiedBytes copied;
  Arena copied_host;
  std::unique_ptr<Device> device;
  int64_t half_bytes = 0;
  std::vector<Drive> drives;
  std::vector<std::unique_ptr<UpdatedMemory>> updated;
  std::unique_ptr<IoQueue> queue;  // last: its end waits for what uses the buffers
};

// Reads and writes side by side, spread evenly. Every request has a buffer of its own, and every drive as many buffers
// as the others: a faster one takes more requests.
void StepCeilings::Impl::transfer(int64_t read_bytes, int64_t write_bytes) {
  const int64_t reads = read_bytes / request_bytes, writes = write_bytes / request_bytes, all = reads + writes;
  std::array<IoCompletion, 64> done;
  std::vector<size_t> free_buffers(drives.size() * static_cast<size_t>(in_flight));
  std::iota(free_buffers.begin(), free_buffers.end(), size_t{0});
  int64_t read = 0, written = 0;
  for (int64_t ended = 0; ended < all;) {
    for (; read + written < all && !free_buffers.empty();) {
      const bool is_read = read * writes <= written * reads && read < reads;
      ++(is_read ? read : written);
      const size_t buffer = free_buffers.back();
      free_buffers.pop_back();
      Drive& drive = drives[buffer % drives.size()];
      const int64_t number = is_read ? drive.reads++ : drive.writes++;
      const int64_t offset = (is_read ? 0 : half_bytes) + number * request_bytes % half_bytes;
      queue->submit({.op = is_read ? IoOp::kRead : IoOp::kWrite,
                     .file = drive.scratch.file(),
                     .memory = buffers.at(static_cast<int64_t>(buffer) * request_bytes),
                     .bytes = static_cast<uint32_t>(request_bytes),
                     .offset = static_cast<uint64_t>(offset),
                     .tag = buffer});
    }
    queue->flush();
    const size_t count = queue->poll(done, Wait::kUntilOne);
    for (size_t i = 0; i < count; ++i) {
      check_whole(done[i], request_bytes, drives[done[i].tag % drives.size()].scratch.path());
      free_buffers.push_back(done[i].tag);
    }
    ended += static_cast<int64_t>(count);
  }
}

double StepCeilings::Impl::nvme_ms(const StepLanes& replayed) {
  const int64_t wanted = replayed[Lane::kRead].bytes + replayed[Lane::kWrite].bytes;
  if (wanted == 0) return 0;
  // As much as the halves hold, or as is under way a few times, in the same proportion, and a request where there is
  // less.
  constexpr int64_t kFewTimes = 8;
  const int64_t all_drives = std::ssize(drives), most = std::max(half_bytes, kFewTimes * in_flight * request_bytes);
  const double share =
      std::min(1.0, static_cast<double>(most * all_drives) /
                        static_cast<double>(std::max(replayed[Lane::kRead].bytes, replayed[Lane::kWrite].bytes)));
  const auto part = [&](int64_t bytes) {
    const auto whole = static_cast<int64_t>(static_cast<double>(bytes) * share) / request_bytes * request_bytes;
    return bytes > 0 ? std::max(whole, request_bytes) : 0;
  };
  const int64_t read_bytes = part(replayed[Lane::kRead].bytes), write_bytes = part(replayed[Lane::kWrite].bytes);
  const int64_t begin = now_ns();
  transfer(read_bytes, write_bytes);
  return ms_since(begin) * static_cast<double>(wanted) / static_cast<double>(read_bytes + write_bytes);
}

// One sweep as engine/update_pass.cpp makes it for such a chunk.
void StepCeilings::Impl::update(UpdatedMemory& memory, const Updated& chunk) const {
  const auto planes_of = [&](std::byte* weights) {
    std::byte* const state = weights + memory.layouts[0].bytes;
    return planes_of_records(format, {memory.layouts[1], weights, state, state + memory.layouts[1].bytes});
  };
  uint32_t weights_in[kMaxPlanes] = {}, state_in[kMaxPlanes] = {}, weights_out[kMaxPlanes] = {},
           state_out[kMaxPlanes] = {};
  const bool commits = plan.commit_interval == 1;
  const bool weights_come = chunk.weights == Home::kNvme, state_comes = chunk.state == Home::kNvme;
  AdamSums sums;
  if (weights_come) sums.weights_in = weights_in;
  if (state_comes) sums.state_in = state_in;
  if (commits || weights_come) sums.weights_out = weights_out;
  if (commits || state_comes) sums.state_out = state_out;
  const AdamRun run{step, planes_of(memory.memory.at(0)), kUpdateElements};
  if (chunk.moves) {
    out_of_place(run.step, run.planes, planes_of(memory.other_slot()), run.elements);
  } else {
    kernel(run.step, run.planes, run.elements, sums);
  }
}

// Of kUpdateElements by each thread.
double StepCeilings::Impl::sweep_ms(const Updated& chunk) const {
  std::vector<double> sweeps_ms;
  for (int i = 0; i < kSweeps; ++i) {
    const int64_t begin = now_ns();
    {
      std::vector<std::jthread> team;
      for (const auto& memory : updated) team.emplace_back([&] { update(*memory, chunk); });
    }
    sweeps_ms.push_back(ms_since(begin));
  }
  return median(sweeps_ms);
}

int64_t StepCeilings::Impl::elements_of(const Updated& chunk, const Replay& replayed) const {
  int64_t elements = 0;
  for (int c = 0; c < std::ssize(plan.chunks); ++c) {
    const ChunkHomes& homes = plan.chunks[static_cast<size_t>(c)];
    const bool moves = replayed.updates_early && plan.has_other_slot(c);
    if (Updated{homes.weights, homes.state, moves} == chunk) {
      elements += plan.geometry.chunks()[static_cast<size_t>(c)].elements;
    }
  }
  return elements;
}

double StepCeilings::Impl::cpu_ms(const Replay& replayed) {
  double ms = 0;
  int64_t update_bytes = 0;
  const auto add = [&](const Updated& chunk) {
    const int64_t elements = elements_of(chunk, replayed);
    if (elements == 0) return;
    for (const Group group : {Group::kWeights, Group::kState}) {
      const int sweeps = chunk.state == Home::kDevice && plan.commit_interval == 1 ? 2 : 1;  // a seal of its own
      update_bytes += sweeps * elements * bytes_per_element(plan.options.format(), group);
    }
    ms += sweep_ms(chunk) * static_cast<double>(elements) / static_cast<double>(threads * kUpdateElements);
  };
  for (const Home weights : {Home::kDevice, Home::kHost, Home::kNvme}) {
    for (const Home state : {Home::kDevice, Home::kHost, Home::kNvme}) {
      for (const bool moves : {false, true}) {
        const Updated chunk{weights, state, moves};
        // A GPU's kernels' work: `bench adam --device cuda` has their ceiling.
        if (gpu && state == Home::kDevice && elements_of(chunk, replayed) > 0) return 0;
        add(chunk);
      }
    }
  }
  return ms + verify_ms(replayed.lanes[Lane::kUpdate].bytes - update_bytes);
}

// Checksums of weights on their way to the device.
double StepCeilings::Impl::verify_ms(int64_t bytes) const {
  if (bytes <= 0) return 0;
  const auto record = static_cast<size_t>(updated.front()->layouts[0].bytes);
  const int64_t begin = now_ns();
  {
    std::vector<std::jthread> team;
    for (const auto& memory : updated) {
      team.emplace_back([&] { crc32c(0, {memory->memory.at(0), record}); });
    }
  }
  return ms_since(begin) * static_cast<double>(bytes) / static_cast<double>(record * updated.size());
}

double StepCeilings::Impl::copies_ms(const StepLanes& replayed) {
  if (replayed[Lane::kUpload].bytes + replayed[Lane::kDownload].bytes == 0) return 0;
  // Each goes through memory of its own, block after block; what goes down lies behind what goes up.
  const auto copy = [this](CopyLane lane, int64_t bytes) {
    const bool goes_up = lane == CopyLane::kUpload;
    const CopiedMemory& memory = goes_up ? copied.up : copied.down;
    std::byte* const in_host = copied_host.at(goes_up ? 0 : copied.up.in_host);
    std::byte* const on_device = device->memory() + (goes_up ? 0 : copied.up.on_device);
    for (int64_t done = 0; done < bytes; done += kCopyBytes) {
      std::byte* const host = in_host + done % memory.in_host;
      std::byte* const other = on_device + done % memory.on_device;
      device->copy_now(goes_up ? other : host, goes_up ? host : other, std::min(bytes - done, kCopyBytes));
    }
  };
  const int64_t begin = now_ns();
  {
    const std::jthread up(copy, CopyLane::kUpload, replayed[Lane::kUpload].bytes);
    const std::jthread down(copy, CopyLane::kDownload, replayed[Lane::kDownload].bytes);
  }
  return ms_since(begin);
}

StepCeilings::StepCeilings(const EngineOptions& options, const Plan& plan)
    : impl_(std::make_unique<Impl>(options, plan)) {}
StepCeilings::~StepCeilings() = default;

double StepCeilings::ms(LaneGroup resource, const Replay& replayed) {
  switch (resource) {
    case LaneGroup::kNvme:
      return impl_->nvme_ms(replayed.lanes);
    case LaneGroup::kCpu:
      return impl_->cpu_ms(replayed);
    case LaneGroup::kCopies:
      return impl_->copies_ms(replayed.lanes);
    case LaneGroup::kCompute:
      return 0;
  }
  return 0;
}

}  // namespace sluice
