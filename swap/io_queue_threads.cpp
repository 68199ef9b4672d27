// The plain twin: a few threads for each file that pread, pwrite and fdatasync. Each request takes the queue's mutex on
// its way to a thread and back, and so does each poll; the io_uring twin takes none.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

#include "core/errors.h"
#include "core/fifo.h"
#include "core/threads.h"
#include "swap/io_queue.h"

namespace sluice {
namespace {

constexpr int kMaxThreads = 8;  // for each file

int64_t move_bytes(const IoRequest& request) {
  for (int tries = 1;; ++tries) {
    int64_t moved = 0;
    if (request.op == IoOp::kSync) {
      moved = fdatasync(request.file);
    } else if (request.op == IoOp::kRead) {
      moved = pread(request.file, request.memory, request.bytes, static_cast<off_t>(request.offset));
    } else {
      moved = pwrite(request.file, request.memory, request.bytes, static_cast<off_t>(request.offset));
    }
    if (moved >= 0) return moved;
    const int error_number = errno;
    if ((error_number != EINTR && error_number != EAGAIN) || tries == kMostIoTries) return -error_number;
    std::this_thread::yield();
  }
}

class ThreadsQueue final : public IoQueue {
 public:
  explicit ThreadsQueue(const IoQueueOptions& options)
      : IoQueue(options.depth), completions_(options.depth), lines_(static_cast<size_t>(std::max(1, options.files))) {
    const int each = std::clamp(options.depth / static_cast<int>(lines_.size()), 1, kMaxThreads);
    threads_.reserve(static_cast<size_t>(each) * lines_.size());
    for (Line& line : lines_) line.requests = Fifo<IoRequest>(options.depth);
    try {
      for (int i = 0; i < each; ++i) {
        for (Line& line : lines_) threads_.emplace_back([this, &line] { work(line); });
      }
    } catch (const std::system_error& error) {
      if (threads_.size() < lines_.size())
        refuse(error, *options.words);  // a line without a thread would wait for ever
      no_more_ = error.code();
    } catch (...) {  // no memory for one
      stop();
      throw;
    }
  }

  // Requests under way use the callers' memory: they are finished, the others dropped.
  ~ThreadsQueue() override { stop(); }

  void interrupt() override {
    {
      std::lock_guard lock(mutex_);
      interrupted_ = true;
    }
    owner_wakes_.notify_one();
  }

  // Not from the constructor: what a log throws there would find the threads still running.
  void warn_of_few_threads(const Log& log) const {
    if (!no_more_) return;
    say(log, LogLevel::kWarning,
        fmt::format("I/O by {} threads: no more can be started ({})", threads_.size(), no_more_.message()));
  }

  std::string describe() const override {
    return fmt::format("threads, depth {}, {} threads", depth(), threads_.size());
  }

 private:
  // Requests of one file; where there are more files than lines, the last line has those of the others.
  struct Line {
    int file = -1;
    Fifo<IoRequest> requests{1};
    std::condition_variable work_to_do;
  };

  void stop() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    for (Line& line : lines_) line.work_to_do.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  [[noreturn]] void refuse(const std::system_error& why, const StoreWords& words) {
    stop();
    refuse_thread("a thread for I/O", why,
                  fmt::format("the I/O backend uring needs none, where it can be had{}", words.io_backend));
  }

  // With mutex_ held.
  Line& line_of(int file) {
    for (Line& line : lines_) {
      if (line.file < 0) line.file = file;
      if (line.file == file) return line;
    }
    return lines_.back();
  }

  void do_submit(const IoRequest& request) override {
    Line* line;
    {
      std::lock_guard lock(mutex_);
      line = &line_of(request.file);
      line->requests.push(request);
    }
    line->work_to_do.notify_one();
  }

  void do_flush() override {}

  size_t do_poll(std::span<IoCompletion> completions, Wait wait) override {
    std::unique_lock lock(mutex_);
    if (wait == Wait::kUntilOne) {
      owner_wakes_.wait(lock, [this] { return interrupted_ || !completions_.empty(); });
      // An interrupt is taken only when it ends a wait: with completions to report it stays for the next one.
      if (completions_.empty()) interrupted_ = false;
    }
    size_t count = 0;
    while (count < completions.size() && !completions_.empty()) completions[count++] = completions_.pop();
    return count;
  }

  void work(Line& line) {
    std::unique_lock lock(mutex_);
    for (;;) {
      line.work_to_do.wait(lock, [&] { return stop_ || !line.requests.empty(); });
      if (stop_) return;
      const IoRequest request = line.requests.pop();
      lock.unlock();
      const int64_t result = move_bytes(request);
      lock.lock();
      completions_.push({.tag = request.tag, .result = result});
      owner_wakes_.notify_one();
    }
  }

  std::mutex mutex_;  // guards what follows, threads_ apart
  std::condition_variable owner_wakes_;
  Fifo<IoCompletion> completions_;
  std::vector<Line> lines_;
  bool interrupted_ = false, stop_ = false;
  std::vector<std::thread> threads_;
  std::error_code no_more_;  // why there are fewer than wanted
};

}  // namespace

std::unique_ptr<IoQueue> make_io_queue_threads(const IoQueueOptions& options) {
  SLUICE_CHECK(options.depth > 0 && options.depth <= kMaxQueueDepth, "queue depth must be 1 to 4096");
  auto queue = std::make_unique<ThreadsQueue>(options);
  queue->warn_of_few_threads(options.log);
  return queue;
}

}  // namespace sluice
