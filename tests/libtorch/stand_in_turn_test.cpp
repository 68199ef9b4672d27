// Turns with no engine behind them: where what they work on lies, and what is done with contributions.
#include "libtorch/stand_in_turn.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/arena.h"
#include "core/bytes.h"
#include "engine/plan.h"

namespace sluice::testing {
namespace {

class StandInTurns : public ::testing::Test {
 protected:
  static constexpr int64_t kElements[] = {15, 70, 200};  // of the weights

  void put(int weight, float value) { std::ranges::fill(turn_.open_gradient(weight), value); }
  void contribute(int weight, float value) {
    const std::vector<float> gradient(static_cast<size_t>(kElements[weight]), value);
    turn_.contribute(weight, reinterpret_cast<const std::byte*>(gradient.data()), DType::kFp32);
  }
  std::vector<float> gradient(int weight) {
    const std::span<float> open = turn_.open_gradient(weight);
    return {open.begin(), open.end()};
  }
  static std::vector<float> all(int weight, float value) {
    return std::vector<float>(static_cast<size_t>(kElements[weight]), value);
  }

  ModelSpec model_{.partitions = {{"first", {{"a", {3, 5}}, {"b", {70}}}}, {"second", {{"c", {200}}}}},
                   .tensors = {{"in", 33, DType::kBf16}, {"out", 65, DType::kFp32}},
                   .visits = {{"only", {0, 1}, {0}, {1}}}};
  Geometry geometry_{model_.partitions, 1024};
  StandInTurn::Of of_{.model = model_, .geometry = geometry_, .visit = 0, .weights = DType::kBf16};
  std::unique_ptr<Device> device_ = make_device_host(64 * kKiB);
  PracticeTurn turn_{of_, *device_, device_->memory()};
};

TEST_F(StandInTurns, have_all_that_they_work_on_apart_and_within_their_bytes) {
  std::vector<std::pair<const std::byte*, int64_t>> pieces;  // and their bytes
  for (int weight = 0; weight < 3; ++weight) {
    const std::span<float> open = turn_.open_gradient(weight);
    EXPECT_EQ(std::ssize(open), kElements[weight]);
    pieces.emplace_back(turn_.weights()[static_cast<size_t>(weight)].address, 2 * kElements[weight]);
    pieces.emplace_back(reinterpret_cast<const std::byte*>(open.data()), 4 * std::ssize(open));
  }
  for (const auto& tensors : {turn_.inputs(), turn_.outputs()}) {
    ASSERT_EQ(tensors.size(), 1u);
    pieces.emplace_back(tensors[0].address, tensors[0].elements * bytes_of(tensors[0].dtype));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensors[0].address) % kDeviceAlignmentBytes, 0u);
  }
  EXPECT_EQ(pieces[6].second, 66);
  EXPECT_EQ(pieces[7].second, 260);
  std::ranges::sort(pieces);
  pieces.emplace_back(device_->memory() + StandInTurn::bytes(of_), 0);
  for (size_t i = 0; i + 1 < pieces.size(); ++i) EXPECT_LE(pieces[i].first + pieces[i].second, pieces[i + 1].first);
}

TEST_F(StandInTurns, are_of_the_pass_and_with_the_graph_that_they_began_with) {
  std::vector<std::byte> graph(16);
  turn_.begin(Pass::kBackward, graph);
  EXPECT_EQ(turn_.pass(), Pass::kBackward);
  EXPECT_EQ(turn_.graph().data(), graph.data());
  turn_.begin(Pass::kEvaluate, {});
  EXPECT_EQ(turn_.pass(), Pass::kEvaluate);
  EXPECT_TRUE(turn_.graph().empty());
}

TEST_F(StandInTurns, store_a_turns_first_contribution_and_add_later_ones) {
  put(0, 7);
  for (int turns = 0; turns < 2; ++turns) {
    turn_.begin(Pass::kBackward, {});
    contribute(0, 2);
    EXPECT_EQ(gradient(0), all(0, 2));
    contribute(0, 3);
    EXPECT_EQ(gradient(0), all(0, 5));
  }
}

TEST_F(StandInTurns, have_zeros_where_nothing_was_contributed_and_parts_where_they_belong) {
  put(1, 7);
  turn_.begin(Pass::kBackward, {});
  EXPECT_EQ(gradient(1), all(1, 0));
  put(2, 7);
  turn_.begin(Pass::kBackward, {});
  const std::vector<float> part(4, 1.5f);
  turn_.contribute_part(2, 190, {reinterpret_cast<const std::byte*>(part.data()), DType::kFp32, 4});
  std::vector<float> expected = all(2, 0);
  std::fill_n(expected.begin() + 190, 4, 1.5f);
  EXPECT_EQ(gradient(2), expected);
}

}  // namespace
}  // namespace sluice::testing
