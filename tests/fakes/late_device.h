// A device as asynchronous as a GPU, on the host: uploads, downloads and compute are queues with a thread each, and
// nothing that is called for is done until its thread comes to it. It can be held, so that nothing is done at all.
#pragma once
#include <array>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "core/arena.h"
#include "offload/device.h"

namespace sluice {

class LateDevice final : public Device {
 public:
  explicit LateDevice(int64_t bytes, AdamKernel kernel = nullptr);
  ~LateDevice() override;  // lets go, and ends when all is done

  enum class Order : uint8_t { kUpload, kDownload, kCompute };
  // Each piece of work of this order takes some time from now on.
  void slow_down(Order order);
  void hold();
  void let_go();
  // The next copy that is started in the lane will move nothing and end with a DeviceError.
  void fail_next(CopyLane lane);
  // The compute that is called for next will do nothing and end with one.
  void fail_next_end_of_compute();
  // The next end in the order of `late` is told only once the next one in that of `first` has been.
  void tell_late(Order late, Order first);
  // The caller's next begin_compute() throws a DeviceError.
  void fail_next_compute() { compute_fails_ = true; }
  // The caller's next finish_compute() throws one, and what was called for is not done.
  void fail_next_finish() { finish_fails_ = true; }
  // The n-th of the caller's calls for rounding from now on, the first being 0, throws a DeviceError.
  void fail_rounding(int64_t nth) { roundings_left_ = nth; }
  // Until so much of every order has been started.
  void wait_until_started(const DeviceOrder& counts);
  // Puts any work into the order of compute, as a kernel's launch would.
  void launch(std::function<void()> work) { called_for_.push_back(std::move(work)); }

  std::byte* memory() const override { return arena_.at(0); }
  int64_t bytes() const override { return arena_.bytes(); }
  std::string describe() const override { return "late_device"; }
  void* compute_stream() const override { return nullptr; }
  void register_host(std::span<std::byte>) override {}
  uint64_t start(const Copy& copy) override;
  void set_sink(CopySink* sink) override { sink_ = sink; }
  void copy_now(std::byte* to, const std::byte* from, int64_t bytes) override;
  void begin_compute(const DeviceOrder& after) override;
  void add_gradient(float* open, const GradientView& gradient, Contribution which) override;
  void close_gradient(const Closing& closing, double* norm_part) override;
  void round_to(const float* from, std::byte* to, DType dtype, int64_t elements) override;
  void zero(std::byte* memory, int64_t bytes) override;
  void add_number(const double* number, double* sum) override;
  uint64_t finish_compute(uint64_t tag) override;
  Finite update(AdamFormat format, std::span<const AdamRun> runs) override;

 private:
  struct Work {
    uint64_t tag = 0;
    DeviceOrder after;
    std::vector<std::function<void()>> steps;
  };
  struct Queue {
    std::deque<Work> waiting;
    uint64_t started = 0, ended = 0;
    uint64_t failing = 0;  // the number that does; 0: none
    uint64_t told = 0;
    std::function<bool()> may_tell;  // the next end; empty: at once
    bool slow = false;
  };
  uint64_t put(Order order, Work work);
  void run(Order order);
  Queue& queue(Order order) { return queues_[static_cast<size_t>(order)]; }
  bool may_run(const Work& work) const;

  Arena arena_;
  AdamKernel kernel_;
  int64_t roundings_left_ = -1;
  bool compute_fails_ = false, finish_fails_ = false;
  CopySink* sink_ = nullptr;
  DeviceOrder after_;                              // of the compute being called for
  std::vector<std::function<void()>> called_for_;  // of it
  std::mutex mutex_;                               // guards what follows
  std::condition_variable changed_;
  std::array<Queue, 3> queues_;
  bool held_ = false, stops_ = false;
  std::array<std::thread, 3> threads_;  // last: they use all of the above
};

}  // namespace sluice
