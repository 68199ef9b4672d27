#include "core/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/errors.h"
#include "tests/fakes/forbidden_call.h"

namespace sluice {
namespace {

int64_t resident_pages(const Arena& arena) {
  const auto pages = static_cast<size_t>(round_up(arena.bytes(), 4096) / 4096);
  std::vector<unsigned char> resident(pages);
  if (mincore(arena.at(0), pages * 4096, resident.data()) != 0) return -1;
  return std::count_if(resident.begin(), resident.end(), [](unsigned char page) { return (page & 1) != 0; });
}

TEST(Arena, starts_at_a_huge_page_and_is_resident_to_its_last_page_from_the_start) {
  for (const int64_t bytes : {int64_t{1}, int64_t{4096}, 2 * kMiB, 2 * kMiB + 1, 5 * kMiB - 4096}) {
    const Arena arena(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(arena.at(0)) % (2 * kMiB), 0u);
    EXPECT_EQ(arena.bytes(), bytes);
    EXPECT_EQ(resident_pages(arena), round_up(bytes, 4096) / 4096);
  }
}

TEST(Arena, is_resident_to_its_last_page_where_no_threads_can_be_had_that_help) {
  if (std::thread::hardware_concurrency() == 1) GTEST_SKIP() << "on one core no thread helps";
  std::thread([] {
#ifdef SYS_clone3
    forbid({.number = SYS_clone3, .error_number = EAGAIN});
#endif
    forbid({.number = SYS_clone, .error_number = EAGAIN});
    EXPECT_THROW(std::thread([] {}), std::system_error);
    const Arena arena(128 * kMiB + 4096);
    EXPECT_EQ(resident_pages(arena), arena.bytes() / 4096);
  }).join();
}

// "VmFlags" of the mapping that the address lies in (proc(5)); empty: not told.
std::string flags_of_mapping(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  std::ifstream mappings("/proc/self/smaps");
  bool is_its = false;
  for (std::string line; std::getline(mappings, line);) {
    uintptr_t first = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &first, &end) == 2) is_its = first <= at && at < end;
    if (is_its && line.starts_with("VmFlags:")) return line + " ";
  }
  return "";
}

TEST(Arena, takes_huge_pages_for_whole_ones_alone) {
  const Arena arena(4 * kMiB + 8192);
  const std::string whole = flags_of_mapping(arena.at(0)), tail = flags_of_mapping(arena.at(4 * kMiB));
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage") || whole.empty())
    GTEST_SKIP() << "this kernel has no transparent huge pages, or does not tell where";
  EXPECT_THAT(whole, testing::HasSubstr(" hg "));
  EXPECT_THAT(tail, testing::AllOf(testing::HasSubstr(" nh "), testing::Not(testing::HasSubstr(" hg "))));
}

TEST(Arena, whose_place_cannot_be_had_gives_its_memory_back) {
  std::byte* mapped = nullptr;
  const Arena::Place place = [&](std::span<std::byte> mapping) {
    mapped = mapping.data();
    throw ConfigError("no such node");
  };
  EXPECT_THROW(Arena(2 * kMiB, place), ConfigError);
  ASSERT_NE(mapped, nullptr);
  EXPECT_EQ(msync(mapped, 4096, MS_ASYNC), -1) << "still mapped";
}

TEST(Arena, that_the_kernel_gives_no_pages_for_says_so) {
#ifdef MADV_POPULATE_WRITE
  const Arena probe(4096);
  if (madvise(probe.at(0), 4096, MADV_POPULATE_WRITE) != 0)
    GTEST_SKIP() << "this kernel cannot be asked for pages: before 5.14";
#else
  GTEST_SKIP() << "this C library cannot ask for pages";
#endif
  const Arena::Place unmap_a_page = [](std::span<std::byte> mapping) { munmap(mapping.data() + 4096, 4096); };
  try {
    const Arena arena(2 * kMiB, unmap_a_page);
    FAIL() << "a page of it is not there";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("the kernel gives no pages: Cannot allocate memory"));
  }
}

TEST(Arena, is_zero_and_can_be_written_everywhere) {
  const Arena arena(2 * kMiB + 4096 + 5);
  EXPECT_TRUE(std::all_of(arena.span().begin(), arena.span().end(), [](std::byte b) { return b == std::byte{0}; }));
  std::fill(arena.span().begin(), arena.span().end(), std::byte{0xA5});
  EXPECT_EQ(arena.at(arena.bytes() - 1)[0], std::byte{0xA5});
}

TEST(Arena, moves_its_mapping_to_the_new_owner) {
  Arena first(8192);
  std::byte* base = first.at(0);
  Arena second(std::move(first));
  EXPECT_EQ(second.at(0), base);
  EXPECT_EQ(first.bytes(), 0);
  Arena third(4096);
  third = std::move(second);
  EXPECT_EQ(third.at(0), base);
  EXPECT_EQ(third.bytes(), 8192);
}

TEST(Arena, of_no_bytes_takes_nothing) { EXPECT_EQ(Arena(0).bytes(), 0); }

TEST(Arena, gives_its_memory_back) {
  std::byte* base = nullptr;
  {
    const Arena arena(4 * kMiB);
    base = arena.at(0);
  }
  unsigned char resident = 0;
  EXPECT_NE(mincore(base, 4096, &resident), 0);
}

TEST(Arena, of_more_than_the_machine_has_is_refused_with_both_sizes) {
  const int64_t bytes = int64_t{1} << 45;
  try {
    const Arena arena(bytes);
    FAIL() << "32 TiB were granted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("cannot take 35184372088832 bytes (32.0 TiB) of host memory"));
    EXPECT_THAT(error.what(), testing::HasSubstr("it is more than there is"));
    EXPECT_THAT(error.what(), testing::HasSubstr("are available here"));
  }
}

TEST(Arena, shows_its_mapping_before_a_page_of_it_is_touched) {
  constexpr size_t kBytes = 3 << 20;
  size_t seen = 0, resident = 1;
  const Arena arena(kBytes, [&](std::span<std::byte> mapping) {
    seen = mapping.size();
    std::vector<unsigned char> pages(seen / 4096);
    ASSERT_EQ(mincore(mapping.data(), seen, pages.data()), 0);
    resident = static_cast<size_t>(std::count_if(pages.begin(), pages.end(), [](auto page) { return page & 1; }));
  });
  EXPECT_EQ(seen, kBytes);
  EXPECT_EQ(resident, 0u);
}

}  // namespace
}  // namespace sluice
