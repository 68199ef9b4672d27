#include "bench/copy_bench.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "bench/nvme_to_device.h"
#include "core/arena.h"
#include "core/bytes.h"
#include "core/clock.h"

namespace sluice {
namespace {

constexpr int kInFlight = 4;  // as in a step

// Counts the copies that have ended in each lane.
class Counter final : public CopySink {
 public:
  void copied(uint64_t lane, std::exception_ptr error) noexcept override {
    const std::lock_guard lock(mutex_);
    ++ended_[lane];
    if (error) error_ = std::move(error);
    changed_.notify_one();
  }
  void wait_for(CopyLane lane, int64_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_[static_cast<size_t>(lane)] >= count; });
    if (error_) std::rethrow_exception(error_);
  }
  void reset() {
    const std::lock_guard lock(mutex_);
    ended_ = {};
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<int64_t, 2> ended_ = {};
  std::exception_ptr error_;
};

template <class Pass>
void keep_best(double& gb_per_s, int64_t bytes, const Pass& pass) {
  const int64_t begin_ns = now_ns();
  pass();
  gb_per_s = std::max(gb_per_s, static_cast<double>(bytes) / static_cast<double>(now_ns() - begin_ns));
}

class Copies {
 public:
  explicit Copies(const CopyBenchOptions& options)
      : half_bytes_(options.size_bytes / 2),
        host_(2 * half_bytes_),
        device_(make_device(options.device, 2 * half_bytes_)) {
    device_->register_host(host_.span());
    device_->set_sink(&counter_);
  }

  Device& device() { return *device_; }
  const Arena& host() const { return host_; }

  // One turn of every figure of a row.
  void measure(CopyRow& row) {
    const int64_t bytes = half_bytes_ / row.copy_bytes * row.copy_bytes;
    const auto lanes = [&](CopyFigure& figure, int64_t moved, std::initializer_list<CopyLane> which) {
      keep_best(figure.gb_per_s, moved, [&] { run_lanes(row.copy_bytes, which); });
    };
    for (const int64_t plain : {row.copy_bytes, bytes}) {
      for (const CopyLane lane : {CopyLane::kUpload, CopyLane::kDownload}) {
        CopyFigure& figure = lane == CopyLane::kUpload ? row.upload : row.download;
        keep_best(figure.ceiling_gb_per_s, bytes, [&] { run_plain(plain, bytes, lane); });
      }
      keep_best(row.both.ceiling_gb_per_s, 2 * bytes, [&] {
        const std::jthread other([&] { run_plain(plain, bytes, CopyLane::kDownload); });
        run_plain(plain, bytes, CopyLane::kUpload);
      });
    }
    lanes(row.upload, bytes, {CopyLane::kUpload});
    lanes(row.download, bytes, {CopyLane::kDownload});
    lanes(row.both, 2 * bytes, {CopyLane::kUpload, CopyLane::kDownload});
  }

 private:
  // kInFlight copies under way in each of `lanes`; returns when all have ended.
  void run_lanes(int64_t copy_bytes, std::initializer_list<CopyLane> lanes) {
    counter_.reset();
    const int64_t copies = half_bytes_ / copy_bytes;
    for (int64_t i = 0; i < copies + kInFlight; ++i) {
      for (const CopyLane lane : lanes) {
        if (i >= kInFlight) counter_.wait_for(lane, i - kInFlight + 1);
        if (i < copies) device_->start(copy_of(lane, i * copy_bytes, copy_bytes));
      }
    }
  }
  void run_plain(int64_t copy_bytes, int64_t bytes, CopyLane lane) {
    for (int64_t at = 0; at < bytes; at += copy_bytes) {
      const Copy copy = copy_of(lane, at, copy_bytes);
      device_->copy_now(copy.to, copy.from, copy.bytes);
    }
  }
  Copy copy_of(CopyLane lane, int64_t at, int64_t bytes) const {
    const bool up = lane == CopyLane::kUpload;
    const int64_t offset = at + (up ? 0 : half_bytes_);
    std::byte* const device = device_->memory() + offset;
    std::byte* const host = host_.at(offset);
    return {.lane = lane,
            .to = up ? device : host,
            .from = up ? host : device,
            .bytes = bytes,
            .tag = static_cast<uint64_t>(lane)};
  }

  int64_t half_bytes_;
  Arena host_;
  Counter counter_;
  std::unique_ptr<Device> device_;  // last: its threads use all of the above
};

}  // namespace

CopyBenchEnd run_copy_bench(const CopyBenchOptions& options, const std::function<void(int, int)>& progress) {
  CopyBenchEnd end;
  for (const int64_t bytes : options.copy_bytes) {
    if (bytes * kInFlight <= options.size_bytes / 2) end.rows.push_back({.copy_bytes = bytes});
  }
  const int figures = options.rounds * static_cast<int>(end.rows.size()) + (options.folder.empty() ? 0 : 1);
  int done = 0;
  Copies copies(options);
  end.device = copies.device().describe();
  for (int round = 0; round < options.rounds; ++round) {
    for (CopyRow& row : end.rows) {
      progress(done++, figures);
      copies.measure(row);
    }
  }
  if (options.folder.empty()) return end;
  progress(done, figures);
  NvmePath path(
      {.folder = options.folder, .words = *options.words, .device = copies.device(), .host = copies.host().span()});
  NvmeToDevice& whole = end.from_nvme.emplace();
  for (int round = 0; round < options.rounds; ++round) {
    whole.read_gb_per_s = std::max(whole.read_gb_per_s, path.read_alone());
    whole.upload_gb_per_s = std::max(whole.upload_gb_per_s, path.upload_alone());
    whole.figure.gb_per_s = std::max(whole.figure.gb_per_s, path.run());
  }
  whole.figure.ceiling_gb_per_s = std::min(whole.read_gb_per_s, whole.upload_gb_per_s);
  return end;
}

}  // namespace sluice
