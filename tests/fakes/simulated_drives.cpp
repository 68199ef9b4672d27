#include "tests/fakes/simulated_drives.h"

#include <algorithm>

namespace sluice {
namespace {

class SimulatedQueue final : public IoQueue {
 public:
  SimulatedQueue(int depth, std::shared_ptr<SimulatedDrives> drives) : IoQueue(depth), drives_(std::move(drives)) {}
  void interrupt() override {}
  std::string describe() const override { return "drives in simulated time"; }

 private:
  struct Pending {
    uint64_t tag;
    SimulatedDrives::Served served;
  };

  void do_submit(const IoRequest& request) override {
    const auto found = std::find(files_.begin(), files_.end(), request.file);
    const auto drive = static_cast<size_t>(found - files_.begin());
    if (found == files_.end()) {
      files_.push_back(request.file);
      free_at_ns_.push_back(drives_->now_ns);
    }
    const int64_t bytes = request.op == IoOp::kSync ? 0 : request.bytes;
    const double speed = drives_->gb_per_s[std::min(drive, drives_->gb_per_s.size() - 1)];
    double& free_at = free_at_ns_[drive];
    free_at = std::max(free_at, drives_->now_ns) + static_cast<double>(bytes) / speed;
    pending_.push_back({request.tag,
                        {request.op, static_cast<int>(drive), bytes, drives_->now_ns, free_at, request.memory,
                         static_cast<int64_t>(request.offset)}});
  }
  void do_flush() override {}

  size_t do_poll(std::span<IoCompletion> completions, Wait wait) override {
    const auto ends_first = [](const Pending& a, const Pending& b) { return a.served.ended_ns < b.served.ended_ns; };
    std::stable_sort(pending_.begin(), pending_.end(), ends_first);
    if (wait == Wait::kUntilOne && !pending_.empty())
      drives_->now_ns = std::max(drives_->now_ns, pending_.front().served.ended_ns);
    size_t count = 0;
    while (count < completions.size() && count < pending_.size() &&
           pending_[count].served.ended_ns <= drives_->now_ns) {
      const Pending& ended = pending_[count];
      drives_->served.push_back(ended.served);
      completions[count++] = {.tag = ended.tag, .result = ended.served.bytes};
    }
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<int64_t>(count));
    return count;
  }

  std::shared_ptr<SimulatedDrives> drives_;
  std::vector<int> files_;
  std::vector<double> free_at_ns_;  // by file
  std::vector<Pending> pending_;
};

}  // namespace

IoQueueFactory simulated_drives_factory(std::shared_ptr<SimulatedDrives> drives) {
  return [drives = std::move(drives)](const IoQueueOptions& options) -> std::unique_ptr<IoQueue> {
    return std::make_unique<SimulatedQueue>(options.depth, drives);
  };
}

}  // namespace sluice
