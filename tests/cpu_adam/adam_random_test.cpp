// Every SIMD target against the scalar reference on a hundred million random elements.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <thread>

#include "tests/cpu_adam/adam_planes.h"

namespace sluice {
namespace {

constexpr int64_t kBlock = 1 << 16;  // elements
constexpr int64_t kElements = SLUICE_IS_SANITIZED ? 2'000'000 : 100'000'000;

// Counter-based and cheap: element, block and draw give the number.
uint64_t random_bits(uint64_t counter) {
  uint64_t x = counter * 0x9e3779b97f4a7c15u + 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// 23 random bits of mantissa, a random sign, and an exponent from `lowest` to `lowest` + 15.
float value_of(uint32_t bits, uint32_t lowest) {
  return std::bit_cast<float>((bits & 0x807fffffu) | ((lowest + 127 + (bits >> 23 & 15)) << 23));
}

void fill_random(TestState& state, int64_t block, AdamKind kind) {
  for (int64_t i = 0; i < state.elements; ++i) {
    const auto counter = static_cast<uint64_t>(2 * (block * kBlock + i));
    const uint64_t first = random_bits(counter), second = random_bits(counter + 1);
    const float m = value_of(static_cast<uint32_t>(first >> 32), static_cast<uint32_t>(-20));
    state.set(i, {value_of(static_cast<uint32_t>(first), static_cast<uint32_t>(-13)),
                  kind == AdamKind::kAdagrad ? std::fabs(m) : m,  // a sum of squares
                  std::fabs(value_of(static_cast<uint32_t>(second), static_cast<uint32_t>(-30))),
                  value_of(static_cast<uint32_t>(second >> 32), static_cast<uint32_t>(-15))});
  }
}

// Half of the blocks are AdamW in bf16, as most train; the others go through every format and kind.
struct Case {
  AdamFormat format;
  AdamKind kind;
};
Case case_of(int64_t block) {
  if (block % 2 == 0) return {all_formats().front(), AdamKind::kAdamW};
  const auto odd = static_cast<size_t>(block / 2);
  const std::vector<AdamFormat>& formats = all_formats_and_moments();
  return {formats[odd % formats.size()], all_kinds()[odd / formats.size() % all_kinds().size()]};
}

// One thread's, used again for every block.
struct Scratch {
  TestState given{all_formats().front(), kBlock, {.offset = 3}}, expected = given, found = given;
};

// The first target that differs from the reference, and where; empty: none does.
std::string difference_in(int64_t block, Scratch& scratch) {
  auto& [given, expected, found] = scratch;
  const auto [format, kind] = case_of(block);
  const AdamStep step = adam_step({.kind = kind, .weight_decay = 0.1, .momentum = 0.9}, 3 + block % 100, 0.61);
  given.format = format;
  fill_random(given, block, kind);
  expected = given;
  const Finite finite = adam_scalar(format)(step, expected.planes(), kBlock);
  for (const std::string_view target : adam_simd_targets()) {
    found = given;
    const Finite reported = adam_simd_for(format, target)(step, found.planes(), kBlock);
    if (reported == finite && found.same_bytes(expected)) continue;
    return std::string(target) + ", block " + std::to_string(block) + ", element " +
           std::to_string(first_difference(found, expected));
  }
  return "";
}

TEST(AdamTargets, have_the_bits_of_the_reference_on_a_hundred_million_random_elements) {
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  std::string different;
  const auto work = [&] {
    Scratch scratch;
    for (int64_t block; (block = next++) < kElements / kBlock + 1;) {
      const std::string found = difference_in(block, scratch);
      if (found.empty()) continue;
      const std::lock_guard lock(mutex);
      different = found;
      next = kElements;
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::clamp(std::thread::hardware_concurrency(), 1u, 8u); ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(different, "");
}

}  // namespace
}  // namespace sluice
