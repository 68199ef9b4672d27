// The host twin of the device: an arena of its own, capped by the device budget, and one copy thread a lane. Compute
// runs on the caller's thread, so it has ended when a call returns.
#include <cstring>

#include "core/arena.h"
#include "core/errors.h"
#include "offload/device.h"
#include "offload/device_lane.h"

namespace sluice {
namespace {

void run_copy(const Copy& copy) { std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes)); }

class DeviceHost final : public Device {
 public:
  DeviceHost(int64_t bytes, AdamKernel kernel) : arena_(bytes), kernel_(kernel) {}

  std::byte* memory() const override { return arena_.at(0); }
  int64_t bytes() const override { return arena_.bytes(); }
  std::string describe() const override { return "device_host: host memory plays the device"; }
  void* compute_stream() const override { return nullptr; }

  void register_host(std::span<std::byte>) override {}
  void start(const Copy& copy) override { (copy.lane == CopyLane::kUpload ? upload_ : download_).start(copy); }
  void set_sink(CopySink* sink) override {
    sink_ = sink;
    upload_.set_sink(sink);
    download_.set_sink(sink);
  }
  void copy_now(std::byte* to, const std::byte* from, int64_t bytes) override {
    run_copy({.to = to, .from = from, .bytes = bytes});
  }

  void add_gradient(float* open, const std::byte* gradient, DType dtype, int64_t elements,
                    Contribution which) override {
    sluice::add_gradient(open, gradient, dtype, elements, which);
  }
  void close_gradient(const float* open, float scale, DType dtype, std::span<const ClosedPiece> pieces,
                      double* norm_part) override {
    *norm_part = sluice::close_gradient(open, scale, dtype, pieces);
  }
  void round_to(const float* from, std::byte* to, DType dtype, int64_t elements) override {
    sluice::round_to(from, to, dtype, elements);
  }
  void zero(std::byte* memory, int64_t bytes) override { std::memset(memory, 0, static_cast<size_t>(bytes)); }
  void finish_compute(uint64_t tag) override { sink_->copied(tag, nullptr); }
  Finite update(AdamFormat, std::span<const AdamRun> runs) override {
    SLUICE_CHECK(kernel_ != nullptr, "this device was made without an optimizer");
    Finite finite = Finite::kYes;
    for (const AdamRun& run : runs) {
      if (kernel_(run.step, run.planes, run.elements) == Finite::kNo) finite = Finite::kNo;
    }
    return finite;
  }

 private:
  Arena arena_;
  AdamKernel kernel_;
  CopySink* sink_ = nullptr;
  DeviceLane<Copy> upload_{run_copy}, download_{run_copy};
};

}  // namespace

std::unique_ptr<Device> make_device_host(int64_t bytes, AdamKernel kernel) {
  return std::make_unique<DeviceHost>(bytes, kernel);
}

}  // namespace sluice
