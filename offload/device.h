// A device: its memory, copies to and from it in two ordered lanes, and the arithmetic of what lies there: gradients,
// and updates of optimizer state that is at home there. Twins: device_cuda, and device_host, which plays the device
// with a capped arena of its own and copy threads, so that path, budgets and waiting are real on any machine. Whatever
// fails throws DeviceError, or ends with one in the sink, naming the call, the error and the sizes.
//
// Uploads, downloads and compute are three orders: what is in one runs one after the other. Between two of them a
// DeviceOrder says what must end first; the device sees to it itself, and whoever starts work need not wait.
#pragma once
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>

#include "core/adam_step.h"
#include "core/dtype.h"
#include "offload/gradient_kernels.h"

namespace sluice {

enum class CopyLane : uint8_t { kUpload, kDownload };

// The last work of each order that must have ended before something begins; 0: none of it. An order numbers its work
// from 1, as it is started: start() and finish_compute() return the numbers. In place of one that is kMaxCopies or more
// behind the last, a later one may be waited for, which has been started already.
struct DeviceOrder {
  uint64_t upload = 0, download = 0, compute = 0;
};

struct Copy {
  CopyLane lane = CopyLane::kUpload;
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  int64_t bytes = 0;
  uint64_t tag = 0;
  DeviceOrder after = {};
};

// Where the ends of copies and of compute are told, those of one order in its order. Called from a thread of the
// device, or from within finish_compute(); must not block or throw.
class CopySink {
 public:
  virtual ~CopySink() = default;
  virtual void copied(uint64_t tag, std::exception_ptr error) noexcept = 0;
};

class Device {
 public:
  virtual ~Device() = default;  // waits for what is under way

  // The arena: every byte of the device that the engine and its workspace use. An address on the device; only
  // device_host's may be dereferenced here.
  virtual std::byte* memory() const = 0;
  virtual int64_t bytes() const = 0;
  virtual std::string describe() const = 0;
  // Where compute runs whose order is that of the calls below: a cudaStream_t; null: on the caller's thread.
  virtual void* compute_stream() const = 0;

  // Host memory that copies use, told once before the first of them; it must outlive the device. Copies from and to
  // other host memory are right as well, but need not be asynchronous.
  virtual void register_host(std::span<std::byte> memory) = 0;

  // Copies of one lane run in the order of starting. At most kMaxCopies may be under way in a lane (a check fails). One
  // thread at a time starts copies of a lane. Beside `after`, what the sink has been told of is before a copy.
  static constexpr int kMaxCopies = 16;
  virtual uint64_t start(const Copy& copy) = 0;
  // Set before the first start() or finish_compute(); must outlive the device's last work.
  virtual void set_sink(CopySink* sink) = 0;
  // One copy in either direction that has ended when this returns; any thread, several at once. The ceiling of
  // benchmarks, and what tests look into a device with.
  virtual void copy_now(std::byte* to, const std::byte* from, int64_t bytes) = 0;

  // Compute called for from here on runs after these. By the thread that computes; on device_host it waits.
  virtual void begin_compute(const DeviceOrder& after) = 0;
  // Gradient arithmetic on device memory (gradient_kernels.h), by one thread at a time: done in the order of the calls
  // and of other compute on the device, and ended when finish_compute() has told so.
  virtual void add_gradient(float* open, const GradientView& gradient, Contribution which) = 0;
  // *norm_part is written by then; until then it must stay, the list of pieces until this returns. Pieces but the first
  // and the last hold 128 elements or more, or none; each goes to where the open gradient is not, or to no later than
  // it comes from. Others fail a check.
  virtual void close_gradient(const Closing& closing, double* norm_part) = 0;
  virtual void round_to(const float* from, std::byte* to, DType dtype, int64_t elements) = 0;
  virtual void zero(std::byte* memory, int64_t bytes) = 0;
  // *sum += *number, which lies on the device: by then; until then *sum must stay.
  virtual void add_number(const double* number, double* sum) = 0;
  // The compute called for since the last one is a piece of work: tells the sink when it has ended. At most kMaxCopies
  // may be under way.
  virtual uint64_t finish_compute(uint64_t tag) = 0;

  // The optimizer's pass over runs of one chunk, whose planes all lie on the device; the bits of the host's kernels.
  // Runs beside the caller's compute. Any thread, several at once over other chunks; blocks until the planes are
  // written: what is started afterwards sees them. What compute and copies that have ended before the call wrote is
  // seen. Returns kNo if any m, v or weight came out non-finite. At most kMaxRuns at once.
  static constexpr size_t kMaxRuns = 16;
  virtual Finite update(AdamFormat format, std::span<const AdamRun> runs) = 0;
};

enum class DeviceKind : uint8_t { kAuto, kCuda, kHost };
// Does make_device() make, or refuse, a GPU's?
bool is_gpu(DeviceKind kind);
// kAuto: CUDA where it is built in and a GPU answers, else the host twin. kCuda: throws DeviceError where it is not
// there.
// `host_kernel` is the optimizer of device_host, for the one format that update() will be called with.
std::unique_ptr<Device> make_device(DeviceKind kind, int64_t bytes, AdamKernel host_kernel = nullptr);
std::unique_ptr<Device> make_device_host(int64_t bytes, AdamKernel kernel = nullptr);
// On the first GPU that this process sees (CUDA_VISIBLE_DEVICES). Throws DeviceError that says what is missing: the
// build's CUDA side, a driver, a new enough driver, a GPU, memory.
std::unique_ptr<Device> make_device_cuda(int64_t bytes);
// What the device that make_device() gives takes of its memory for itself, beside `bytes`; a multiple of 4096.
int64_t own_device_bytes(DeviceKind kind);
// The system's number of the NUMA node that is nearest to the device that make_device() gives; -1: none is.
int node_near_device(DeviceKind kind);
std::string explain_device();  // what kAuto picks and why, for `sluice info`

}  // namespace sluice
