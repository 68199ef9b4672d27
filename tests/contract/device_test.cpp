// What every device owes the executor; run over every implementation that can be had here.
#include "offload/device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/arena.h"
#include "core/bytes.h"
#include "core/errors.h"
#include "offload/gpu.h"
#include "tests/contract/every_device.h"
#include "tests/fakes/odd_arithmetic.h"
#include "tests/offload/gradient_values.h"

namespace sluice {
namespace {

// Collects ends in the order they were told.
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

class EveryDevice : public testing::OverDevices {
 protected:
  void SetUp() override {
    OverDevices::SetUp();
    if (IsSkipped()) return;
    device_ = make_device(GetParam(), kMiB);
    device_->set_sink(&ends_);
  }
  void compute_ends() {
    device_->finish_compute(7);
    EXPECT_EQ(ends_.wait_for(1), std::vector<uint64_t>{7});
  }
  // Values at an offset of the device's memory, there and back.
  template <class T>
  T* put(int64_t offset, const std::vector<T>& values) {
    std::byte* to = device_->memory() + offset;
    device_->copy_now(to, reinterpret_cast<const std::byte*>(values.data()), bytes_of(values));
    return reinterpret_cast<T*>(to);
  }
  std::vector<std::byte> get(const void* from, int64_t bytes) {
    std::vector<std::byte> values(static_cast<size_t>(bytes));
    device_->copy_now(values.data(), static_cast<const std::byte*>(from), bytes);
    return values;
  }
  template <class T>
  static int64_t bytes_of(const std::vector<T>& values) {
    return static_cast<int64_t>(values.size() * sizeof(T));
  }

  Ends ends_;  // outlives the device's last copy
  Arena host_{256 * kKiB};
  std::unique_ptr<Device> device_;
};

TEST_P(EveryDevice, shares_no_byte_with_the_host_arena) {
  device_->register_host(host_.span());
  const std::span<std::byte> host = host_.span();
  std::ranges::fill(host, std::byte{1});
  put(0, std::vector<std::byte>(static_cast<size_t>(kMiB), std::byte{2}));
  EXPECT_EQ(std::ranges::count(host, std::byte{1}), host_.bytes());
  std::ranges::fill(host, std::byte{3});
  const std::vector<std::byte> device = get(device_->memory(), kMiB);
  EXPECT_EQ(std::ranges::count(device, std::byte{2}), kMiB);
}

TEST_P(EveryDevice, copies_of_a_lane_end_in_the_order_of_starting_and_move_every_byte) {
  device_->register_host(host_.span());
  const std::span<std::byte> from = host_.span();
  std::vector<std::byte> back(from.size());  // not registered
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

TEST_P(EveryDevice, copies_both_ways_and_compute_started_together_all_end_and_move_their_bytes) {
  device_->register_host(host_.span());
  std::memset(host_.at(0), 5, 64 * kKiB);
  device_->zero(device_->memory() + 64 * kKiB, 64 * kKiB);
  compute_ends();
  for (uint64_t round = 0; round < 50; ++round) {
    device_->start({.to = device_->memory(), .from = host_.at(0), .bytes = 64 * kKiB, .tag = 1});
    device_->start({.lane = CopyLane::kDownload,
                    .to = host_.at(64 * kKiB),
                    .from = device_->memory() + 64 * kKiB,
                    .bytes = 64 * kKiB,
                    .tag = 2});
    device_->zero(device_->memory() + 128 * kKiB, 64 * kKiB);
    device_->finish_compute(3);
    std::vector<uint64_t> ended = ends_.wait_for(3);
    std::ranges::sort(ended);
    ASSERT_EQ(ended, (std::vector<uint64_t>{1, 2, 3}));
  }
  EXPECT_EQ(get(device_->memory(), 64 * kKiB), std::vector<std::byte>(64 * kKiB, std::byte{5}));
  EXPECT_EQ(get(device_->memory() + 128 * kKiB, 64 * kKiB), std::vector<std::byte>(64 * kKiB));
}

// Up, computed with, down, and over it again, round after round, without waiting for any end.
TEST_P(EveryDevice, orders_of_work_wait_for_each_other_on_the_device) {
  constexpr int64_t kElements = 4096, kBytes = 4 * kElements, kRounds = 6;
  device_->register_host(host_.span());
  auto* const values = reinterpret_cast<float*>(host_.at(0));
  auto* const results = reinterpret_cast<float*>(host_.at(kBytes));
  auto* const open = reinterpret_cast<float*>(device_->memory() + kBytes);
  std::fill_n(values, kElements, 3.0f);
  device_->zero(device_->memory() + kBytes, kBytes);
  DeviceOrder last{.compute = device_->finish_compute(0)};
  for (int64_t round = 1; round <= kRounds; ++round) {
    const Copy up{.to = device_->memory(), .from = host_.at(0), .bytes = kBytes, .tag = 1, .after = last};
    last.upload = device_->start(up);
    device_->begin_compute({.upload = last.upload, .download = last.download});
    device_->add_gradient(open, {device_->memory(), DType::kFp32, kElements}, Contribution::kLater);
    last.compute = device_->finish_compute(2);
    last.download = device_->start({.lane = CopyLane::kDownload,
                                    .to = host_.at(round * kBytes),
                                    .from = device_->memory() + kBytes,
                                    .bytes = kBytes,
                                    .tag = 3,
                                    .after = {.compute = last.compute}});
  }
  const std::vector<uint64_t> ends = ends_.wait_for(1 + 3 * kRounds);
  EXPECT_EQ(std::ranges::count(ends, 3), kRounds);
  for (int64_t round = 1; round <= kRounds; ++round) {
    const float* found = results + (round - 1) * kElements;
    EXPECT_EQ(std::count(found, found + kElements, 3.0f * static_cast<float>(round)), kElements) << "round " << round;
  }
  EXPECT_EQ(last.upload, kRounds);
  EXPECT_EQ(last.compute, kRounds + 1);
}

// Each copy overwrites what the one before it, of the other lane, still reads.
TEST_P(EveryDevice, copies_of_one_lane_wait_for_those_of_the_other) {
  constexpr int64_t kBytes = 1 << 19;
  constexpr int kRounds = 40;
  device_->register_host(host_.span());
  std::vector<std::vector<std::byte>> up(kRounds), down(kRounds, std::vector<std::byte>(kBytes));
  put(0, std::vector<std::byte>(kBytes, std::byte{0}));
  for (int round = 0; round < kRounds; ++round) {
    up[round].assign(kBytes, static_cast<std::byte>(round + 1));
    const uint64_t read = device_->start(
        {.lane = CopyLane::kDownload, .to = down[round].data(), .from = device_->memory(), .bytes = kBytes, .tag = 1});
    device_->start(
        {.to = device_->memory(), .from = up[round].data(), .bytes = kBytes, .tag = 2, .after = {.download = read}});
    ends_.wait_for(2);
    EXPECT_EQ(std::ranges::count(down[round], static_cast<std::byte>(round)), kBytes) << "round " << round;
  }
}

// Ends of several closings are under way: each adds to its own part.
TEST_P(EveryDevice, norms_of_compute_that_nobody_waited_for_come_with_its_end) {
  constexpr int64_t kElements = 5000, kGradients = 8;
  std::vector<float> open = make_values(kElements, Values::kOrdinary, 6);
  const float* on_device = put(0, open);
  std::vector<double> parts(kGradients, -1);
  std::byte* const to = device_->memory() + 128 * kKiB;
  const ClosedPiece piece{to, kElements};
  for (uint64_t i = 0; i < kGradients; ++i) {
    device_->close_gradient({on_device, 1.0f / static_cast<float>(i + 1), DType::kBf16, {&piece, 1}}, &parts[i]);
    EXPECT_EQ(device_->finish_compute(i), i + 1);
  }
  ends_.wait_for(kGradients);
  std::vector<std::byte> closed(kElements * 2);
  const ClosedPiece whole{closed.data(), kElements};
  for (size_t i = 0; i < kGradients; ++i) {
    EXPECT_EQ(parts[i], close_gradient({open.data(), 1.0f / static_cast<float>(i + 1), DType::kBf16, {&whole, 1}}));
  }
}

TEST_P(EveryDevice, numbers_return_to_their_sums_with_the_end_of_the_compute_before_them) {
  const std::vector<double> numbers = {0.1, 1e300, -3};
  const double* on_device = put(0, numbers);
  double first = 1, second = 0;
  device_->add_number(on_device, &first);
  device_->add_number(on_device + 1, &second);
  device_->finish_compute(1);
  device_->add_number(on_device + 2, &first);
  device_->finish_compute(2);
  ends_.wait_for(2);
  EXPECT_EQ(first, 1 + 0.1 + -3);
  EXPECT_EQ(second, 1e300);
}

TEST_P(EveryDevice, adds_contributions_with_the_bits_of_the_host) {
  for (const DType dtype : kEveryDType) {
    for (const int64_t elements : {1, 257, 4095, 4096, 4097, 9001}) {
      const std::vector<float> first = make_values(elements, Values::kEdges, 1);
      const std::vector<std::byte> gradient = stored_as(dtype, make_values(elements, Values::kEdges, 2));
      std::vector<float> expected = first;
      float* open = put(0, first);
      const std::byte* at = put(64 * kKiB + 2, gradient);  // as little aligned as an element is
      if (dtype == DType::kFp32) at = put(64 * kKiB + 4, gradient);
      for (const Contribution which : {Contribution::kFirst, Contribution::kLater}) {
        device_->add_gradient(open, {at, dtype, elements}, which);
        add_gradient(expected.data(), {gradient.data(), dtype, elements}, which);
      }
      compute_ends();
      const std::vector<std::byte> found = get(open, elements * 4);
      ASSERT_TRUE(same_values(found.data(), bytes_in(expected), DType::kFp32, elements)) << elements;
    }
  }
}

TEST_P(EveryDevice, closes_in_place_and_elsewhere_with_the_bits_and_the_norm_of_the_host) {
  for (const DType dtype : kEveryDType) {
    for (const int64_t elements : {1, 31, 4096, 4097, 50'000}) {
      for (const int64_t distance : {0, 512, 4096}) {  // bytes before the open gradient
        std::vector<float> open = make_values(elements, Values::kOrdinary, 3);
        float* on_device = put(distance, open);
        const ClosedPiece piece{device_->memory(), elements};
        double norm_part = -1;
        device_->close_gradient({on_device, 0.25f, dtype, {&piece, 1}}, &norm_part);
        compute_ends();
        std::vector<std::byte> expected(static_cast<size_t>(elements * sluice::bytes_of(dtype)));
        const ClosedPiece whole{expected.data(), elements};
        EXPECT_EQ(norm_part, close_gradient({open.data(), 0.25f, dtype, {&whole, 1}}));
        ASSERT_EQ(get(device_->memory(), bytes_of(expected)), expected) << name_of(dtype) << ", " << elements;
      }
    }
  }
}

// More tiles than a GPU runs beside each other, and a launch after the other.
TEST_P(EveryDevice, closes_large_gradients_in_place_again_and_again) {
  constexpr int64_t kElements = 8'000'003, kRounds = 3;
  device_ = make_device(GetParam(), 32 * kMiB);
  device_->set_sink(&ends_);
  std::vector<float> open = make_values(kElements, Values::kOrdinary, 5);
  struct Cut {
    int64_t head, chunk;  // a parameter may begin shortly before a chunk ends
  };
  for (const auto& [head, chunk] : {Cut{kElements, kElements}, {1 << 17, 1 << 17}, {120, 10'007}}) {
    std::vector<ClosedPiece> pieces;
    std::vector<std::byte> expected(static_cast<size_t>(kElements * 2));
    for (int64_t first = 0, end = head; first < kElements; first = std::exchange(end, std::min(end + chunk, kElements)))
      pieces.push_back({device_->memory() + 4 * first, end - first});
    for (int64_t round = 0; round < kRounds; ++round) {
      open.front() = static_cast<float>(round);
      const float* on_device = put(0, open);
      double norm_part = -1;
      device_->close_gradient({on_device, 0.25f, DType::kBf16, pieces}, &norm_part);
      compute_ends();
      const ClosedPiece whole{expected.data(), kElements};
      EXPECT_EQ(norm_part, close_gradient({open.data(), 0.25f, DType::kBf16, {&whole, 1}}));
      int64_t first = 0;
      for (const ClosedPiece& piece : pieces) {
        const std::vector<std::byte> found = get(piece.to, 2 * piece.elements);
        ASSERT_EQ(std::memcmp(found.data(), expected.data() + 2 * first, found.size()), 0) << chunk << ", " << round;
        first += piece.elements;
      }
    }
  }
}

TEST_P(EveryDevice, refuses_to_close_over_values_that_are_read_after_it) {
  constexpr int64_t kElements = 5000;
  const auto* const open = reinterpret_cast<const float*>(device_->memory());
  const ClosedPiece piece{device_->memory() + 4, kElements};
  double norm_part = 0;
  EXPECT_THROW(device_->close_gradient({open, 1, DType::kBf16, {&piece, 1}}, &norm_part), std::logic_error);
}

TEST_P(EveryDevice, closes_values_of_every_kind_with_the_bits_of_the_host) {
  constexpr int64_t kElements = 20'011;
  for (const DType dtype : kEveryDType) {
    const std::vector<float> open = make_values(kElements, Values::kEdges, 8);
    const float* on_device = put(0, open);
    const ClosedPiece piece{device_->memory() + 128 * kKiB, kElements};
    double norm_part = -1;
    device_->close_gradient({on_device, 0.5f, dtype, {&piece, 1}}, &norm_part);
    compute_ends();
    std::vector<std::byte> expected(static_cast<size_t>(kElements * sluice::bytes_of(dtype)));
    const ClosedPiece whole{expected.data(), kElements};
    EXPECT_TRUE(same_sum(norm_part, close_gradient({open.data(), 0.5f, dtype, {&whole, 1}}))) << name_of(dtype);
    const std::vector<std::byte> found = get(piece.to, bytes_of(expected));
    EXPECT_TRUE(same_values(found.data(), expected.data(), dtype, kElements)) << name_of(dtype);
  }
}

TEST_P(EveryDevice, rounds_in_place_with_the_bits_of_the_host) {
  for (const DType dtype : kEveryDType) {
    const std::vector<float> values = make_values(20'011, Values::kEdges, 4);
    const float* on_device = put(0, values);
    device_->round_to(on_device, device_->memory(), dtype, 20'011);
    compute_ends();
    const std::vector<std::byte> expected = stored_as(dtype, values);
    const std::vector<std::byte> found = get(device_->memory(), bytes_of(expected));
    ASSERT_TRUE(same_values(found.data(), expected.data(), dtype, 20'011)) << name_of(dtype);
  }
}

TEST_P(EveryDevice, has_the_bytes_it_was_asked_for_in_whole_pages) { EXPECT_EQ(device_->bytes(), kMiB); }

// Subnormal numbers, and a product that is rounded.
TEST_P(EveryDevice, computes_gradients_to_the_same_bits_whatever_arithmetic_its_caller_has) {
  constexpr int64_t kElements = 300;
  const std::vector<float> tiny(kElements, std::bit_cast<float>(0x301u));
  const std::byte* const gradient = reinterpret_cast<std::byte*>(put(0, tiny));
  auto* const open = reinterpret_cast<float*>(device_->memory() + 64 * kKiB);
  const ClosedPiece piece{device_->memory() + 128 * kKiB, kElements};
  const auto closed = [&] {
    double norm_part = 0;
    device_->add_gradient(open, {gradient, DType::kFp32, kElements}, Contribution::kFirst);
    device_->add_gradient(open, {gradient, DType::kFp32, kElements}, Contribution::kLater);
    device_->close_gradient({open, 1.0f / 3, DType::kFp32, {&piece, 1}}, &norm_part);
    compute_ends();
    return std::pair(get(piece.to, 4 * kElements), norm_part);
  };
  const auto expected = closed();
  EXPECT_EQ(*reinterpret_cast<const uint32_t*>(expected.first.data()), 0x201u);
  const OddArithmetic odd;
  EXPECT_EQ(closed(), expected);
}

INSTANTIATE_TEST_SUITE_P(, EveryDevice, testing::every_device(), testing::name_of_device);

TEST(Devices, a_cuda_device_asked_for_by_name_fails_loudly_where_there_is_none) {
  if (why_no_gpu().empty()) GTEST_SKIP() << "a GPU answers here: " << explain_device();
  try {
    make_device(DeviceKind::kCuda, kMiB);
    FAIL() << "nothing was thrown";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find(why_no_gpu()), std::string::npos) << error.what();
  }
  EXPECT_NE(explain_device().find(why_no_gpu()), std::string::npos) << explain_device();
  EXPECT_TRUE(list_gpus().empty());
}

TEST(Devices, a_host_twin_takes_nothing_for_itself_is_near_no_node_and_updates_nothing_without_an_optimizer) {
  EXPECT_EQ(own_device_bytes(DeviceKind::kHost), 0);
  EXPECT_EQ(node_near_device(DeviceKind::kHost), -1);
  const AdamRun run;
  EXPECT_THROW(make_device_host(kMiB)->update({}, {&run, 1}), std::logic_error);
}

TEST(Devices, a_budget_that_the_gpu_does_not_have_is_refused_with_what_it_has) {
  if (!why_no_gpu().empty()) GTEST_SKIP() << "no GPU: " << why_no_gpu();
  try {
    make_device(DeviceKind::kCuda, int64_t{1} << 50);
    FAIL() << "nothing was thrown";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("are free"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace sluice
