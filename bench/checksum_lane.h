// A thread that computes checksums beside the one that moves bytes, as the update threads do in training.
#pragma once
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace sluice {

class ChecksumLane {
 public:
  // `work` runs on the lane's thread for each number given; `wake` is called there after each.
  ChecksumLane(std::function<void(int)> work, std::function<void()> wake, int most_in_flight);
  ~ChecksumLane();
  ChecksumLane(ChecksumLane&&) = delete;

  void start(int number);
  // Numbers whose work has ended since the last call. Throws what the work threw.
  void take_ended(std::vector<int>& into);

 private:
  void run();

  std::function<void(int)> work_;
  std::function<void()> wake_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<int> waiting_, ended_;
  std::exception_ptr error_;
  bool stop_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace sluice
