#include "tests/fakes/late_drive.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <random>
#include <utility>

namespace sluice {
namespace {

class LateDrive final : public IoQueue {
 public:
  using Count = std::shared_ptr<std::atomic<size_t>>;
  LateDrive(std::unique_ptr<IoQueue> inner, Late late, uint64_t seed, Count most_kept_back)
      : IoQueue(inner->depth()),
        inner_(std::move(inner)),
        late_(late == Late::kReads ? IoOp::kRead : IoOp::kWrite),
        random_(seed),
        most_kept_back_(std::move(most_kept_back)) {
    waiting_.reserve(static_cast<size_t>(depth()));
  }

  void interrupt() override {
    {
      const std::lock_guard lock(mutex_);
      interrupted_ = true;
    }
    wakes_.notify_one();
    inner_->interrupt();
  }
  std::string describe() const override { return inner_->describe() + ", late"; }

 private:
  void do_submit(const IoRequest& request) override {
    if (request.op == late_) {
      waiting_.push_back(request);
      if (most_kept_back_ && *most_kept_back_ < waiting_.size()) *most_kept_back_ = waiting_.size();
    } else {
      inner_->submit(request);
    }
  }
  void do_flush() override { inner_->flush(); }

  size_t do_poll(std::span<IoCompletion> completions, Wait wait) override {
    const bool nothing_else = inner_->in_flight() == 0 && !waiting_.empty();
    if (wait == Wait::kNo || !nothing_else) return inner_->poll(completions, wait);
    if (interrupted_meanwhile()) return 0;
    std::uniform_int_distribution<size_t> any(0, waiting_.size() - 1);
    std::swap(waiting_[any(random_)], waiting_.back());
    inner_->submit(waiting_.back());
    waiting_.pop_back();
    inner_->flush();
    return inner_->poll(completions, Wait::kUntilOne);
  }

  bool interrupted_meanwhile() {
    constexpr auto kWhile = std::chrono::microseconds(300);
    std::unique_lock lock(mutex_);
    wakes_.wait_for(lock, kWhile, [this] { return interrupted_; });
    return std::exchange(interrupted_, false);
  }

  std::unique_ptr<IoQueue> inner_;
  IoOp late_;
  std::mt19937_64 random_;
  Count most_kept_back_;
  std::vector<IoRequest> waiting_;
  std::mutex mutex_;
  std::condition_variable wakes_;
  bool interrupted_ = false;
};

}  // namespace

IoQueueFactory late_drive_factory(Late late, uint64_t seed, std::shared_ptr<std::atomic<size_t>> most_kept_back) {
  return [late, seed, most_kept_back](const IoQueueOptions& options) -> std::unique_ptr<IoQueue> {
    return std::make_unique<LateDrive>(make_io_queue(options), late, seed, most_kept_back);
  };
}

}  // namespace sluice
