// Who waits for whom and who reads what is not there, against what is known of each byte.
#include "offload/hazards.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "offload/program.h"

namespace sluice {
namespace {

// The same rules, a byte at a time.
class ByBytes {
 public:
  std::vector<int32_t> add(int id, const std::vector<Range>& reads, const std::vector<Range>& fills) {
    std::set<int32_t> waits;
    for (const Range& range : reads) {
      each_byte(range, [&](Byte& byte) {
        if (byte.writer >= 0) waits.insert(byte.writer);
        byte.readers.insert(id);
        if (!byte.is_known) byte.content = range.content;
        byte.is_known = true;
      });
    }
    for (const Range& range : fills) {
      each_byte(range, [&](Byte& byte) {
        if (byte.writer >= 0) waits.insert(byte.writer);
        waits.insert(byte.readers.begin(), byte.readers.end());
        byte = {.is_known = true, .content = range.content, .writer = id, .readers = {}};
      });
    }
    waits.erase(id);
    return {waits.begin(), waits.end()};
  }
  // Would a byte be read that holds something else?
  bool refuses(const Range& read) {
    bool differs = false;
    each_byte(read, [&](const Byte& byte) {
      differs |= read.content != 0 && byte.content != 0 && byte.content != read.content;
    });
    return differs;
  }

 private:
  struct Byte {
    bool is_known = false;  // somebody has read or filled it
    uint64_t content = 0;
    int32_t writer = -1;
    std::set<int32_t> readers;
  };
  template <typename Each>
  void each_byte(const Range& range, Each each) {
    for (int64_t at = range.begin; at < range.end; ++at) each(bytes_[{range.place, at}]);
  }

  std::map<std::pair<Place, int64_t>, Byte> bytes_;
};

// Most ranges are whole buffers, as in programs; some begin or end in one, or span several.
Range any_range(std::mt19937& random) {
  const auto below = [&](int64_t count) { return static_cast<int64_t>(random() % static_cast<uint64_t>(count)); };
  const auto place = static_cast<Place>(below(kPlaceCount));
  const uint64_t content = random() % 3;
  if (below(3) > 0) {
    const int64_t begin = 8 * below(12);
    return {place, begin, begin + 8, content};
  }
  const int64_t begin = below(90);
  return {place, begin, begin + 1 + below(20), content};
}

std::vector<Range> any_ranges(std::mt19937& random) {
  std::vector<Range> ranges(random() % 3);
  for (Range& range : ranges) range = any_range(random);
  return ranges;
}

// Of what is read no content is said where it would not be there.
TEST(Hazards, are_those_of_every_byte) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    std::mt19937 random(seed);
    Hazards hazards;
    ByBytes by_bytes;
    for (int id = 0; id < 150; ++id) {
      const std::vector<Range> fills = any_ranges(random);
      std::vector<Range> reads = any_ranges(random);
      for (Range& range : reads) {
        if (by_bytes.refuses(range)) range.content = 0;
      }
      if (reads.size() == 2) reads[1].content = 0;  // the first may say of a byte what it holds
      const auto waits = hazards.add(id, Hop{}, reads, fills);
      ASSERT_EQ(std::vector<int32_t>(waits.begin(), waits.end()), by_bytes.add(id, reads, fills))
          << "seed " << seed << ", hop " << id;
    }
  }
}

TEST(Hazards, are_refused_where_a_byte_is_read_that_holds_something_else) {
  for (uint32_t seed = 1; seed <= 400; ++seed) {
    std::mt19937 random(seed);
    Hazards hazards;
    ByBytes by_bytes;
    bool is_refused = false;
    for (int id = 0; !is_refused; ++id) {
      const Range read = any_range(random);
      const std::vector<Range> fills = any_ranges(random);
      is_refused = by_bytes.refuses(read);
      if (is_refused) {
        ASSERT_THROW(hazards.add(id, Hop{}, {&read, 1}, fills), std::logic_error) << "seed " << seed << ", hop " << id;
      } else {
        ASSERT_NO_THROW(hazards.add(id, Hop{}, {&read, 1}, fills)) << "seed " << seed << ", hop " << id;
        by_bytes.add(id, {read}, fills);
      }
    }
  }
}

TEST(Hazards, know_what_bytes_hold_that_are_read_and_never_filled) {
  for (int place = 0; place < kPlaceCount; ++place) {
    Hazards hazards;
    const auto read = [&](uint64_t content) {
      const Range range{static_cast<Place>(place), 4, 8, content};
      hazards.add(0, Hop{}, {&range, 1}, {});
    };
    read(5);
    read(0);  // not said
    read(5);
    EXPECT_THROW(read(6), std::logic_error) << place;
  }
}

}  // namespace
}  // namespace sluice
