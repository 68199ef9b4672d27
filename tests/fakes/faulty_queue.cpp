#include "tests/fakes/faulty_queue.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <deque>
#include <random>
#include <utility>

#include "core/errors.h"
#include "swap/store_format.h"
#include "tests/fakes/sector.h"

namespace sluice {
namespace {

class FaultyQueue final : public IoQueue {
 public:
  FaultyQueue(std::unique_ptr<IoQueue> inner, std::shared_ptr<Faults> faults)
      : IoQueue(inner->depth()), inner_(std::move(inner)), faults_(std::move(faults)), random_(faults_->seed) {
    for (auto* list : {&failed_, &held_}) list->reserve(static_cast<size_t>(depth()));
  }

  void interrupt() override { inner_->interrupt(); }
  std::string describe() const override { return inner_->describe() + ", with faults"; }

 private:
  void do_submit(const IoRequest& request) override {
    const Fault* fault = next_fault(request);
    if (is_superblock_write(request) && ++faults_->superblock_writes == faults_->kill_at_superblock) die();
    if (fault != nullptr && fault->error_number != 0) {
      failed_.push_back({.tag = request.tag, .result = -fault->error_number});
      return;
    }
    IoRequest passed_on = request;
    if (fault != nullptr && fault->wrong_byte >= 0 && request.op != IoOp::kSync) damage(passed_on, fault->wrong_byte);
    if (fault != nullptr && fault->short_bytes >= 0 && request.op != IoOp::kSync) {
      passed_on.bytes = static_cast<uint32_t>(std::min<int64_t>(request.bytes, fault->short_bytes));
      if (passed_on.bytes == 0) {
        held_.push_back({.tag = request.tag, .result = 0});
        return;
      }
      // A drive moves whole sectors: what is reported may be any number of bytes.
      const int64_t reported = passed_on.bytes;
      passed_on.bytes = static_cast<uint32_t>(
          std::min<int64_t>(request.bytes, (reported + kSectorBytes - 1) / kSectorBytes * kSectorBytes));
      shortened_.push_back({request.tag, reported});
    }
    count_bytes(passed_on);
    inner_->submit(passed_on);
  }

  void do_flush() override { inner_->flush(); }

  size_t do_poll(std::span<IoCompletion> completions, Wait wait) override {
    if (faults_->polls++ == faults_->poll_that_throws)
      throw IoError({.action = "poll", .path = "the queue", .error_number = ENOMEM});
    if (faults_->keep_errors_back == nullptr || !*faults_->keep_errors_back) {
      held_.insert(held_.end(), failed_.begin(), failed_.end());
      failed_.clear();
    }
    // Faults that never reached the drive need no waiting for it.
    gather(held_.empty() ? wait : Wait::kNo);
    if (faults_->order != Order::kAsFinished) {
      while (!held_.empty() && inner_->in_flight() > 0) gather(Wait::kUntilOne);
      if (faults_->order == Order::kReversed) std::reverse(held_.begin(), held_.end());
      if (faults_->order == Order::kShuffled) std::shuffle(held_.begin(), held_.end(), random_);
    }
    const size_t count = std::min(completions.size(), held_.size());
    std::copy_n(held_.begin(), count, completions.begin());
    held_.erase(held_.begin(), held_.begin() + static_cast<int64_t>(count));
    return count;
  }

  void gather(Wait wait) {
    IoCompletion done[16];
    const size_t count = inner_->poll(done, wait);
    for (IoCompletion& completion : std::span(done).first(count)) {
      const auto at =
          std::find_if(shortened_.begin(), shortened_.end(), [&](const auto& s) { return s.first == completion.tag; });
      if (at != shortened_.end()) {
        completion.result = std::min(completion.result, at->second);
        shortened_.erase(at);
      }
      const auto misread =
          std::find_if(misread_.begin(), misread_.end(), [&](const auto& m) { return m.first == completion.tag; });
      if (misread != misread_.end()) {
        *misread->second ^= std::byte{0x10};
        misread_.erase(misread);
      }
      held_.push_back(completion);
    }
  }

  // A write takes its bytes from a copy, which lives as long as the queue; a read's bytes are changed as it ends.
  void damage(IoRequest& request, int64_t byte) {
    const int64_t at = byte % request.bytes;
    if (request.op == IoOp::kRead) {
      misread_.push_back({request.tag, request.memory + at});
      return;
    }
    const AlignedBuffer& copy = miswritten_.emplace_back(request.bytes);
    std::memcpy(copy.data(), request.memory, request.bytes);
    copy.span()[static_cast<size_t>(at)] ^= std::byte{0x10};
    request.memory = copy.data();
  }

  const Fault* next_fault(const IoRequest& request) {
    const IoOp op = request.op;
    const int64_t all = faults_->reads + faults_->writes + faults_->syncs;
    int64_t& counted = op == IoOp::kRead ? faults_->reads : op == IoOp::kWrite ? faults_->writes : faults_->syncs;
    const int64_t of_op = counted++;
    for (const Fault& fault : faults_->list) {
      if (fault.at >= 0 && fault.at != static_cast<int64_t>(request.offset)) continue;
      const bool counts_all = fault.counts == Fault::Counts::kAllOps;
      const int64_t number = counts_all ? all : of_op;
      if ((counts_all || fault.op == op) && number >= fault.nth && number < fault.nth + fault.times) return &fault;
    }
    return nullptr;
  }

  static bool is_superblock_write(const IoRequest& request) {
    const auto offset = static_cast<int64_t>(request.offset);
    if (request.op != IoOp::kWrite || (offset != kSuperblockOffset[0] && offset != kSuperblockOffset[1])) return false;
    Superblock written;  // giving up a step blanks one
    std::memcpy(&written, request.memory, sizeof written);
    return read_superblock({request.memory, kStoreBlockBytes}, written.fingerprint, written) == BlockState::kValid;
  }

  void count_bytes(const IoRequest& request) {
    if (request.op == IoOp::kSync) return;
    const int64_t before = faults_->read_bytes + faults_->written_bytes;
    (request.op == IoOp::kRead ? faults_->read_bytes : faults_->written_bytes) += request.bytes;
    if (faults_->kill_after_bytes < 0 || before + request.bytes < faults_->kill_after_bytes) return;
    IoRequest torn = request;
    torn.bytes = static_cast<uint32_t>((faults_->kill_after_bytes - before) / kSectorBytes * kSectorBytes);
    if (torn.bytes > 0 && inner_->in_flight() < inner_->depth()) {
      inner_->submit(torn);
      inner_->flush();
      IoCompletion done;
      do {
        inner_->poll({&done, 1}, Wait::kUntilOne);
      } while (done.tag != request.tag);
    }
    die();
  }

  [[noreturn]] static void die() {
    std::raise(SIGKILL);
    std::abort();
  }

  std::deque<AlignedBuffer> miswritten_;  // outlives the requests
  std::unique_ptr<IoQueue> inner_;
  std::shared_ptr<Faults> faults_;
  std::mt19937_64 random_;
  std::vector<IoCompletion> failed_, held_;
  std::vector<std::pair<uint64_t, int64_t>> shortened_;
  std::vector<std::pair<uint64_t, std::byte*>> misread_;
};

}  // namespace

std::unique_ptr<IoQueue> make_faulty_queue(std::unique_ptr<IoQueue> inner, std::shared_ptr<Faults> faults) {
  return std::make_unique<FaultyQueue>(std::move(inner), std::move(faults));
}

IoQueueFactory faulty_queue_factory(std::shared_ptr<Faults> faults, IoQueueFactory inner) {
  return [faults = std::move(faults), inner = std::move(inner)](const IoQueueOptions& options) {
    return make_faulty_queue(inner(options), faults);
  };
}

}  // namespace sluice
