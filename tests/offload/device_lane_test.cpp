// The order in which a lane brings jobs to their ends, whatever its jobs are.
#include "offload/device_lane.h"

#include <gtest/gtest.h>

#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "core/errors.h"

namespace sluice {
namespace {

struct Job {
  uint64_t tag = 0;
};

// What happens to jobs, in its order: all on the lane's thread.
class Happenings final : public CopySink {
 public:
  void add(const char* what, uint64_t tag) { all_.push_back(what + std::to_string(tag)); }
  void copied(uint64_t tag, std::exception_ptr error) noexcept override { add(error ? "failed " : "told ", tag); }
  const std::vector<std::string>& all() const { return all_; }

 private:
  std::vector<std::string> all_;
};

TEST(DeviceLanes, tell_of_a_job_before_what_waits_for_it_begins_and_let_nothing_begin_after_one_that_failed) {
  Happenings happenings;
  {
    DeviceLane<Job> lane(
        [&](const Job& job) {
          happenings.add("done ", job.tag);
          if (job.tag == 8) throw DeviceError("this job was to fail");
        },
        [&](const Job& job) { happenings.add("passed ", job.tag); });
    lane.set_sink(&happenings);
    EXPECT_EQ(lane.next(), 1u);
    EXPECT_EQ(lane.start({7}), 1u);
    EXPECT_EQ(lane.start({8}), 2u);
    EXPECT_EQ(lane.next(), 3u);
  }
  EXPECT_EQ(happenings.all(), (std::vector<std::string>{"done 7", "told 7", "passed 7", "done 8", "failed 8"}));
}

TEST(DeviceLanes, are_done_with_every_job_when_they_go) {
  Happenings happenings;
  std::latch lane_goes(1);
  {
    DeviceLane<Job> lane([&](const Job&) {
      lane_goes.wait();
      std::this_thread::yield();
    });
    lane.set_sink(&happenings);
    for (uint64_t i = 0; i < Device::kMaxCopies; ++i) lane.start({i});
    EXPECT_THROW(lane.check_room(), std::logic_error);
    lane_goes.count_down();
  }
  EXPECT_EQ(happenings.all().size(), static_cast<size_t>(Device::kMaxCopies));
}

}  // namespace
}  // namespace sluice
