// The CUDA kernels' own code, run on the host block after block in any order, against the host's kernels by bits.
#include "offload/device_kernels.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>

#include "core/errors.h"
#include "offload/close_launches.h"
#include "tests/offload/gradient_values.h"
#include "tests/offload/host_block.h"

namespace sluice {
namespace {

using kernels::AddWork;
using kernels::CloseWork;
using kernels::kTileElements;

template <DType kType>
void add_by_kernel(const AddWork& work) {
  launch((work.elements + kTileElements - 1) / kTileElements, 5,
         [&](const HostBlock& block) { kernels::add_tile<kType>(block, work); });
}
void add_by_kernel(DType dtype, const AddWork& work) {
  if (dtype == DType::kBf16) add_by_kernel<DType::kBf16>(work);
  if (dtype == DType::kFp16) add_by_kernel<DType::kFp16>(work);
  if (dtype == DType::kFp32) add_by_kernel<DType::kFp32>(work);
}

template <DType kType>
void close_by_kernel(const CloseWork& work, int64_t tiles, uint64_t seed) {
  const auto shared = std::make_unique<kernels::CloseShared<kType>>();
  launch(tiles, seed, [&](const HostBlock& block) { kernels::close_tile<kType>(block, work, *shared); });
}

struct Closed {
  double norm_part = 0;
  int launches = 0;
};
enum class Norm { kWanted, kNotWanted };
Closed close_by_kernel(const CloseLaunches::Gradient& gradient, int64_t most_tiles, Norm norm = Norm::kWanted) {
  Closed closed;
  CloseLaunches launches(gradient);
  for (;;) {
    CloseLaunch next = launches.next(most_tiles);
    if (next.tiles == 0) return closed;
    std::vector<double> sums(static_cast<size_t>(next.tiles));
    if (norm == Norm::kWanted) next.work.tile_sums = sums.data();
    const auto seed = static_cast<uint64_t>(closed.launches++);
    if (gradient.dtype == DType::kBf16) close_by_kernel<DType::kBf16>(next.work, next.tiles, seed);
    if (gradient.dtype == DType::kFp16) close_by_kernel<DType::kFp16>(next.work, next.tiles, seed);
    if (gradient.dtype == DType::kFp32) close_by_kernel<DType::kFp32>(next.work, next.tiles, seed);
    for (const double sum : sums) closed.norm_part += sum;
  }
}

std::vector<int64_t> every_size() {
  std::vector<int64_t> sizes(258);
  std::iota(sizes.begin(), sizes.end(), 0);
  for (const int64_t size : {4095, 4096, 4097, 8191, 8192, 8193, 20'011}) sizes.push_back(size);
  return sizes;
}

TEST(DeviceKernels, add_contributions_with_the_bits_of_the_host_at_every_size_and_offset) {
  for (const DType dtype : kEveryDType) {
    for (const int64_t elements : every_size()) {
      const int64_t offset = elements % 7;
      const std::vector<std::byte> gradient =
          stored_as(dtype, make_values(elements + offset, Values::kEdges, 1 + static_cast<uint64_t>(elements)));
      const std::byte* from = gradient.data() + offset * bytes_of(dtype);
      std::vector<float> found = make_values(elements + 1, Values::kEdges, 2), expected = found;
      for (const Contribution which : {Contribution::kLater, Contribution::kFirst, Contribution::kLater}) {
        add_by_kernel(dtype, {.open = found.data(), .gradient = from, .elements = elements, .which = which});
        add_gradient(expected.data(), from, dtype, elements, which);
      }
      ASSERT_TRUE(same_values(bytes_in(found), bytes_in(expected), DType::kFp32, elements + 1))
          << name_of(dtype) << ", " << elements;
    }
  }
}

TEST(DeviceKernels, close_with_the_bits_and_the_norm_of_the_host_at_every_size_and_offset) {
  for (const DType dtype : kEveryDType) {
    for (const Values values : {Values::kOrdinary, Values::kEdges}) {
      for (const int64_t elements : every_size()) {
        const int64_t offset = elements % 5;
        const std::vector<float> open = make_values(elements + offset, values, static_cast<uint64_t>(elements));
        std::vector<std::byte> found(static_cast<size_t>((elements + offset + 1) * bytes_of(dtype)), std::byte{9});
        std::vector<std::byte> expected = found;
        const ClosedPiece piece{found.data() + offset * bytes_of(dtype), elements};
        const ClosedPiece by_host{expected.data() + offset * bytes_of(dtype), elements};
        const float scale = 1.0f / 3.0f;
        const Closed closed =
            close_by_kernel({.open = open.data() + offset, .scale = scale, .dtype = dtype, .pieces = {&piece, 1}}, 100);
        const double norm_part = close_gradient(open.data() + offset, scale, dtype, {&by_host, 1});
        ASSERT_TRUE(same_values(found.data(), expected.data(), dtype, elements + offset + 1))
            << name_of(dtype) << ", " << elements;
        ASSERT_TRUE(same_sum(closed.norm_part, norm_part)) << closed.norm_part << " instead of " << norm_part;
      }
    }
  }
}

TEST(DeviceKernels, close_in_place_and_into_memory_before_whatever_the_order_of_blocks) {
  constexpr int64_t kElements = 150'001;
  for (const DType dtype : kEveryDType) {
    for (const int64_t distance : {0, 1, 5, 128, 4096, 100'000, 200'000}) {  // in floats
      std::vector<float> memory = make_values(distance + kElements, Values::kOrdinary, 6);
      const std::vector<float> open(memory.begin() + distance, memory.end());
      std::vector<std::byte> expected(static_cast<size_t>(kElements * bytes_of(dtype)));
      const ClosedPiece by_host{expected.data(), kElements};
      const double norm_part = close_gradient(open.data(), 0.5f, dtype, {&by_host, 1});
      const ClosedPiece piece{reinterpret_cast<std::byte*>(memory.data()), kElements};
      const Closed closed = close_by_kernel(
          {.open = memory.data() + distance, .scale = 0.5f, .dtype = dtype, .pieces = {&piece, 1}}, INT32_MAX);
      EXPECT_TRUE(same_sum(closed.norm_part, norm_part)) << name_of(dtype) << ", " << distance;
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), piece.to)) << name_of(dtype) << ", " << distance;
      const bool apart = distance == 200'000 || (distance == 0 && dtype == DType::kFp32);
      if (apart || distance == 0) {
        EXPECT_EQ(closed.launches, apart ? 1 : 7) << "of 37 tiles, or of 1, 1, 2, 4, 8, 16 and 5";
      }
    }
  }
}

// As the engine closes a partition: a chunk's closed gradient lies at the start of the chunk's own range.
TEST(DeviceKernels, close_chunk_by_chunk_in_place_with_one_norm) {
  constexpr int64_t kElements = 100'003;
  for (const int64_t chunk : {128, 1024, 5120, 40'960}) {
    std::vector<float> memory = make_values(kElements, Values::kOrdinary, 7);
    const std::vector<float> open = memory;
    std::vector<std::byte> expected(kElements * 2);
    const ClosedPiece by_host{expected.data(), kElements};
    const double norm_part = close_gradient(open.data(), 0.5f, DType::kBf16, {&by_host, 1});
    std::vector<ClosedPiece> pieces;
    for (int64_t first = 0; first < kElements; first += chunk) {
      pieces.push_back({reinterpret_cast<std::byte*>(memory.data() + first), std::min(chunk, kElements - first)});
      pieces.push_back({nullptr, 0});  // a piece may be empty
    }
    for (const int64_t most_tiles : {1, 3, 1000}) {
      std::ranges::copy(open, memory.begin());
      const Closed closed =
          close_by_kernel({.open = memory.data(), .scale = 0.5f, .dtype = DType::kBf16, .pieces = pieces}, most_tiles);
      EXPECT_TRUE(same_sum(closed.norm_part, norm_part)) << chunk;
      int64_t first = 0;
      for (const ClosedPiece& piece : pieces) {
        ASSERT_TRUE(std::equal(piece.to, piece.to + piece.elements * 2, expected.data() + first * 2)) << chunk;
        first += piece.elements;
      }
    }
  }
}

TEST(DeviceKernels, round_without_a_norm) {
  for (const DType dtype : kEveryDType) {
    std::vector<float> values = make_values(9001, Values::kEdges, 8);
    const std::vector<std::byte> expected = stored_as(dtype, values);
    const ClosedPiece piece{reinterpret_cast<std::byte*>(values.data()), 9001};
    close_by_kernel({.open = values.data(), .scale = 1, .dtype = dtype, .pieces = {&piece, 1}}, 100, Norm::kNotWanted);
    ASSERT_TRUE(same_values(piece.to, expected.data(), dtype, 9001)) << name_of(dtype);
  }
}

TEST(DeviceKernels, pieces_too_short_for_a_launch_are_refused) {
  const std::vector<float> open(300);
  std::vector<std::byte> closed(600);
  const std::vector<ClosedPiece> pieces = {{closed.data(), 127}, {closed.data() + 254, 173}};
  EXPECT_THROW(CloseLaunches({.open = open.data(), .pieces = pieces}), std::logic_error);
}

}  // namespace
}  // namespace sluice
