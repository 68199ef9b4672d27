// An I/O queue on files: submit / flush / poll. Completions belong to the caller and carry their own result; no
// callback runs inside submit. What the system refuses of a request, even to take it, is that request's result. Twins:
// io_uring (memory registered with the kernel), which takes no lock for a request; and plain threads (pread/pwrite) for
// where that cannot be had, which hand every request over under a mutex.
//
// One thread at a time calls submit, flush and poll; a queue may be handed to another thread while it is idle
// (in_flight() == 0). interrupt() may be called from any thread at any time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/log.h"
#include "swap/store_words.h"

namespace sluice {

enum class IoOp : uint8_t { kRead, kWrite, kSync };  // kSync: fdatasync; memory, bytes and offset are not looked at

struct IoRequest {
  IoOp op = IoOp::kRead;
  int file = -1;                // descriptor, opened by the caller
  std::byte* memory = nullptr;  // aligned as the file needs it
  uint32_t bytes = 0;
  uint64_t offset = 0;
  uint64_t tag = 0;  // comes back with the completion
};

struct IoCompletion {
  uint64_t tag = 0;
  int64_t result = 0;  // bytes moved (may be short), 0 for a sync, or -errno
};

// A request that ends with EINTR or EAGAIN is tried again, so many times in all; then that is its result.
constexpr int kMostIoTries = 10000;

enum class Wait { kNo, kUntilOne };

class IoQueue {
 public:
  virtual ~IoQueue() = default;

  // At most depth() requests may be in flight: submitting more is a programmer's error. Requests start in no fixed
  // order, at the latest at flush(). Never blocks on the device.
  void submit(const IoRequest& request);
  void flush();
  // Fills completions from the front, returns how many. kUntilOne blocks until there is one or interrupt() was called;
  // an interrupt that comes while nobody waits is remembered once.
  size_t poll(std::span<IoCompletion> completions, Wait wait);
  // Wakes a poll(kUntilOne). Any thread; async-signal-unsafe.
  virtual void interrupt() = 0;

  int depth() const { return depth_; }
  int in_flight() const { return in_flight_; }
  virtual std::string describe() const = 0;  // "io_uring, depth 64, registered buffers"

 protected:
  explicit IoQueue(int depth) : depth_(depth) {}

 private:
  virtual void do_submit(const IoRequest& request) = 0;
  virtual void do_flush() = 0;
  virtual size_t do_poll(std::span<IoCompletion> completions, Wait wait) = 0;
  int depth_;
  int in_flight_ = 0;
};

enum class IoBackend { kAuto, kUring, kThreads };

struct IoQueueOptions {
  IoBackend backend = IoBackend::kAuto;
  int depth = 64;
  int files = 1;  // that requests go to, about: the threads twin works on each with threads of its own
  // Memory that requests will use; registered with the kernel where it allows that (in pieces: swap/uring_buffers.h; a
  // refusal falls back to unregistered memory and is logged once). It outlives the queue and stays mapped as it is:
  // io_uring holds the very pages that lay there, and memory mapped anew at the same addresses has others, which
  // requests would neither fill nor take bytes from.
  std::vector<std::span<std::byte>> memory{};
  Log log{};
  const StoreWords* words = &kPlainWords;
};

constexpr int kMaxQueueDepth = 4096;
// Of a queue that serves so many drives, each with options.depth requests in flight, or with its share of the most that
// a queue may have.
IoQueueOptions for_drives(IoQueueOptions options, int drives);

// kAuto tries io_uring by a real request and falls back to threads, logging why; kUring throws IoError with the reason
// where io_uring cannot be had. Threads: IoError where not even one for each file can be started; with fewer than
// wanted they go on, which is logged.
std::unique_ptr<IoQueue> make_io_queue(const IoQueueOptions& options);
std::unique_ptr<IoQueue> make_io_queue_uring(const IoQueueOptions& options);
std::unique_ptr<IoQueue> make_io_queue_threads(const IoQueueOptions& options);
// What kAuto would pick here and why, for `sluice info`.
std::string explain_io_backend();

// How a store makes its queue; tests wrap a real one to inject faults.
using IoQueueFactory = std::function<std::unique_ptr<IoQueue>(const IoQueueOptions&)>;

}  // namespace sluice
