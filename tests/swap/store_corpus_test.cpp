// Replays what the fuzzer found (corpus/): hostile headers, superblocks, openings and tables are refused or lead to a
// store that works, and take no more memory than a store of their geometry does.
#include <gtest/gtest.h>

#include <map>
#include <span>
#include <vector>

#include "tests/fakes/counting_new.h"
#include "tests/fakes/message_of.h"
#include "tests/swap/hostile_store.h"

namespace sluice {
namespace {

class HostileStores : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Drives, HostileStores, testing::Values(1, 2), testing::PrintToStringParamName());

TEST_P(HostileStores, are_refused_or_work_and_never_take_memory_they_ask_for) {
  HostileStore store(GetParam());
  ASSERT_EQ(store.look({}), HostileStore::Outcome::kOpened);
  // A table with all of the caller's 1 MiB, read into a buffer of its own and taken over: the most there can be.
  constexpr int64_t kMostBytes = 6 << 20;
  const int64_t before = heap_live_bytes();
  std::map<HostileStore::Outcome, int> outcomes;
  for (const auto& entry : std::filesystem::directory_iterator(SLUICE_STORE_CORPUS)) {
    SCOPED_TRACE(entry.path());
    restart_heap_peak();
    EXPECT_NO_THROW(++outcomes[store.look(read_bytes(entry.path()))]);
    EXPECT_LE(heap_peak_bytes() - before, kMostBytes);
  }
  EXPECT_GE(outcomes[HostileStore::Outcome::kRefused], 10);
  EXPECT_GE(outcomes[HostileStore::Outcome::kNothingThere], 2);
  EXPECT_GE(outcomes[HostileStore::Outcome::kOpened], 10);
}

// One byte, or at a field's beginning eight: a number drawn by chance has any one byte now and then.
std::vector<std::byte> patch(uint8_t flags, uint8_t place, uint8_t offset) {
  const uint8_t count = offset == 0 ? 8 : 1;
  std::vector<std::byte> input;
  for (const uint8_t each : {flags, place, offset, uint8_t{0}, count}) input.push_back(std::byte{each});
  input.resize(input.size() + count, std::byte{5});
  return input;
}

TEST(HostileStore, of_which_one_copy_of_the_header_is_changed_opens_unless_the_copy_is_whole_again) {
  constexpr uint8_t kNothing = 0, kResealIdentity = 1;
  constexpr uint8_t kPlaces[] = {7, 8, 9, 10};  // of copy 0 and copy 1: the identity, what it says of the drives
  constexpr uint8_t kOffsets[] = {0, 8, 9, 40, 44};
  HostileStore store(1);
  for (const uint8_t place : kPlaces) {
    for (const uint8_t offset : kOffsets) {
      const bool is_magic = offset == 0 && place % 2 == 1;
      for (const uint8_t flags : {kNothing, kResealIdentity}) {
        EXPECT_EQ(store.look(patch(flags, place, offset)),
                  flags == kNothing || is_magic ? HostileStore::Outcome::kOpened : HostileStore::Outcome::kRefused)
            << int{flags} << " " << int{place} << " " << int{offset};
      }
    }
  }
}

// That patches reach what headers say of the drives, and that it is read once its checksum agrees.
TEST(HostileStore, of_two_drives_is_refused_for_what_its_headers_say_of_them) {
  constexpr uint8_t kNothing = 0, kResealIdentity = 1;
  constexpr uint8_t kDrivesOfFirst = 7, kIdentityOfSecond = 8, kDrivesOfSecond = 9;  // places
  constexpr uint8_t kStoreNumber = 0, kFirstWeight = 8, kDriveIndex = 40;            // offsets
  HostileStore store(2);
  const auto look = [&](uint8_t flags, uint8_t place, uint8_t offset) {
    return store.look(patch(flags, place, offset));
  };
  EXPECT_EQ(look(kNothing, kDrivesOfFirst, kFirstWeight), HostileStore::Outcome::kRefused);         // damaged
  EXPECT_EQ(look(kResealIdentity, kDrivesOfFirst, kFirstWeight), HostileStore::Outcome::kRefused);  // other lengths
  EXPECT_EQ(look(kResealIdentity, kDrivesOfFirst, kStoreNumber), HostileStore::Outcome::kRefused);  // not its second
  EXPECT_EQ(look(kResealIdentity, kDrivesOfSecond, kStoreNumber), HostileStore::Outcome::kRefused);
  EXPECT_EQ(look(kResealIdentity, kIdentityOfSecond, kDriveIndex), HostileStore::Outcome::kRefused);
  // The first header's weights are those that count.
  EXPECT_EQ(look(kResealIdentity, kDrivesOfSecond, kFirstWeight), HostileStore::Outcome::kOpened);
}

}  // namespace
}  // namespace sluice
