// Replays what the fuzzer found (corpus/): hostile headers, superblocks, openings and tables are refused or lead to a
// store that works, and take no more memory than a store of their geometry does.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <vector>

#include "tests/fakes/counting_new.h"
#include "tests/swap/hostile_store.h"

namespace sluice {
namespace {

std::vector<std::byte> bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<std::byte> bytes;
  std::transform(std::istreambuf_iterator<char>(file), {}, std::back_inserter(bytes),
                 [](char c) { return static_cast<std::byte>(c); });
  return bytes;
}

TEST(HostileStores, are_refused_or_work_and_never_take_memory_they_ask_for) {
  HostileStore store;
  ASSERT_EQ(store.look({}), HostileStore::Outcome::kOpened);
  // A table with all of the caller's 1 MiB, read into a buffer of its own and taken over: the most there can be.
  constexpr int64_t kMostBytes = 6 << 20;
  const int64_t before = heap_live_bytes();
  std::map<HostileStore::Outcome, int> outcomes;
  for (const auto& entry : std::filesystem::directory_iterator(SLUICE_STORE_CORPUS)) {
    SCOPED_TRACE(entry.path());
    restart_heap_peak();
    EXPECT_NO_THROW(++outcomes[store.look(bytes_of(entry.path()))]);
    EXPECT_LE(heap_peak_bytes() - before, kMostBytes);
  }
  EXPECT_GE(outcomes[HostileStore::Outcome::kRefused], 10);
  EXPECT_GE(outcomes[HostileStore::Outcome::kNothingThere], 3);
  EXPECT_GE(outcomes[HostileStore::Outcome::kOpened], 10);
}

}  // namespace
}  // namespace sluice
