// A device: its memory, copies to and from it in two ordered lanes, and the gradient's arithmetic where it lies.
// Twins: device_cuda, and device_host, which plays the device with a capped arena of its own and copy threads, so that
// path, budgets and waiting are real on any machine.
#pragma once
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>

#include "core/dtype.h"
#include "offload/gradient_kernels.h"

namespace sluice {

enum class CopyLane : uint8_t { kUpload, kDownload };

struct Copy {
  CopyLane lane = CopyLane::kUpload;
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  int64_t bytes = 0;
  uint64_t tag = 0;
};

// Where the ends of copies are told. Called from the device's own thread; must not block or throw.
class CopySink {
 public:
  virtual ~CopySink() = default;
  virtual void copied(uint64_t tag, std::exception_ptr error) noexcept = 0;
};

class Device {
 public:
  virtual ~Device() = default;  // waits for the copies under way

  // The arena: every byte of the device that the engine and its workspace use. An address on the device; only
  // device_host's may be dereferenced here.
  virtual std::byte* memory() const = 0;
  virtual int64_t bytes() const = 0;
  virtual std::string describe() const = 0;

  // Copies of one lane run in the order of starting. At most kMaxCopies may be under way in a lane (a check fails).
  static constexpr int kMaxCopies = 16;
  virtual void start(const Copy& copy) = 0;
  // Set before the first start(); must outlive the device's last copy.
  virtual void set_sink(CopySink* sink) = 0;

  // Gradient arithmetic on device memory, ordered with the caller's compute (gradient_kernels.h).
  virtual void add_gradient(float* open, const std::byte* gradient, DType dtype, int64_t elements,
                            Contribution which) = 0;
  virtual double close_gradient(const float* open, float scale, DType dtype, std::span<const ClosedPiece> pieces) = 0;
  virtual void round_to(const float* from, std::byte* to, DType dtype, int64_t elements) = 0;
  virtual void zero(std::byte* memory, int64_t bytes) = 0;
};

enum class DeviceKind : uint8_t { kAuto, kCuda, kHost };
// kAuto: CUDA where it is built in and a GPU answers, else the host twin. kCuda: throws DeviceError where it is not
// there.
std::unique_ptr<Device> make_device(DeviceKind kind, int64_t bytes);
std::unique_ptr<Device> make_device_host(int64_t bytes);
std::string explain_device();  // what kAuto picks and why, for `sluice info`

}  // namespace sluice
