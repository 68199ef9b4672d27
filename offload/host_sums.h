// Numbers on their way from a device to sums of the host: the device writes them into host memory, places of a ring,
// and when the compute that they belong to has ended they are added. The caller of compute takes places; that, and
// whoever learns of its ends, may be two threads.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

namespace sluice {

class HostSums {
 public:
  static constexpr size_t kMostParts = 4096;  // takes under way

  // Of places; they must outlive it.
  explicit HostSums(std::span<double> ring) : ring_(ring) {}

  // Numbers that one take may have now; 0: none until compute under way has ended and is added.
  int64_t room();
  // Where the next `count` numbers go: no more than there is room for. They add to *sum, in ascending order, once
  // compute work `number` (Device::finish_compute) has ended; numbers of work ascend.
  double* take(double* sum, int64_t count, uint64_t number);
  // All compute up to this number has ended: adds what it wrote, takes in their order.
  void add_up(uint64_t number);

 private:
  struct Part {
    double* sum = nullptr;
    const double* numbers = nullptr;
    size_t count = 0;
    uint64_t number = 0;
  };
  struct Count {
    size_t taken = 0, added = 0;
  };

  std::span<double> ring_;
  std::mutex mutex_;  // guards what follows
  std::array<Part, kMostParts> parts_;
  Count part_count_, place_count_;
};

}  // namespace sluice
