// What every device owes the executor; run over every implementation that can be had here.
#include "offload/device.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <vector>

#include "core/bytes.h"
#include "core/errors.h"

namespace sluice {
namespace {

// Collects ends of copies in the order they were told.
class Ends final : public CopySink {
 public:
  void copied(uint64_t tag, std::exception_ptr error) noexcept override {
    std::lock_guard lock(mutex_);
    tags_.push_back(tag);
    failed_ |= error != nullptr;
    wake_.notify_all();
  }
  std::vector<uint64_t> wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return tags_.size() >= count; });
    EXPECT_FALSE(failed_);
    return std::exchange(tags_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<uint64_t> tags_;
  bool failed_ = false;
};

class EveryDevice : public ::testing::TestWithParam<DeviceKind> {
 protected:
  Ends ends_;  // outlives the device's last copy
  std::unique_ptr<Device> device_ = make_device(GetParam(), kMiB);
  void SetUp() override { device_->set_sink(&ends_); }
};

TEST_P(EveryDevice, copies_of_a_lane_end_in_the_order_of_starting_and_move_every_byte) {
  std::vector<std::byte> from(256 * 1024), back(from.size());
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 31 + i / 251);
  constexpr int64_t kPart = 16 * 1024;
  for (uint64_t i = 0; i < Device::kMaxCopies; ++i) {
    const auto at = static_cast<int64_t>(i) * kPart;
    device_->start({.to = device_->memory() + at, .from = from.data() + at, .bytes = kPart, .tag = i});
  }
  std::vector<uint64_t> order = ends_.wait_for(Device::kMaxCopies);
  for (uint64_t i = 0; i < Device::kMaxCopies; ++i) EXPECT_EQ(order[i], i);
  device_->start({.lane = CopyLane::kDownload,
                  .to = back.data(),
                  .from = device_->memory(),
                  .bytes = static_cast<int64_t>(back.size()),
                  .tag = 99});
  EXPECT_EQ(ends_.wait_for(1), std::vector<uint64_t>{99});
  EXPECT_EQ(std::memcmp(from.data(), back.data(), from.size()), 0);
}

TEST_P(EveryDevice, has_the_bytes_it_was_asked_for_in_whole_pages) { EXPECT_EQ(device_->bytes(), kMiB); }

INSTANTIATE_TEST_SUITE_P(, EveryDevice, ::testing::Values(DeviceKind::kHost, DeviceKind::kAuto));

TEST(Devices, a_cuda_device_asked_for_by_name_fails_loudly_where_there_is_none) {
  EXPECT_THROW(make_device(DeviceKind::kCuda, kMiB), DeviceError);
}

}  // namespace
}  // namespace sluice
