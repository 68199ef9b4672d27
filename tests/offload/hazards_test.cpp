// Who waits for whom, against a list of users for each byte.
#include "offload/hazards.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
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
      each_byte(range, [&](Users& users) {
        if (users.writer >= 0) waits.insert(users.writer);
        users.readers.insert(id);
      });
    }
    for (const Range& range : fills) {
      each_byte(range, [&](Users& users) {
        if (users.writer >= 0) waits.insert(users.writer);
        waits.insert(users.readers.begin(), users.readers.end());
        users = {.writer = id, .readers = {}};
      });
    }
    waits.erase(id);
    return {waits.begin(), waits.end()};
  }

 private:
  struct Users {
    int32_t writer = -1;
    std::set<int32_t> readers;
  };
  template <typename Each>
  void each_byte(const Range& range, Each each) {
    for (int64_t at = range.begin; at < range.end; ++at) each(users_[{range.place, at}]);
  }

  std::map<std::pair<Place, int64_t>, Users> users_;
};

// Most ranges are whole buffers, as in programs; some begin or end in one, or span several.
Range any_range(std::mt19937& random) {
  const auto below = [&](int64_t count) { return static_cast<int64_t>(random() % static_cast<uint64_t>(count)); };
  const auto place = static_cast<Place>(below(kPlaceCount));
  if (below(3) > 0) {
    const int64_t begin = 8 * below(12);
    return {place, begin, begin + 8};
  }
  const int64_t begin = below(90);
  return {place, begin, begin + 1 + below(20)};
}

TEST(Hazards, are_those_of_every_byte) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    std::mt19937 random(seed);
    Hazards hazards;
    ByBytes by_bytes;
    for (int id = 0; id < 150; ++id) {
      std::vector<Range> reads(random() % 3), fills(random() % 3);
      for (Range& range : reads) range = any_range(random);
      for (Range& range : fills) range = any_range(random);
      const auto waits = hazards.add(id, Hop{}, reads, fills);
      ASSERT_EQ(std::vector<int32_t>(waits.begin(), waits.end()), by_bytes.add(id, reads, fills))
          << "seed " << seed << ", hop " << id;
    }
  }
}

}  // namespace
}  // namespace sluice
