#include "engine/device_probe.h"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "core/arena.h"
#include "core/bytes.h"
#include "core/errors.h"
#include "cpu_adam/adam.h"
#include "engine/probe_time.h"

namespace sluice {
namespace {

// More than caches hold, as in a step.
constexpr int64_t kHostBytes = 64 * kMiB, kHostDeviceBytes = 32 * kMiB, kGpuBytes = kGiB;
constexpr int64_t kCopyBytes = 2 * kMiB, kCopies = 8;
constexpr int64_t kChunkElements = 4 * kMiB;
constexpr int64_t kLargestElement = 20;  // bytes of its planes: four of 4 and closed gradients of 4

class DeviceProbe final : private CopySink {
 public:
  explicit DeviceProbe(const DeviceProbeOptions& options)
      : options_(options),
        format_{options.format.precision, options.gradient_dtype, options.format.moments},
        host_(kHostBytes) {
    const bool gpu = is_gpu(options.device);
    if (gpu) passes_ = 8;
    device_ = options.make_device(options.device, gpu ? kGpuBytes : kHostDeviceBytes, adam_simd(format_));
    device_->set_sink(this);
    device_->register_host(host_.span());
    std::ranges::fill(host_.span(), std::byte{kSmallValue});
    for (int64_t at = 0; at < device_->bytes(); at += kHostBytes) {
      device_->copy_now(device_->memory() + at, host_.at(0), std::min(kHostBytes, device_->bytes() - at));
    }
  }

  // Copies from and to other host memory each time.
  double copy_gb_per_s(CopyLane lane) {
    const double ns = median_ns(kProbeNs, [&] {
      under_way_ = kCopies;
      for (int64_t i = 0; i < kCopies; ++i) {
        std::byte* const host = host_.at(next_);
        next_ = (next_ + kCopyBytes) % kHostBytes;
        std::byte* const device = device_->memory() + i * kCopyBytes;
        const bool up = lane == CopyLane::kUpload;
        device_->start({.lane = lane, .to = up ? device : host, .from = up ? host : device, .bytes = kCopyBytes});
      }
      wait();
    });
    return static_cast<double>(kCopyBytes * kCopies) / ns;
  }

  double inner_copy_gb_per_s() {
    const int64_t half = device_->bytes() / 2;
    const double ns =
        median_ns(kProbeNs, [&] { device_->copy_now(device_->memory(), device_->memory() + half, half); });
    return static_cast<double>(2 * half) / ns;
  }

  double update_gb_per_s() {
    const int64_t elements = device_->bytes() / kLargestElement / 64 * 64;
    int64_t next = 0;
    const auto plane = [&] { return device_->memory() + 4 * elements * next++; };
    AdamPlanes planes{.weights = plane(), .gradient = plane()};
    std::byte* const rest = plane();
    if (format_.precision == Precision::kBf16) planes.residual = reinterpret_cast<int16_t*>(rest);
    if (format_.precision == Precision::kFp16) planes.master = reinterpret_cast<float*>(rest);
    std::byte* const moment1 = plane();
    set_moments(planes, format_.moments, moment1, moments_of(options_.format.optimizer) > 1 ? plane() : nullptr);
    const AdamRun run{adam_step({.kind = options_.kind, .learning_rate = 0}, 1, 1.0), planes, elements};
    const std::vector<AdamRun> runs(passes_, run);
    const double ns = median_ns(kProbeNs, [&] { device_->update(format_, runs); }) / passes_;
    return static_cast<double>(elements * bytes_updated_per_element(options_.format, format_.gradient)) / ns;
  }

  double add_gb_per_s() {
    const int64_t elements = device_->bytes() / 8;
    auto* const open = reinterpret_cast<float*>(device_->memory());
    const double ns = ns_of_pass([&] {
      device_->add_gradient(open, {device_->memory() + 4 * elements, format_.gradient, elements}, Contribution::kLater);
    });
    return static_cast<double>(elements * (8 + bytes_of(format_.gradient))) / ns;
  }

  // Chunks of a partition, in place: nothing is left of the values. Each of the passes under way closes its part of the
  // device: of more tiles at once the GPU's sums have no places, and the next pass would wait for them.
  double close_gb_per_s() {
    const int64_t part = device_->bytes() / passes_;
    std::byte* open = device_->memory();
    std::vector<double> norm_parts(static_cast<size_t>(passes_));  // each is its pass's until that has ended
    size_t pass = 0;
    const double ns = ns_of_pass([&] {
      std::vector<ClosedPiece> pieces;
      for (int64_t at = 0; at < part; at += kChunkElements * 4) pieces.push_back({open + at, kChunkElements});
      device_->close_gradient(
          {.open = reinterpret_cast<const float*>(open), .dtype = format_.gradient, .pieces = pieces},
          &norm_parts[pass]);
      pass = (pass + 1) % norm_parts.size();
      open = device_->memory() + (open - device_->memory() + part) % device_->bytes();
    });
    return static_cast<double>(part / 4 * (4 + bytes_of(format_.gradient))) / ns;
  }

 private:
  // Passes are under way together: what it takes to call for one and to learn of its end hides behind the others.
  template <class Pass>
  double ns_of_pass(const Pass& pass) {
    const double ns = median_ns(kProbeNs, [&] {
      under_way_ = passes_;
      for (int i = 0; i < passes_; ++i) {
        pass();
        device_->finish_compute(0);
      }
      wait();
    });
    return ns / passes_;
  }
  void wait() {
    std::unique_lock lock(mutex_);
    all_done_.wait(lock, [this] { return under_way_ == 0; });
    if (error_) std::rethrow_exception(error_);
  }
  void copied(uint64_t, std::exception_ptr error) noexcept override {
    std::lock_guard lock(mutex_);
    if (error) error_ = std::move(error);
    if (--under_way_ == 0) all_done_.notify_one();
  }

  DeviceProbeOptions options_;
  AdamFormat format_;
  Arena host_;
  int64_t next_ = 0;  // offset of the next copy's bytes
  std::mutex mutex_;
  std::condition_variable all_done_;
  int64_t under_way_ = 0;
  std::exception_ptr error_;
  int passes_ = 1;                  // under way together
  std::unique_ptr<Device> device_;  // last: its threads use all of the above
};

}  // namespace

DeviceSpeeds probe_device(const DeviceProbeOptions& options) {
  DeviceProbe probe(options);
  DeviceSpeeds speeds;
  speeds.upload_gb_per_s = probe.copy_gb_per_s(CopyLane::kUpload);
  speeds.download_gb_per_s = probe.copy_gb_per_s(CopyLane::kDownload);
  speeds.copy_gb_per_s = probe.inner_copy_gb_per_s();
  speeds.update_gb_per_s = probe.update_gb_per_s();
  speeds.add_gb_per_s = probe.add_gb_per_s();
  speeds.close_gb_per_s = probe.close_gb_per_s();
  return speeds;
}

}  // namespace sluice
