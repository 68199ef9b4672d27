// The device on a GPU: one allocation (the arena, and behind it the progress of closing kernels), and a stream each for
// uploads, downloads and compute. A stream waits for another's events by itself; what ends is told by threads of the
// device that sleep until an event has come; nothing ever waits for the whole GPU.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "core/bytes.h"
#include "core/errors.h"
#include "offload/close_launches.h"
#include "offload/cuda_support.h"
#include "offload/device.h"
#include "offload/device_lane.h"
#include "offload/gpu.h"
#include "offload/host_sums.h"

namespace sluice {

void check_cuda(int error, const CudaCall& call) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();  // or the next launch would be told of it
  const auto code = static_cast<cudaError_t>(error);
  const std::string size = call.size < 0 ? "" : fmt::format(" of {} {}", call.size, call.unit);
  throw DeviceError(fmt::format("device cuda: {}{} failed: {} ({})", call.name, size, cudaGetErrorName(code),
                                cudaGetErrorString(code)));
}

namespace {

class Stream {
 public:
  Stream() { check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), {"cudaStreamCreateWithFlags"}); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(Stream&&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// Who waits for it sleeps.
class Event {
 public:
  Event() {
    check_cuda(cudaEventCreateWithFlags(&event_, cudaEventBlockingSync | cudaEventDisableTiming),
               {"cudaEventCreateWithFlags"});
  }
  ~Event() { cudaEventDestroy(event_); }
  Event(Event&&) = delete;
  void record(const Stream& stream) { check_cuda(cudaEventRecord(event_, stream.get()), {"cudaEventRecord"}); }
  void wait(const char* what, int64_t bytes) const { check_cuda(cudaEventSynchronize(event_), {what, bytes}); }
  // What is put on the stream from here on runs after it.
  void hold(const Stream& stream) const {
    check_cuda(cudaStreamWaitEvent(stream.get(), event_, 0), {"cudaStreamWaitEvent"});
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// What a stream has to come to the end of.
struct StreamJob {
  uint64_t tag = 0;
  int64_t bytes = -1;
  uint64_t number = 0;
};

// A stream whose jobs end in order, each told when its event has come. `before_end` gets the job's number first, on the
// lane's thread.
class StreamLane {
 public:
  explicit StreamLane(const char* what, std::function<void(uint64_t)> before_end = {})
      : what_(what), before_end_(std::move(before_end)) {}

  const Stream& stream() const { return stream_; }
  void set_sink(CopySink* sink) { thread_.set_sink(sink); }
  // The number of the job that start() is called for next.
  uint64_t next() const { return thread_.next(); }
  // `issue` puts the job's work on the stream. Returns the job's number.
  template <class Issue>
  uint64_t start(uint64_t tag, int64_t bytes, const Issue& issue) {
    thread_.check_room();
    issue();
    event_of(next()).record(stream_);
    return thread_.start({.tag = tag, .bytes = bytes, .number = next()});
  }
  // `other` goes on when this job has ended; 0: at once.
  void hold(const StreamLane& other, uint64_t number) {
    if (number > 0) event_of(number).hold(other.stream_);
  }

 private:
  Event& event_of(uint64_t number) { return events_[number % Device::kMaxCopies]; }
  void wait_for(const StreamJob& job) {
    event_of(job.number).wait(what_, job.bytes);
    if (before_end_) before_end_(job.number);
  }

  const char* what_;
  std::function<void(uint64_t)> before_end_;
  Stream stream_;
  std::array<Event, Device::kMaxCopies> events_;
  DeviceLane<StreamJob> thread_{[this](const StreamJob& job) { wait_for(job); }};  // last: it uses all of the above
};

// Memory of the host that the GPU writes into.
template <class T>
class Pinned {
 public:
  explicit Pinned(int64_t count) {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    void* memory = nullptr;
    check_cuda(cudaHostAlloc(&memory, static_cast<size_t>(bytes), cudaHostAllocMapped), {"cudaHostAlloc", bytes});
    values_ = static_cast<T*>(memory);
  }
  ~Pinned() { cudaFreeHost(values_); }
  Pinned(Pinned&&) = delete;
  T* at(int64_t i) const { return values_ + i; }

 private:
  T* values_ = nullptr;
};

// What one update under way has for itself.
struct UpdateSlot {
  Stream stream;
  Event end;
  Pinned<int> not_finite{1};
  bool taken = false;
};
class UpdateSlots {
 public:
  // Waits until one is free; it goes back with the lease.
  class Lease {
   public:
    explicit Lease(UpdateSlots& slots) : slots_(slots), slot_(slots.take()) {}
    ~Lease() {  // where an update failed, kernels of it may still write
      cudaStreamSynchronize(slot_.stream.get());
      slots_.give_back(slot_);
    }
    Lease(Lease&&) = delete;
    UpdateSlot* operator->() const { return &slot_; }

   private:
    UpdateSlots& slots_;
    UpdateSlot& slot_;
  };

 private:
  UpdateSlot& take() {
    std::unique_lock lock(mutex_);
    const auto is_free = [](const UpdateSlot& slot) { return !slot.taken; };
    given_back_.wait(lock, [&] { return std::ranges::any_of(slots_, is_free); });
    UpdateSlot& slot = *std::ranges::find_if(slots_, is_free);
    slot.taken = true;
    return slot;
  }
  void give_back(UpdateSlot& slot) {
    const std::lock_guard lock(mutex_);
    slot.taken = false;
    given_back_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable given_back_;
  std::array<UpdateSlot, 8> slots_;
};

class DeviceMemory {
 public:
  explicit DeviceMemory(int64_t bytes) {
    const auto error = cudaMalloc(&memory_, static_cast<size_t>(bytes));
    if (error == cudaErrorMemoryAllocation) refuse(bytes);
    check_cuda(error, {"cudaMalloc", bytes});
  }
  ~DeviceMemory() { cudaFree(memory_); }
  DeviceMemory(DeviceMemory&&) = delete;
  std::byte* at() const { return static_cast<std::byte*>(memory_); }

 private:
  [[noreturn]] static void refuse(int64_t bytes) {
    (void)cudaGetLastError();
    size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), {"cudaMemGetInfo"});
    throw DeviceError(fmt::format(
        "device cuda: cudaMalloc of {} bytes ({}) failed: {} bytes ({}) of the GPU's {} are free; lower the device "
        "budget (sluice.device_memory), or end what else uses the GPU (nvidia-smi)",
        bytes, format_bytes(bytes), free, format_bytes(static_cast<int64_t>(free)),
        format_bytes(static_cast<int64_t>(total))));
  }

  void* memory_ = nullptr;
};

class RegisteredMemory {
 public:
  RegisteredMemory() = default;
  ~RegisteredMemory() {
    if (memory_ != nullptr) cudaHostUnregister(memory_);
  }
  RegisteredMemory(RegisteredMemory&&) = delete;
  void take(std::span<std::byte> memory) {
    SLUICE_CHECK(memory_ == nullptr, "host memory is registered already");
    if (memory.empty()) return;
    check_cuda(cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterPortable),
               {"cudaHostRegister", static_cast<int64_t>(memory.size())});
    memory_ = memory.data();
  }

 private:
  void* memory_ = nullptr;
};

// The current one.
Gpu gpu_at(int index) {
  cudaDeviceProp properties;
  check_cuda(cudaGetDeviceProperties(&properties, index), {"cudaGetDeviceProperties"});
  size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), {"cudaMemGetInfo"});
  std::string address =
      fmt::format("{:04x}:{:02x}:{:02x}.0", properties.pciDomainID, properties.pciBusID, properties.pciDeviceID);
  const PciPlace place = read_pci_place("/sys/bus/pci/devices/" + address);
  return {.name = properties.name,
          .memory_bytes = static_cast<int64_t>(total),
          .free_bytes = static_cast<int64_t>(free),
          .compute_capability = properties.major * 10 + properties.minor,
          .pci_address = std::move(address),
          .place = place};
}

using kernels::kOwnDeviceBytes;
constexpr size_t kReturnedNumbers = 65536;  // sums of tiles and losses on their way to the host

class DeviceCuda final : public Device {
 public:
  explicit DeviceCuda(int64_t bytes)
      : gpu_((check_kernels(), gpu_at(0))), bytes_(bytes), memory_(own_offset() + kOwnDeviceBytes) {
    zero(memory_.at() + own_offset(), kOwnDeviceBytes);
  }
  ~DeviceCuda() override { cudaStreamSynchronize(compute_.stream().get()); }  // compute that nobody waits for

  std::byte* memory() const override { return memory_.at(); }
  int64_t bytes() const override { return bytes_; }
  std::string describe() const override { return "device_cuda: " + sluice::describe(gpu_); }
  void* compute_stream() const override { return stream(); }

  void register_host(std::span<std::byte> memory) override { registered_.take(memory); }
  uint64_t start(const Copy& copy) override {
    StreamLane& lane = copy.lane == CopyLane::kUpload ? upload_ : download_;
    return lane.start(copy.tag, copy.bytes, [&] {
      hold(lane, copy.after);
      copy_async(copy.to, copy.from, copy.bytes, lane.stream().get());
    });
  }
  void set_sink(CopySink* sink) override {
    for (StreamLane* lane : {&upload_, &download_, &compute_}) lane->set_sink(sink);
  }
  void copy_now(std::byte* to, const std::byte* from, int64_t bytes) override {
    copy_async(to, from, bytes, cudaStreamPerThread);
    check_cuda(cudaStreamSynchronize(cudaStreamPerThread), {"cudaMemcpyAsync", bytes});
  }

  void begin_compute(const DeviceOrder& after) override { hold(compute_, after); }
  void add_gradient(float* open, const GradientView& gradient, Contribution which) override {
    launch_add(stream(), gradient.dtype,
               {.open = open, .gradient = gradient.values, .elements = gradient.elements, .which = which});
  }
  void close_gradient(const Closing& closing, double* norm_part) override;
  void round_to(const float* from, std::byte* to, DType dtype, int64_t elements) override;
  void add_number(const double* number, double* sum) override {
    make_room_for_sums();
    double* const to = sums_.take(sum, 1, compute_.next());
    copy_async(reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(number), sizeof(double), stream());
  }
  void zero(std::byte* memory, int64_t bytes) override {
    check_cuda(cudaMemsetAsync(memory, 0, static_cast<size_t>(bytes), stream()), {"cudaMemsetAsync", bytes});
  }
  uint64_t finish_compute(uint64_t tag) override {
    return compute_.start(tag, -1, [] {});
  }
  Finite update(AdamFormat format, std::span<const AdamRun> runs) override;

 private:
  static void copy_async(std::byte* to, const std::byte* from, int64_t bytes, cudaStream_t stream) {
    check_cuda(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream),
               {"cudaMemcpyAsync", bytes});
  }
  // `lane` goes on after these.
  void hold(const StreamLane& lane, const DeviceOrder& after) {
    upload_.hold(lane, after.upload);
    download_.hold(lane, after.download);
    compute_.hold(lane, after.compute);
  }
  cudaStream_t stream() const { return compute_.stream().get(); }
  int64_t own_offset() const { return round_up(bytes_, 256); }
  void make_room_for_sums();
  void start_closing(kernels::CloseWork& work, DType dtype);

  Gpu gpu_;  // as it was before
  int64_t bytes_;
  DeviceMemory memory_;
  int64_t closings_ = 0;  // launches
  RegisteredMemory registered_;
  Pinned<double> returned_{kReturnedNumbers};
  HostSums sums_{{returned_.at(0), kReturnedNumbers}};
  Event room_;
  UpdateSlots updates_;
  StreamLane upload_{"upload"}, download_{"download"};
  StreamLane compute_{"compute", [this](uint64_t number) { sums_.add_up(number); }};
};

// The places for what returns to the host are full: waits for what is to come.
void DeviceCuda::make_room_for_sums() {
  if (sums_.room() > 0) return;
  room_.record(compute_.stream());
  room_.wait("compute", -1);
  sums_.add_up(compute_.next());
}

// Launches of one stream take turns with two places for their progress.
void DeviceCuda::start_closing(kernels::CloseWork& work, DType dtype) {
  auto* const progress = reinterpret_cast<kernels::CloseProgress*>(memory_.at() + own_offset());
  work.progress = progress + closings_ % 2;
  work.next_progress = progress + ++closings_ % 2;
  launch_close(stream(), dtype, work);
}

void DeviceCuda::close_gradient(const Closing& closing, double* norm_part) {
  *norm_part = 0;
  CloseLaunches launches(closing);
  for (;;) {
    make_room_for_sums();
    kernels::CloseWork work = launches.next(sums_.room());
    if (work.tiles == 0) return;
    work.tile_sums = sums_.take(norm_part, work.tiles, compute_.next());
    start_closing(work, closing.dtype);
  }
}

void DeviceCuda::round_to(const float* from, std::byte* to, DType dtype, int64_t elements) {
  const ClosedPiece piece{to, elements};
  CloseLaunches launches({.open = from, .scale = 1, .dtype = dtype, .pieces = {&piece, 1}});
  for (;;) {
    kernels::CloseWork work = launches.next(INT32_MAX);
    if (work.tiles == 0) return;
    start_closing(work, dtype);
  }
}

Finite DeviceCuda::update(AdamFormat format, std::span<const AdamRun> runs) {
  const UpdateSlots::Lease slot(updates_);
  int* const not_finite = slot->not_finite.at(0);
  *not_finite = 0;
  for (const AdamRun& run : runs) launch_update(slot->stream.get(), format, run, not_finite);
  slot->end.record(slot->stream);
  slot->end.wait("update", -1);
  return *not_finite == 0 ? Finite::kYes : Finite::kNo;
}

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

// The first GPU; asking makes no context on it.
std::string why_too_old() {
  constexpr int kLeastMajor = 8;  // what the kernels are compiled for (cmake/Cuda.cmake)
  int major = 0, minor = 0;
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), {"cudaDeviceGetAttribute"});
  check_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0), {"cudaDeviceGetAttribute"});
  if (major >= kLeastMajor) return "";
  return fmt::format("the first GPU has compute capability {}.{}, and this build has code for {}.0 and later", major,
                     minor, kLeastMajor);
}

}  // namespace

std::string why_no_gpu() {
  int driver = 0, count = 0;
  if (const auto error = cudaDriverGetVersion(&driver); error != cudaSuccess || driver == 0)
    return "no CUDA driver is installed here (libcuda.so.1 was not found)";
  const auto error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    return fmt::format("the driver here is too old: it supports CUDA {}, and this build needs {}", version_text(driver),
                       version_text(CUDART_VERSION));
  }
  if (error == cudaSuccess && count > 0) return why_too_old();
  const std::string answer =
      error == cudaSuccess ? "" : fmt::format(": {} ({})", cudaGetErrorName(error), cudaGetErrorString(error));
  return "the CUDA driver is here, and no GPU answers (see nvidia-smi, and CUDA_VISIBLE_DEVICES)" + answer;
}

std::vector<Gpu> list_gpus() {
  std::vector<Gpu> gpus;
  if (!why_no_gpu().empty()) return gpus;
  int count = 0, current = 0;
  check_cuda(cudaGetDeviceCount(&count), {"cudaGetDeviceCount"});
  check_cuda(cudaGetDevice(&current), {"cudaGetDevice"});
  for (int index = 0; index < count; ++index) {
    check_cuda(cudaSetDevice(index), {"cudaSetDevice"});
    gpus.push_back(gpu_at(index));
  }
  check_cuda(cudaSetDevice(current), {"cudaSetDevice"});
  return gpus;
}

namespace {

void require_gpu() {
  const std::string missing = why_no_gpu();
  if (!missing.empty()) throw DeviceError("device cuda: " + missing + "; or use the host twin (device_host)");
}

}  // namespace

Gpu first_gpu() {
  require_gpu();
  check_cuda(cudaSetDevice(0), {"cudaSetDevice"});
  return gpu_at(0);
}

std::unique_ptr<Device> make_device_cuda(int64_t bytes) {
  require_gpu();
  return std::make_unique<DeviceCuda>(bytes);
}

}  // namespace sluice
