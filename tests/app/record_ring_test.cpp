#include "bench/record_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <random>
#include <stdexcept>

namespace sluice {
namespace {

TEST(RecordRing, has_as_many_as_fit_and_no_more) {
  RecordRing ring(10);
  EXPECT_EQ(ring.take(4), 0);
  EXPECT_EQ(ring.take(6), 4);
  EXPECT_EQ(ring.take(1), std::nullopt);
}

TEST(RecordRing, goes_on_at_the_start_where_the_rest_is_too_short) {
  RecordRing ring(10);
  EXPECT_EQ(ring.take(4), 0);
  EXPECT_EQ(ring.take(3), 4);
  ring.give_back(0);
  EXPECT_EQ(ring.take(5), std::nullopt);  // 3 behind, 4 at the start
  EXPECT_EQ(ring.take(4), 0);
  EXPECT_EQ(ring.take(3), std::nullopt);  // the start goes on up to the oldest
  ring.give_back(4);
  EXPECT_EQ(ring.take(6), 4);
}

TEST(RecordRing, opens_the_room_of_what_was_given_back_early_with_the_oldest) {
  RecordRing ring(10);
  for (const int64_t at : {0, 3, 6}) EXPECT_EQ(ring.take(3), at);
  ring.give_back(3);
  EXPECT_EQ(ring.take(3), std::nullopt);
  ring.give_back(0);
  EXPECT_EQ(ring.take(6), 0);
}

TEST(RecordRing, refuses_what_it_can_never_have_and_what_it_has_not) {
  RecordRing ring(10);
  EXPECT_THROW(ring.take(11), std::logic_error);
  EXPECT_EQ(ring.take(10), 0);
  EXPECT_THROW(ring.give_back(1), std::logic_error);
  ring.give_back(0);
  EXPECT_THROW(ring.give_back(0), std::logic_error);
}

// Records of any sizes, given back a little out of order: none lies over another, and one that waits gets its place.
TEST(RecordRing, never_gives_a_byte_twice) {
  struct Piece {
    int64_t begin, end;
  };
  std::mt19937 random(3);
  RecordRing ring(64);
  std::deque<Piece> taken;
  for (int i = 0; i < 20000; ++i) {
    const auto bytes = static_cast<int64_t>(1 + random() % 64);
    std::optional<int64_t> at;
    while (!(at = ring.take(bytes))) {
      ASSERT_FALSE(taken.empty()) << bytes << " do not fit an empty ring";
      const auto given = taken.begin() + static_cast<int64_t>(random() % std::min<size_t>(taken.size(), 3));
      ring.give_back(given->begin);
      taken.erase(given);
    }
    ASSERT_GE(*at, 0);
    ASSERT_LE(*at + bytes, 64);
    for (const Piece& other : taken) ASSERT_TRUE(*at + bytes <= other.begin || other.end <= *at);
    taken.push_back({*at, *at + bytes});
  }
}

}  // namespace
}  // namespace sluice
