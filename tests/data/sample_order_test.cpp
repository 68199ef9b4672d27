#include "data/sample_order.h"

#include <gmock/gmock.h>

#include <set>
#include <vector>

#include "core/errors.h"
#include "tests/data/data_support.h"

namespace sluice {
namespace {

std::vector<int64_t> permutation(int64_t count, uint64_t seed, uint64_t round) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < count; ++i) order.push_back(permuted_index(i, count, seed, round));
  return order;
}

TEST(PermutedIndex, is_a_permutation_for_every_count) {
  for (int64_t count = 1; count < 300; ++count) {
    const auto order = permutation(count, 7, 0);
    const std::set<int64_t> seen(order.begin(), order.end());
    ASSERT_EQ(static_cast<int64_t>(seen.size()), count);
    ASSERT_EQ(*seen.begin(), 0);
    ASSERT_EQ(*seen.rbegin(), count - 1);
  }
}

TEST(PermutedIndex, changes_with_seed_and_round_and_with_nothing_else) {
  EXPECT_EQ(permutation(1000, 1, 0), permutation(1000, 1, 0));
  EXPECT_NE(permutation(1000, 1, 0), permutation(1000, 2, 0));
  EXPECT_NE(permutation(1000, 1, 0), permutation(1000, 1, 1));
  EXPECT_NE(permutation(1000, 1, 0), permutation(1000, uint64_t{1} << 32 | 1, 0)) << "high bits of the seed count";
  EXPECT_NE(permutation(1000, 1, 0), permutation(1000, 1, uint64_t{1} << 32)) << "and those of the round";
}

// A run that is resumed by a later version goes on with the samples that it has not seen.
TEST(PermutedIndex, is_the_same_in_every_version) {
  EXPECT_EQ(permutation(10, 7, 0), (std::vector<int64_t>{3, 7, 2, 8, 9, 4, 6, 1, 5, 0}));
  EXPECT_EQ(permutation(16, 7, 0), (std::vector<int64_t>{3, 7, 13, 8, 11, 4, 14, 1, 5, 0, 6, 9, 10, 2, 15, 12}))
      << "a power of two";
  constexpr int64_t kCount = 12'869'789;
  EXPECT_EQ(permuted_index(0, kCount, 42, 3), 9'631'038);
  EXPECT_EQ(permuted_index(1, kCount, 42, 3), 2'845'277);
  EXPECT_EQ(permuted_index(500'000, kCount, 42, 3), 2'437'256);
  EXPECT_EQ(permuted_index(kCount - 1, kCount, 42, 3), 3'649'123);
}

// Chi-square over 20 places x 20 values, 4000 rounds: 361 degrees of freedom, whose 1e-6 quantile is below 510.
TEST(PermutedIndex, every_index_lands_everywhere_equally_often) {
  constexpr int64_t kCount = 20, kRounds = 4000;
  std::vector<int64_t> hits(kCount * kCount);
  for (int64_t round = 0; round < kRounds; ++round) {
    for (int64_t i = 0; i < kCount; ++i)
      ++hits[static_cast<size_t>(i * kCount + permuted_index(i, kCount, 3, static_cast<uint64_t>(round)))];
  }
  const double expected = static_cast<double>(kRounds) / kCount;
  double chi_square = 0;
  for (const int64_t count : hits)
    chi_square += (static_cast<double>(count) - expected) * (static_cast<double>(count) - expected) / expected;
  EXPECT_LT(chi_square, 510);
}

TEST(PermutedIndex, of_a_place_that_is_not_there_is_refused) {
  EXPECT_THROW(permuted_index(5, 5, 1, 0), std::logic_error);
  EXPECT_THROW(permuted_index(-1, 5, 1, 0), std::logic_error);
}

TEST(PermutedIndex, large_counts_stay_inside) {
  for (const int64_t count : {(int64_t{1} << 33) + 1, (int64_t{1} << 34) - 1, int64_t{1} << 40}) {
    for (int64_t i = 0; i < 100; ++i) {
      const int64_t value = permuted_index(count - 1 - i, count, 5, 9);
      ASSERT_TRUE(value >= 0 && value < count);
    }
  }
}

TEST(SampleOrder, an_epoch_takes_each_sample_at_most_once_and_drops_the_partial_batch) {
  const SampleOrder order({.samples = 103, .batch_size = 10, .seed = 4});
  EXPECT_EQ(order.steps_per_epoch(), 10);
  std::set<std::set<int64_t>> epochs;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<int64_t> seen;
    for (int64_t i = 0; i < order.samples_per_epoch(); ++i)
      seen.insert(order.sample_at(epoch * order.samples_per_epoch() + i));
    EXPECT_EQ(seen.size(), 100u);
    EXPECT_LT(*seen.rbegin(), 103);
    EXPECT_GE(*seen.begin(), 0);
    epochs.insert(seen);
  }
  EXPECT_GT(epochs.size(), 1u) << "other samples are dropped in other epochs";
}

TEST(SampleOrder, an_epochs_samples_are_those_of_its_round) {
  constexpr int64_t kSamples = 103;
  constexpr uint64_t kSeed = 4;
  const SampleOrder order({.samples = kSamples, .batch_size = 10, .seed = kSeed});
  for (int64_t position = 0; position < 250; ++position) {
    const int64_t epoch = position / 100, in_epoch = position % 100;
    EXPECT_EQ(order.epoch_of(position), epoch);
    EXPECT_EQ(order.sample_at(position), permuted_index(in_epoch, kSamples, kSeed, static_cast<uint64_t>(epoch)));
  }
}

TEST(SampleOrder, without_shuffle_samples_come_in_order_in_every_epoch) {
  const SampleOrder order({.samples = 7, .batch_size = 3, .shuffle = Shuffle::kNo, .seed = 4});
  const int64_t expected[] = {0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5};
  for (int64_t position = 0; position < 12; ++position) EXPECT_EQ(order.sample_at(position), expected[position]);
  EXPECT_EQ(order.epoch_of(5), 0);
  EXPECT_EQ(order.epoch_of(6), 1);
}

TEST(SampleOrder, text_of_one_batch_is_an_epoch) {
  const SampleOrder order({.samples = 4, .batch_size = 4});
  EXPECT_EQ(order.steps_per_epoch(), 1);
  EXPECT_EQ(order.epoch_of(4), 1);
  EXPECT_THROW(SampleOrder({.samples = 4, .batch_size = 0}), std::logic_error);
}

TEST(SampleOrder, less_text_than_one_batch_is_refused) {
  EXPECT_THAT(message_of<ConfigError>([] { SampleOrder({.samples = 3, .batch_size = 4}); }),
              testing::HasSubstr("3 training samples, fewer than one batch of 4"));
}

}  // namespace
}  // namespace sluice
