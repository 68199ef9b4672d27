#include "offload/byte_ring.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/errors.h"

namespace sluice {
namespace {

TEST(ByteRings, begin_anew_where_the_rest_is_too_short) {
  ByteRing ring(1000, 100);
  EXPECT_EQ(ring.take(40), 1000);
  EXPECT_EQ(ring.peek(40), 1040);
  EXPECT_EQ(ring.take(40), 1040);
  EXPECT_EQ(ring.peek(20), 1080);
  EXPECT_EQ(ring.take(40), 1000);
  ring.rewind();
  EXPECT_EQ(ring.take(100), 1000);
  EXPECT_THROW(ring.take(101), std::logic_error);
}

TEST(ByteRings, end_with_buffers_of_one_size_however_many) {
  for (const int64_t bytes : {120, 100, 103, 139}) {  // of the ring: whole buffers, and with a rest
    for (size_t count = 0; count < 12; ++count) {
      ByteRing ring(0, bytes);
      ring.take(20);
      const std::vector<int64_t> sizes(count, 20);
      ring.end_with(sizes);
      int64_t end = bytes;
      for (const int64_t size : sizes) end = ring.take(size) + size;
      EXPECT_GT(end + 20, bytes) << count << " in " << bytes;
      EXPECT_EQ(ring.take(20), 0) << count << " in " << bytes;
    }
  }
}

TEST(ByteRings, end_within_themselves_with_buffers_of_any_sizes) {
  for (int64_t seed = 1; seed < 200; ++seed) {
    ByteRing ring(0, 100);
    std::vector<int64_t> sizes;
    for (int64_t i = 0; i < seed % 17; ++i) sizes.push_back((seed * 7919 + i * i * 104729) % 101);
    ring.end_with(sizes);
    for (const int64_t size : sizes) {
      const int64_t at = ring.take(size);
      EXPECT_GE(at, 0);
      EXPECT_LE(at + size, 100);
    }
  }
}

}  // namespace
}  // namespace sluice
