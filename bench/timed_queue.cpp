#include "bench/timed_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <string>
#include <thread>

#include "core/clock.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// As the kernel spells it, without a slash at the end. The folder is there once a file in it is open.
fs::path without_links(const fs::path& folder) {
  std::error_code error;
  const fs::path canonical = fs::canonical(folder, error);
  return error ? folder : canonical;
}

class TimedQueue final : public IoQueue {
 public:
  TimedQueue(std::unique_ptr<IoQueue> inner, RequestTimes* times, Throttle throttle)
      : IoQueue(inner->depth()), inner_(std::move(inner)), times_(times), throttle_(std::move(throttle)) {
    free_ = std::vector<int>();
    for (int slot = depth() - 1; slot >= 0; --slot) free_.push_back(slot);
    requests_.resize(static_cast<size_t>(depth()));
    held_.reserve(static_cast<size_t>(depth()));
    free_at_ns_.assign(throttle_.gb_per_s.size(), 0);
  }
  // Noted here first: a wait may be in the inner queue, or here for what is held.
  void interrupt() override {
    interrupted_.store(true);
    inner_->interrupt();
  }
  std::string describe() const override { return inner_->describe(); }

 private:
  struct Request {
    IoOp op = IoOp::kRead;
    uint64_t tag = 0;
    int64_t submitted_ns = 0, ends_ns = 0;  // ends_ns: not told before
  };
  struct Held {
    int slot = 0;
    int64_t result = 0;
  };

  void do_submit(const IoRequest& request) override {
    const int slot = free_.back();
    free_.pop_back();
    Request& noted = requests_[static_cast<size_t>(slot)];
    noted = {.op = request.op, .tag = request.tag, .submitted_ns = now_ns(), .ends_ns = 0};
    if (!throttle_.gb_per_s.empty() && request.op != IoOp::kSync) noted.ends_ns = reserve(request);
    IoRequest passed_on = request;
    passed_on.tag = static_cast<uint64_t>(slot);
    inner_->submit(passed_on);
  }
  void do_flush() override { inner_->flush(); }

  size_t do_poll(std::span<IoCompletion> completions, Wait wait) override {
    for (;;) {
      gather(held_.empty() ? wait : Wait::kNo);
      const size_t count = tell(completions);
      if (count > 0 || wait == Wait::kNo) return count;
      if (interrupted_.exchange(false)) return 0;
      if (held_.empty()) continue;  // the inner queue had yet to hear of an interrupt that has ended a wait here
      const Held& next = *std::ranges::min_element(held_, {}, [this](const Held& h) { return ends_ns(h); });
      constexpr int64_t kPatienceNs = 50'000;  // others may end meanwhile
      const int64_t left_ns = std::min(ends_ns(next) - now_ns(), kPatienceNs);
      if (left_ns > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(left_ns));
    }
  }

  int64_t ends_ns(const Held& held) const { return requests_[static_cast<size_t>(held.slot)].ends_ns; }

  void gather(Wait wait) {
    IoCompletion done[32];
    const size_t count = inner_->poll(done, wait);
    for (size_t i = 0; i < count; ++i) held_.push_back({static_cast<int>(done[i].tag), done[i].result});
  }

  size_t tell(std::span<IoCompletion> completions) {
    const int64_t now = now_ns();
    size_t count = 0;
    for (size_t i = 0; i < held_.size() && count < completions.size();) {
      const Held held = held_[i];
      if (ends_ns(held) > now) {
        ++i;
        continue;
      }
      const Request& request = requests_[static_cast<size_t>(held.slot)];
      if (request.op == IoOp::kRead) times_->read.add(now - request.submitted_ns);
      if (request.op == IoOp::kWrite) times_->write.add(now - request.submitted_ns);
      completions[count++] = {.tag = request.tag, .result = held.result};
      free_.push_back(held.slot);
      held_[i] = held_.back();
      held_.pop_back();
    }
    return count;
  }

  // When a drive of the file's bandwidth would have served the request.
  int64_t reserve(const IoRequest& request) {
    const int drive = drive_of(request.file);
    if (drive < 0 || throttle_.gb_per_s[static_cast<size_t>(drive)] <= 0) return 0;
    int64_t& free_at = free_at_ns_[static_cast<size_t>(drive)];
    free_at = std::max(free_at, now_ns()) +
              static_cast<int64_t>(request.bytes / throttle_.gb_per_s[static_cast<size_t>(drive)]);
    return free_at;
  }

  // -1: none. Of folders that lie in one another the innermost.
  int drive_of(int file) {
    const auto known = drives_.find(file);
    if (known != drives_.end()) return known->second;
    std::error_code ignored;
    const fs::path path = fs::read_symlink(fmt::format("/proc/self/fd/{}", file), ignored);
    int drive = -1;
    ptrdiff_t most_names = 0;
    for (size_t i = 0; i < throttle_.folders.size(); ++i) {
      const fs::path folder = without_links(throttle_.folders[i]);
      const auto names = std::distance(folder.begin(), folder.end());
      const auto differs = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first;
      if (differs != folder.end() || names <= most_names) continue;
      most_names = names;
      drive = static_cast<int>(i);
    }
    return drives_[file] = drive;
  }

  std::unique_ptr<IoQueue> inner_;
  RequestTimes* times_;
  Throttle throttle_;
  std::vector<Request> requests_;  // by slot
  std::vector<int> free_;          // slots
  std::vector<Held> held_;         // finished, not yet told
  std::vector<int64_t> free_at_ns_;
  std::map<int, int> drives_;  // of files
  std::atomic<bool> interrupted_ = false;
};

}  // namespace

double Latencies::percentile(double percent) const {
  if (microseconds_.empty()) return 0;
  std::vector<float> sorted = microseconds_;
  const auto at = static_cast<size_t>(percent / 100 * static_cast<double>(sorted.size() - 1));
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<int64_t>(at), sorted.end());
  return sorted[at];
}

IoQueueFactory timed_queue_factory(RequestTimes* times, Throttle throttle) {
  return [times, throttle = std::move(throttle)](const IoQueueOptions& options) -> std::unique_ptr<IoQueue> {
    return std::make_unique<TimedQueue>(make_io_queue(options), times, throttle);
  };
}

}  // namespace sluice
