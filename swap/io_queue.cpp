#include "swap/io_queue.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/errors.h"
#include "swap/store_format.h"

namespace sluice {

void IoQueue::submit(const IoRequest& request) {
  SLUICE_CHECK(in_flight_ < depth_, "more requests submitted than the queue is deep");
  SLUICE_CHECK(request.file >= 0, "a request without a file");
  SLUICE_CHECK(request.op == IoOp::kSync || (request.memory != nullptr && request.bytes > 0), "a transfer of nothing");
  do_submit(request);
  ++in_flight_;
}

void IoQueue::flush() { do_flush(); }

size_t IoQueue::poll(std::span<IoCompletion> completions, Wait wait) {
  if (completions.empty()) return 0;
  const size_t count = do_poll(completions, wait);
  SLUICE_CHECK(static_cast<int>(count) <= in_flight_, "a completion of no request");
  in_flight_ -= static_cast<int>(count);
  return count;
}

IoQueueOptions for_drives(IoQueueOptions options, int drives) {
  SLUICE_CHECK(drives > 0, "a queue that serves no drive");
  options.depth = std::min(options.depth, kMaxQueueDepth / drives) * drives;
  options.files = drives;
  return options;
}

std::unique_ptr<IoQueue> make_io_queue(const IoQueueOptions& options) {
  if (options.backend == IoBackend::kUring) return make_io_queue_uring(options);
  if (options.backend == IoBackend::kThreads) return make_io_queue_threads(options);
  try {
    return make_io_queue_uring(options);
  } catch (const IoError& error) {
    say(options.log, LogLevel::kWarning, fmt::format("I/O by threads: io_uring cannot be had here ({})", error.what()));
    return make_io_queue_threads(options);
  }
}

std::string explain_io_backend() {
  try {
    const AlignedBuffer page(4096);  // to be registered, as a run's memory is
    const auto queue = make_io_queue_uring({.depth = 4, .memory = {page.span()}});
    return fmt::format("{}: a probing read went through", queue->describe());
  } catch (const IoError& error) {
    return fmt::format("threads: io_uring cannot be had here ({})", error.what());
  }
}

}  // namespace sluice
