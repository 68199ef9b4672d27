#include "libtorch/workspace.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstring>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "core/arena.h"
#include "core/bytes.h"
#include "core/errors.h"
#include "libtorch/compute_scope.h"
#include "tests/fakes/upper_halves.h"

namespace sluice::testing {
namespace {

class WorkspaceTest : public ::testing::Test {
 protected:
  static constexpr int64_t kBytes = 1 << 20;
  bool owns(const std::byte* at) const { return at >= arena_.at(0) && at < arena_.at(kBytes); }
  bool owns(const at::Tensor& tensor) const { return owns(static_cast<const std::byte*>(tensor.const_data_ptr())); }
  Arena arena_{kBytes};
  Workspace workspace_{arena_.span()};
};

TEST_F(WorkspaceTest, blocks_are_aligned_disjoint_and_come_back_whole) {
  std::mt19937 random(1);
  std::vector<std::pair<std::byte*, int64_t>> live;
  int64_t peak = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (live.size() > 40 || (!live.empty() && random() % 2 == 0)) {
      std::swap(live[random() % live.size()], live.back());
      for (int64_t b = 0; b < live.back().second; ++b)
        ASSERT_EQ(live.back().first[b], std::byte(live.back().second & 0xff));
      ASSERT_TRUE(Workspace::release(live.back().first));
      live.pop_back();
      continue;
    }
    const int64_t bytes = 1 + static_cast<int64_t>(random() % 9000);
    std::byte* const block = workspace_.take(bytes);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % 256, 0u);
    ASSERT_TRUE(owns(block) && owns(block + bytes - 1));
    std::memset(block, static_cast<int>(bytes & 0xff),
                static_cast<size_t>(bytes));  // an overlap would show at its release
    peak = std::max<int64_t>(peak, block + bytes - arena_.at(0));
    live.emplace_back(block, bytes);
  }
  for (const auto& [block, bytes] : live) Workspace::release(block);
  EXPECT_EQ(workspace_.bytes_in_use(), 0);
  EXPECT_GE(workspace_.high_water_bytes(), peak);
  EXPECT_LT(workspace_.high_water_bytes(), peak + 256);
  Workspace::release(workspace_.take(kBytes));  // all one piece again
}

TEST_F(WorkspaceTest, same_calls_give_the_same_offsets_in_any_span_that_suffices) {
  Arena larger_memory(8 * kBytes);
  Workspace larger(larger_memory.span());
  std::mt19937 random(2);
  std::vector<std::pair<std::byte*, std::byte*>> live;
  for (int i = 0; i < 5'000; ++i) {
    if (live.size() > 60 || (!live.empty() && random() % 2 == 0)) {
      std::swap(live[random() % live.size()], live.back());
      Workspace::release(live.back().first);
      Workspace::release(live.back().second);
      live.pop_back();
    } else {
      const int64_t bytes = static_cast<int64_t>(random() % 9000);
      live.emplace_back(workspace_.take(bytes), larger.take(bytes));
      ASSERT_EQ(live.back().first - arena_.at(0), live.back().second - larger_memory.at(0));
    }
  }
  EXPECT_EQ(workspace_.high_water_bytes(), larger.high_water_bytes());
  Arena exact_memory(round_up(workspace_.high_water_bytes(), 4096));
  Workspace exact(exact_memory.span().first(static_cast<size_t>(workspace_.high_water_bytes())));
  EXPECT_NO_THROW(Workspace::release(exact.take(workspace_.high_water_bytes())));
  for (const auto& [a, b] : live) Workspace::release(a), Workspace::release(b);
}

// In units of the alignment, after blocks of 2, 1, 1, 1, 1, 1: the third, the fifth and the first are holes.
TEST_F(WorkspaceTest, takes_the_smallest_hole_that_is_large_enough_the_first_of_them_and_the_end_last) {
  constexpr int64_t kUnit = Workspace::kAlignmentBytes;
  for (const int64_t end_units : {1, 3, 40}) {
    Arena memory(kUnit * 64);
    Workspace tight(memory.span().first(static_cast<size_t>((7 + end_units) * kUnit)));
    const auto take = [&](int64_t units) { return (tight.take(units * kUnit) - memory.at(0)) / kUnit; };
    for (const int64_t units : {2, 1, 1, 1, 1, 1}) take(units);
    for (const int64_t unit : {3, 5, 0}) Workspace::release(memory.at(unit * kUnit));
    EXPECT_EQ(take(1), 3);
    EXPECT_EQ(take(1), 5);
    EXPECT_EQ(take(1), 0) << "a larger hole, not the end";
    EXPECT_EQ(take(1), 1);
    EXPECT_EQ(take(1), 7);
    for (int64_t unit = 0; unit < 8; ++unit) Workspace::release(memory.at(unit * kUnit));
    EXPECT_EQ(tight.bytes_in_use(), 0);
  }
}

TEST_F(WorkspaceTest, has_a_place_of_its_own_for_a_block_of_nothing) {
  std::byte *const first = workspace_.take(0), *const second = workspace_.take(0);
  EXPECT_NE(first, second);
  EXPECT_TRUE(Workspace::release(first));
  EXPECT_TRUE(Workspace::release(second));
}

TEST_F(WorkspaceTest, has_what_is_aligned_of_its_memory) {
  Arena memory(4096);
  EXPECT_EQ(Workspace(memory.span().first(1000)).bytes(), 768);
}

TEST_F(WorkspaceTest, that_is_moved_keeps_its_blocks_and_the_one_that_it_replaces_goes) {
  Arena first_memory(4096), second_memory(4096);
  Workspace workspace(first_memory.span());
  {
    Workspace second(second_memory.span());
    workspace = std::move(second);
  }
  EXPECT_EQ(workspace.take(100), second_memory.at(0));
  EXPECT_TRUE(Workspace::release(second_memory.at(0)));
  EXPECT_FALSE(Workspace::release(first_memory.at(0)));
}

TEST_F(WorkspaceTest, without_room_names_the_bytes_and_what_to_do) {
  std::byte* const most = workspace_.take(kBytes - 512);
  try {
    workspace_.take(513);
    FAIL() << "nothing was thrown";
  } catch (const DeviceError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("513 bytes wanted, 1048064 of 1048576 in use; lower train_micro_batch_size_per_gpu"),
              std::string::npos)
        << message;
  }
  EXPECT_EQ(workspace_.bytes_in_use(), kBytes - 512);
  Workspace::release(most);
}

TEST_F(WorkspaceTest, refuses_an_address_it_did_not_hand_out) {
  int elsewhere = 0;
  EXPECT_FALSE(Workspace::release(&elsewhere));
  EXPECT_FALSE(Workspace::release(arena_.at(0) + kBytes)) << "the end is somebody else's";
  Workspace::release(workspace_.take(512));
  EXPECT_EQ(workspace_.bytes_in_use(), 0);
}

TEST_F(WorkspaceTest, serves_the_visiting_thread_during_the_visit_and_nobody_else) {
  EXPECT_FALSE(owns(at::empty({100})));
  {
    const WorkspaceScope visit(workspace_);
    EXPECT_TRUE(owns(at::empty({100})));
    const at::Tensor nothing = at::empty({0});
    EXPECT_EQ(workspace_.bytes_in_use(), 0);
    EXPECT_TRUE(owns(at::mm(at::ones({8, 8}), at::ones({8, 8}))));
    std::thread([&] { EXPECT_FALSE(owns(at::empty({100}))); }).join();
    Workspace other_workspace(arena_.span().first(0));
    {
      const WorkspaceScope inner(other_workspace);
      EXPECT_THROW(at::empty({100}), DeviceError);
    }
    EXPECT_TRUE(owns(at::empty({100})));
  }
  EXPECT_FALSE(owns(at::empty({100})));
  EXPECT_EQ(workspace_.bytes_in_use(), 0);
}

TEST_F(WorkspaceTest, takes_back_tensors_after_the_visit_and_from_other_threads) {
  at::Tensor kept;
  {
    const WorkspaceScope visit(workspace_);
    kept = at::ones({1000});
  }
  EXPECT_EQ(workspace_.bytes_in_use(), 4096);
  std::thread([&] { kept.reset(); }).join();
  EXPECT_EQ(workspace_.bytes_in_use(), 0);
}

TEST_F(WorkspaceTest, blocks_may_outlive_the_workspace_object) {
  at::Tensor kept;
  Arena memory(8192);
  {
    Workspace brief(memory.span());
    const WorkspaceScope visit(brief);
    kept = at::ones({1000});
  }
  EXPECT_EQ(kept.sum().item<float>(), 1000);
  kept.reset();
  EXPECT_FALSE(Workspace::release(memory.at(0))) << "still registered after its last block has gone";
}

TEST_F(WorkspaceTest, tensors_made_before_are_freed_by_whoever_made_them) {
  at::Tensor before = at::ones({1000});
  const WorkspaceScope visit(workspace_);
  before.reset();
  at::Tensor during = at::ones({1000});
  during.resize_({2000});
  EXPECT_TRUE(owns(during));
}

// So large that memory of its own is mapped for it.
TEST_F(WorkspaceTest, leaves_tensors_outside_of_a_visit_to_be_freed) {
  { const WorkspaceScope installs_the_allocator(workspace_); }
  const size_t mapped_bytes = mallinfo2().hblkhd;
  EXPECT_FALSE(owns(at::empty({1 << 24})));
  EXPECT_EQ(mallinfo2().hblkhd, mapped_bytes);
}

TEST(ComputeScopeTest, ends_with_what_kernels_left_in_the_thread_s_vector_registers) {
  if (!has_upper_halves()) GTEST_SKIP() << "this processor has no such registers";
  {
    const ComputeScope scope(nullptr);
    use_upper_halves();
    EXPECT_TRUE(upper_halves_in_use());
  }
  EXPECT_FALSE(upper_halves_in_use());
}

}  // namespace
}  // namespace sluice::testing
