#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "core/arena.h"
#include "core/bytes.h"
#include "core/topology.h"

namespace sluice {
namespace {

TEST(MemoryLimits, say_no_more_than_the_machine_has) {
  const int64_t machine_bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  EXPECT_GT(available_host_bytes(), 16 * kMiB);
  EXPECT_LE(available_host_bytes(), machine_bytes);
}

TEST(MemoryLimits, see_an_arena_come_and_keep_its_peak) {
  constexpr int64_t kBytes = 128 * kMiB, kSlackBytes = 2 * kMiB;
  // What a process keeps of its first thread, several MiB of them under a sanitizer, is none of the arena's.
  std::thread([] {}).join();
  const int64_t before = resident_bytes();
  {
    const Arena arena(kBytes);
    EXPECT_GE(resident_bytes(), before + kBytes - kSlackBytes);
    EXPECT_LE(resident_bytes(), before + kBytes + kSlackBytes);
  }
  EXPECT_LE(resident_bytes(), before + kSlackBytes);
  EXPECT_GE(peak_resident_bytes(), before + kBytes - kSlackBytes);
}

}  // namespace
}  // namespace sluice
