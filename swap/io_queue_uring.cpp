// io_uring. Waiting is a poll(2) on the ring and an eventfd, so an interrupt needs no request of its own in the ring:
// one posted by a thread that ends or computes would be cancelled, or would complete late.
#include <fmt/format.h>
#include <liburing.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "core/bytes.h"
#include "core/errors.h"
#include "core/fifo.h"
#include "core/machine_advice.h"
#include "swap/io_queue.h"
#include "swap/uring_buffers.h"

namespace sluice {
namespace {

bool is_transient(int error_number) { return error_number == EINTR || error_number == EAGAIN; }

class UringQueue final : public IoQueue {
 public:
  explicit UringQueue(const IoQueueOptions& options)
      : IoQueue(options.depth), refused_(options.depth), words_(options.words) {
    requests_.resize(static_cast<size_t>(depth()));
    tries_.resize(requests_.size());
    free_.reserve(requests_.size());
    for (int slot = depth() - 1; slot >= 0; --slot) free_.push_back(slot);
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_ < 0) refuse("eventfd", errno);
    // The default flags: any thread may submit and wait, one at a time.
    const int set_up = io_uring_queue_init(static_cast<unsigned>(depth()), &ring_, 0);
    if (set_up < 0) {
      close(wake_);
      refuse("set-up", -set_up);
    }
    try {
      probe();
      register_memory(options);
    } catch (...) {
      io_uring_queue_exit(&ring_);
      close(wake_);
      throw;
    }
  }

  // The kernel uses the callers' memory until what it has taken has ended; what it has not taken is dropped.
  ~UringQueue() override {
    int taken = depth() - static_cast<int>(free_.size() + io_uring_sq_ready(&ring_));
    while (taken > 0) {
      io_uring_cqe* cqe = nullptr;
      if (io_uring_peek_cqe(&ring_, &cqe) == 0) {
        io_uring_cqe_seen(&ring_, cqe);
        --taken;
      } else if (wait_for_events() == Event::kInterrupt) {
        take_interrupt();
      }
    }
    io_uring_queue_exit(&ring_);
    close(wake_);
  }

  void interrupt() override {
    const uint64_t one = 1;
    // Full (a pending interrupt beyond counting) is as good as written.
    while (write(wake_, &one, sizeof one) < 0 && errno == EINTR) {
    }
  }

  std::string describe() const override {
    return fmt::format("io_uring, depth {}, {} buffers", depth(),
                       buffers_.pieces().empty() ? "unregistered" : "registered");
  }

 private:
  [[noreturn]] void refuse(std::string action, int error_number) const {
    std::string advice = fmt::format("take the I/O backend threads, or auto{}", words_->io_backend);
    if (error_number == EPERM || error_number == ENOSYS) {
      advice = "this kernel or container forbids io_uring: " + advice;
    } else if (error_number == ENOMEM) {
      advice = "raise the limit of locked memory (ulimit -l), or " + advice;
    } else if (error_number == EMFILE || error_number == ENFILE) {
      advice = advice_of_machine(error_number);  // threads need files, too
    }
    throw IoError({.action = std::move(action), .path = "io_uring", .error_number = error_number, .advice = advice});
  }

  // Setting a ring up proves little: containers and filters refuse later. One real read does.
  void probe() {
    alignas(512) std::array<std::byte, 512> bytes{};
    const int file = memfd_create("sluice-probe", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, sizeof bytes) != 0) {
      const int error_number = errno;
      if (file >= 0) close(file);
      refuse("memfd for a probe", error_number);
    }
    IoCompletion done;
    do_submit({.op = IoOp::kRead, .file = file, .memory = bytes.data(), .bytes = sizeof bytes});
    do_poll({&done, 1}, Wait::kUntilOne);
    close(file);
    if (done.result != static_cast<int64_t>(sizeof bytes)) {
      refuse("probing read", done.result < 0 ? static_cast<int>(-done.result) : EIO);
    }
  }

  void register_memory(const IoQueueOptions& options) {
    UringBuffers buffers(options.memory);
    const std::span<const iovec> pieces = buffers.pieces();
    if (pieces.empty()) return;
    const int registered = io_uring_register_buffers(&ring_, pieces.data(), static_cast<unsigned>(pieces.size()));
    if (registered < 0) {
      say(options.log, LogLevel::kWarning,
          fmt::format(
              "io_uring: buffers are not registered ({}): transfers cost more CPU time; raise the limit of locked "
              "memory (ulimit -l) to change that",
              std::generic_category().message(-registered)));
      return;
    }
    buffers_ = std::move(buffers);
  }

  void prepare(int slot) {
    const IoRequest& request = requests_[static_cast<size_t>(slot)];
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    SLUICE_CHECK(sqe != nullptr, "the submission ring is as deep as the queue");
    const int piece = request.op == IoOp::kSync ? -1 : buffers_.piece_of(request.memory, request.bytes);
    if (request.op == IoOp::kSync) {
      io_uring_prep_fsync(sqe, request.file, IORING_FSYNC_DATASYNC);
    } else if (request.op == IoOp::kRead && piece >= 0) {
      io_uring_prep_read_fixed(sqe, request.file, request.memory, request.bytes, request.offset, piece);
    } else if (request.op == IoOp::kRead) {
      io_uring_prep_read(sqe, request.file, request.memory, request.bytes, request.offset);
    } else if (piece >= 0) {
      io_uring_prep_write_fixed(sqe, request.file, request.memory, request.bytes, request.offset, piece);
    } else {
      io_uring_prep_write(sqe, request.file, request.memory, request.bytes, request.offset);
    }
    io_uring_sqe_set_data64(sqe, static_cast<uint64_t>(slot));
  }

  void do_submit(const IoRequest& request) override {
    const int slot = free_.back();
    free_.pop_back();
    requests_[static_cast<size_t>(slot)] = request;
    tries_[static_cast<size_t>(slot)] = 1;
    prepare(slot);
  }

  void do_flush() override {
    for (int tries = 1; io_uring_sq_ready(&ring_) > 0; ++tries) {
      const int submitted = io_uring_submit(&ring_);
      if (submitted > 0) {
        tries = 0;
        continue;
      }
      const bool may_pass = submitted == 0 || is_transient(-submitted) || submitted == -EBUSY;
      if (!may_pass || tries == kMostIoTries) return take_back(may_pass ? EAGAIN : -submitted);
      sched_yield();
    }
  }

  // What the kernel has not taken ends with this error. It leaves the ring, or a later flush would submit it after its
  // memory has been given up. The kernel looks at this end of the ring inside io_uring_enter alone.
  void take_back(int error_number) {
    io_uring_sq& sq = ring_.sq;
    const unsigned taken = io_uring_smp_load_acquire(sq.khead);
    for (unsigned at = taken; at != sq.sqe_tail; ++at) {
      const auto slot = static_cast<int>(sq.sqes[at & sq.ring_mask].user_data);
      refused_.push({.tag = requests_[static_cast<size_t>(slot)].tag, .result = -error_number});
      free_.push_back(slot);
    }
    sq.sqe_head = sq.sqe_tail = taken;
    io_uring_smp_store_release(sq.ktail, taken);
  }

  // Takes what has ended. Requests that were only interrupted go back into the ring, with the next flush.
  size_t reap(std::span<IoCompletion> completions) {
    size_t count = 0;
    while (count < completions.size() && !refused_.empty()) completions[count++] = refused_.pop();
    io_uring_cqe* cqe = nullptr;
    while (count < completions.size() && io_uring_peek_cqe(&ring_, &cqe) == 0) {
      const int slot = static_cast<int>(io_uring_cqe_get_data64(cqe));
      const int result = cqe->res;
      io_uring_cqe_seen(&ring_, cqe);
      if (is_transient(-result) && tries_[static_cast<size_t>(slot)] < kMostIoTries) {
        ++tries_[static_cast<size_t>(slot)];
        prepare(slot);
        return count;  // a file that is never ready must not keep the caller here
      }
      completions[count++] = {.tag = requests_[static_cast<size_t>(slot)].tag, .result = result};
      free_.push_back(slot);
    }
    return count;
  }

  // Where poll(2) itself is refused, its callers look again and again: requests are in flight and cannot be left.
  enum class Event { kRing, kInterrupt };
  Event wait_for_events() {
    std::array<pollfd, 2> events = {{{ring_.ring_fd, POLLIN, 0}, {wake_, POLLIN, 0}}};
    while (::poll(events.data(), events.size(), -1) < 0) {
      if (errno == EINTR) continue;
      sched_yield();
      return Event::kInterrupt;
    }
    return events[0].revents != 0 ? Event::kRing : Event::kInterrupt;
  }

  // All that have come; false: none has.
  bool take_interrupt() {
    uint64_t interrupts = 0;
    return read(wake_, &interrupts, sizeof interrupts) == sizeof interrupts;
  }

  size_t do_poll(std::span<IoCompletion> completions, Wait wait) override {
    for (;;) {
      do_flush();
      const size_t count = reap(completions);
      if (count > 0 || wait == Wait::kNo) return count;
      const bool tries_again = io_uring_sq_ready(&ring_) > 0;
      // An interrupt is taken only when it ends a wait: with completions to report it stays for the next one.
      if ((tries_again || wait_for_events() == Event::kInterrupt) && take_interrupt()) return 0;
    }
  }

  io_uring ring_{};
  int wake_ = -1;
  std::vector<IoRequest> requests_;  // by slot
  std::vector<int> tries_;           // by slot
  std::vector<int> free_;            // slots
  Fifo<IoCompletion> refused_;       // by the kernel, and not yet reported
  UringBuffers buffers_;             // registered
  const StoreWords* words_;
};

}  // namespace

std::unique_ptr<IoQueue> make_io_queue_uring(const IoQueueOptions& options) {
  SLUICE_CHECK(options.depth > 0 && options.depth <= kMaxQueueDepth, "queue depth must be 1 to 4096");
  return std::make_unique<UringQueue>(options);
}

}  // namespace sluice
