// Out of place: the bits of the plain kernel in other records, on every target, wherever those and the range begin.
#include "cpu_adam/adam_out_of_place.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/arena.h"
#include "core/dtype.h"
#include "tests/cpu_adam/adam_planes.h"

namespace sluice {
namespace {

constexpr std::byte kSentinel{0xa5};

// A chunk's two records and its gradient, `skew` bytes behind a page's start; every byte is a sentinel at first.
class Records {
 public:
  Records(AdamFormat format, AdamKind kind, int64_t elements, int64_t skew = 0)
      : layouts_{layout(format, kind, Group::kWeights, elements), layout(format, kind, Group::kState, elements)},
        skew_(skew),
        gradient_bytes_(elements * bytes_of(format.gradient)),
        memory_(layouts_[0].bytes + layouts_[1].bytes + gradient_bytes_ + skew) {
    std::memset(memory_.at(0), static_cast<int>(kSentinel), static_cast<size_t>(memory_.bytes()));
  }
  AdamPlanes planes(AdamFormat format) const {
    std::byte* const weights = memory_.at(skew_);
    std::byte* const state = weights + layouts_[0].bytes;
    return planes_of_records(format, {layouts_[1], weights, state, state + layouts_[1].bytes});
  }
  std::span<std::byte> bytes() const { return memory_.span(); }
  std::span<std::byte> records() const {
    return bytes().subspan(static_cast<size_t>(skew_), static_cast<size_t>(layouts_[0].bytes + layouts_[1].bytes));
  }

 private:
  static RecordLayout layout(AdamFormat format, AdamKind kind, Group group, int64_t elements) {
    return record_layout({format.precision, optimizer_of(kind), format.moments}, group, elements);
  }
  RecordLayout layouts_[2];
  int64_t skew_, gradient_bytes_;
  Arena memory_;
};

bool same(std::span<const std::byte> a, std::span<const std::byte> b) { return std::ranges::equal(a, b); }

// What training sees, and all there is: any bits.
void fill_records(const Records& records, uint64_t seed, Values values) {
  std::mt19937_64 random(seed);
  for (std::byte& byte : records.bytes()) byte = static_cast<std::byte>(random());
  if (values == Values::kAnyPattern) return;
  // Small numbers of either type: a bf16, and an fp32, with an exponent around 2^-8.
  std::span<std::byte> bytes = records.bytes();
  for (size_t i = 1; i < bytes.size(); i += 2) bytes[i] = std::byte{0x3b};
}

// Nothing that was there: every byte of these elements is a sentinel again.
void forget(AdamFormat format, const AdamPlanes& planes, int64_t elements) {
  const auto erase = [elements](void* plane, int64_t bytes_each) {
    if (plane) std::memset(plane, static_cast<int>(kSentinel), static_cast<size_t>(elements * bytes_each));
  };
  erase(planes.weights, bytes_of(weights_dtype(format.precision)));
  erase(planes.residual, sizeof(*planes.residual));
  erase(planes.master, sizeof(*planes.master));
  for (float* const moment : {planes.moment1, planes.moment2}) erase(moment, sizeof(*moment));
  for (uint16_t* const moment : {planes.half_moment1, planes.half_moment2}) erase(moment, sizeof(*moment));
}

struct Range {
  int64_t first, count, skew;
};
constexpr int64_t kOfChunk = 9'000;  // more than a tile of copies
constexpr Range kRanges[] = {{0, kOfChunk, 0}, {0, 5, 0},   {32, 640, 0},         {1, 7, 0},
                             {37, 8'900, 0},   {31, 33, 0}, {0, kOfChunk, 64},    {0, kOfChunk, 16},
                             {3, 8'500, 4},    {64, 0, 0},  {kOfChunk - 1, 1, 0}, {0, kOfChunk, kOfChunk}};

// Empty: as it should be.
std::string fault_of(AdamFormat format, AdamKind kind, const Range& range, std::string_view target) {
  const Records from(format, kind, kOfChunk), expected(format, kind, kOfChunk), to(format, kind, kOfChunk, range.skew);
  const AdamStep step = adam_step({.kind = kind, .momentum = 0.9, .rounding_seed = 5}, 7, 0.37);
  for (const Values values : {Values::kOrdinary, Values::kAnyPattern}) {
    fill_records(from, 3, values);
    std::ranges::copy(from.bytes(), expected.bytes().begin());
    // What is not in the range stays what it was.
    std::ranges::copy(from.records(), to.records().begin());
    const auto at = [&](const Records& records) {
      AdamPlanes planes = planes_at(records.planes(format), format, range.first);
      planes.element = (int64_t{1} << 32) - 100;
      return planes;
    };
    const Finite in_place = adam_simd_for(format, target)(step, at(expected), range.count);
    const auto bytes_of = [](const Records& records) {
      return std::vector<std::byte>(records.bytes().begin(), records.bytes().end());
    };
    const std::vector<std::byte> before = bytes_of(from);
    std::vector<std::byte> around = bytes_of(to);
    AdamPlanes there = at(to);
    there.element = 0;                   // not used, as its gradient
    forget(format, there, range.count);  // nor read: all that is there afterwards has been written
    const Finite out = out_of_place_adam_simd_for(format, target)(step, at(from), there, range.count);
    if (out != in_place) return "says otherwise of what is finite";
    if (!same(from.bytes(), before)) return "has changed what it reads";
    if (!same(to.records(), expected.records())) return "has written something else";
    std::ranges::copy(to.records(), around.begin() + range.skew);
    if (!same(to.bytes(), around)) return "has written outside of the records";
  }
  return "";
}

TEST(AdamOutOfPlace, writes_the_bits_of_the_update_in_place_and_leaves_what_it_reads) {
  for (const std::string_view target : adam_simd_targets()) {
    for (const AdamFormat format : all_formats_and_moments()) {
      for (const AdamKind kind : all_kinds()) {
        for (size_t i = 0; i < std::size(kRanges); i += SLUICE_IS_SANITIZED ? 5 : 1) {
          const Range& range = kRanges[i];
          ASSERT_EQ(fault_of(format, kind, range, target), "")
              << target << ", kind " << static_cast<int>(kind) << ", precision " << static_cast<int>(format.precision)
              << ", elements " << range.first << " + " << range.count << " at " << range.skew;
        }
      }
    }
  }
}

TEST(AdamOutOfPlace, finds_where_all_planes_begin_a_line) {
  const AdamFormat format = all_formats().front();
  const auto before = [&](int64_t first, int64_t skew) {
    const Records records(format, AdamKind::kAdamW, 200, skew);
    return elements_before_a_line(format, planes_at(records.planes(format), format, first));
  };
  EXPECT_EQ(before(0, 0), 0);
  EXPECT_EQ(before(1, 0), 31);
  EXPECT_EQ(before(33, 128), 31);
  EXPECT_EQ(before(0, 4), INT64_MAX) << "halves begin a line where words do not";
}

}  // namespace
}  // namespace sluice
