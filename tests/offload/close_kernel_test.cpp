// The CUDA device's closing, its own code run on the host with blocks beside each other in any order that a GPU allows,
// against the host's kernel by bits.
#include "offload/close_kernel.h"

#include <gtest/gtest.h>

#include <memory>

#include "core/errors.h"
#include "offload/close_launches.h"
#include "tests/offload/gradient_values.h"
#include "tests/offload/resident_blocks.h"

namespace sluice {
namespace {

using kernels::CloseProgress;
using kernels::CloseWork;
using kernels::kTileElements;

// Blocks as they are meant to be, and two that are not.
using Block = ResidentBlock;
struct Impatient : Block {  // does not wait for others to have read
  using Block::Block;
  template <class Condition>
  void wait(const Condition& condition) const {
    threads([&](int thread) { static_cast<void>(condition(thread)); });
  }
};
struct Unordered : Block {  // takes the part of its number
  using Block::Block;
  uint32_t next(uint32_t*) const { return static_cast<uint32_t>(number()); }
};

enum class Norm { kWanted, kNotWanted };
struct Way {
  int64_t most_tiles = INT32_MAX;
  Norm norm = Norm::kWanted;
  int64_t at_once = 1000;  // blocks
  uint64_t seed = 0;
};
struct Closed {
  double norm_part = 0;
  int launches = 0;
};

template <DType kType, class Of>
void launch(const CloseWork& next, int64_t at_once, uint64_t seed) {
  ResidentBlocks<Of>(kernels::parts_of(next), at_once, seed).run([&](const Of& block) {
    const auto shared = std::make_unique<kernels::CloseShared<kType>>();
    kernels::close_part<kType>(block, next, *shared);
  });
}

template <class Of = Block>
Closed close_by_kernel(const Closing& gradient, const Way& way = {}) {
  Closed closed;
  const auto progress = std::make_unique<CloseProgress[]>(2);
  CloseLaunches launches(gradient);
  for (;;) {
    CloseWork next = launches.next(way.most_tiles);
    if (next.tiles == 0) return closed;
    std::vector<double> sums(static_cast<size_t>(next.tiles));
    if (way.norm == Norm::kWanted) next.tile_sums = sums.data();
    next.progress = &progress[closed.launches % 2];
    next.next_progress = &progress[++closed.launches % 2];
    const uint64_t seed = way.seed + static_cast<uint64_t>(closed.launches);
    if (gradient.dtype == DType::kBf16) launch<DType::kBf16, Of>(next, way.at_once, seed);
    if (gradient.dtype == DType::kFp16) launch<DType::kFp16, Of>(next, way.at_once, seed);
    if (gradient.dtype == DType::kFp32) launch<DType::kFp32, Of>(next, way.at_once, seed);
    for (const double sum : sums) closed.norm_part += sum;
  }
}

TEST(CloseKernel, gives_the_bits_and_the_norm_of_the_host_at_every_size_and_offset) {
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
            close_by_kernel({.open = open.data() + offset, .scale = scale, .dtype = dtype, .pieces = {&piece, 1}});
        const double norm_part = close_gradient({open.data() + offset, scale, dtype, {&by_host, 1}});
        ASSERT_TRUE(same_values(found.data(), expected.data(), dtype, elements + offset + 1))
            << name_of(dtype) << ", " << elements;
        ASSERT_TRUE(same_sum(closed.norm_part, norm_part)) << closed.norm_part << " instead of " << norm_part;
      }
    }
  }
}

// A gradient that closes into memory `distance` floats before it.
class InPlace {
 public:
  static constexpr int64_t kElements = 300'001;

  InPlace(DType dtype, int64_t distance)
      : dtype_(dtype), distance_(distance), open_(make_values(distance + kElements, Values::kOrdinary, 6)) {
    expected_.resize(static_cast<size_t>(kElements * bytes_of(dtype)));
    const ClosedPiece by_host{expected_.data(), kElements};
    norm_part_ = close_gradient({open_.data() + distance, 0.5f, dtype, {&by_host, 1}});
  }
  // Whether it comes out as on the host, by one launch.
  template <class Of = Block>
  bool closes(const Way& way) const {
    std::vector<float> memory = open_;
    const ClosedPiece piece{reinterpret_cast<std::byte*>(memory.data()), kElements};
    const Closed closed = close_by_kernel<Of>(
        {.open = memory.data() + distance_, .scale = 0.5f, .dtype = dtype_, .pieces = {&piece, 1}}, way);
    EXPECT_EQ(closed.launches, 1);
    return same_sum(closed.norm_part, norm_part_) && std::equal(expected_.begin(), expected_.end(), piece.to);
  }

 private:
  DType dtype_;
  int64_t distance_;
  std::vector<float> open_;
  std::vector<std::byte> expected_;
  double norm_part_ = 0;
};

TEST(CloseKernel, closes_in_place_and_into_memory_before_by_one_launch_whatever_the_order_of_blocks) {
  for (const DType dtype : kEveryDType) {
    for (const int64_t distance : {0, 1, 5, 128, 4096, 100'000, 200'000}) {
      if (SLUICE_IS_SANITIZED && distance % 128 != 0) continue;
      const InPlace gradient(dtype, distance);
      for (const int64_t at_once : {1, 5, 999, 1000}) {
        ASSERT_TRUE(gradient.closes({.at_once = at_once, .seed = static_cast<uint64_t>(at_once)}))
            << name_of(dtype) << ", " << distance << ", " << at_once;
      }
    }
  }
}

TEST(CloseKernel, comes_out_wrong_here_without_waiting_and_hangs_with_parts_taken_in_another_order) {
  const InPlace gradient(DType::kBf16, 0), apart(DType::kBf16, InPlace::kElements);
  int wrong = 0, hung = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    if (!gradient.closes<Impatient>({.seed = seed})) ++wrong;
    EXPECT_TRUE(apart.closes<Impatient>({.seed = seed})) << "there is nothing to wait for";
    try {
      EXPECT_TRUE(gradient.closes<Unordered>({.at_once = 5, .seed = seed}));
    } catch (const NoBlockCanGoOn&) {
      ++hung;
    }
  }
  EXPECT_GT(wrong, 5);
  EXPECT_GT(hung, 5);
}

// As the engine closes a partition: a chunk's closed gradient lies at the start of the chunk's own range.
TEST(CloseKernel, closes_chunk_by_chunk_in_place_with_one_norm) {
  constexpr int64_t kElements = 100'003;
  for (const int64_t chunk : {128, 5120, 8191, 40'960}) {  // one ends before a part's last element
    std::vector<float> memory = make_values(kElements, Values::kOrdinary, 7);
    const std::vector<float> open = memory;
    std::vector<std::byte> expected(kElements * 2);
    const ClosedPiece by_host{expected.data(), kElements};
    const double norm_part = close_gradient({open.data(), 0.5f, DType::kBf16, {&by_host, 1}});
    std::vector<ClosedPiece> pieces;
    for (int64_t first = 0; first < kElements; first += chunk) {
      pieces.push_back({reinterpret_cast<std::byte*>(memory.data() + first), std::min(chunk, kElements - first)});
      pieces.push_back({nullptr, 0});  // a piece may be empty
    }
    for (const int64_t most_tiles : {1, 3, 1000}) {
      std::ranges::copy(open, memory.begin());
      const Closed closed =
          close_by_kernel({.open = memory.data(), .scale = 0.5f, .dtype = DType::kBf16, .pieces = pieces},
                          {.most_tiles = most_tiles, .at_once = 6, .seed = static_cast<uint64_t>(chunk)});
      EXPECT_TRUE(same_sum(closed.norm_part, norm_part)) << chunk;
      EXPECT_TRUE(closed.launches == 1 || most_tiles < 1000 || chunk < 5120) << closed.launches;
      int64_t first = 0;
      for (const ClosedPiece& piece : pieces) {
        ASSERT_TRUE(std::equal(piece.to, piece.to + piece.elements * 2, expected.data() + first * 2)) << chunk;
        first += piece.elements;
      }
    }
  }
}

TEST(CloseKernel, clears_all_of_the_next_launchs_progress) {
  const auto progress = std::make_unique<CloseProgress[]>(2);
  progress[1].started = 5;
  std::ranges::fill(progress[1].read, ~0u);
  CloseWork work;
  work.progress = &progress[0];
  work.next_progress = &progress[1];
  ResidentBlocks<Block>(1, 1, 0).run([&](const Block& block) {
    uint32_t number = 7;
    kernels::take_part(block, work, number);
    EXPECT_EQ(number, 0u);
  });
  EXPECT_EQ(progress[1].started, 0u);
  EXPECT_EQ(std::ranges::count(progress[1].read, 0u), CloseProgress::kWords);
}

TEST(CloseKernel, rounds_without_a_norm) {
  for (const DType dtype : kEveryDType) {
    std::vector<float> values = make_values(9001, Values::kEdges, 8);
    const std::vector<std::byte> expected = stored_as(dtype, values);
    const ClosedPiece piece{reinterpret_cast<std::byte*>(values.data()), 9001};
    close_by_kernel({.open = values.data(), .scale = 1, .dtype = dtype, .pieces = {&piece, 1}},
                    {.norm = Norm::kNotWanted});
    ASSERT_TRUE(same_values(piece.to, expected.data(), dtype, 9001)) << name_of(dtype);
  }
}

TEST(CloseLaunches, cut_where_tiles_or_pieces_are_more_than_a_launch_takes) {
  auto* const memory = reinterpret_cast<std::byte*>(int64_t{1} << 40);  // never touched
  const auto* const open = reinterpret_cast<float*>(memory);
  const auto tiles_of = [&](const std::vector<ClosedPiece>& pieces) {
    CloseLaunches launches({.open = open, .pieces = pieces});
    std::vector<int64_t> tiles;
    do {
      tiles.push_back(launches.next(INT32_MAX).tiles);
    } while (tiles.back() > 0);
    return tiles;
  };
  EXPECT_EQ(tiles_of({{memory, int64_t{CloseProgress::kMostTiles} * kTileElements + 1}}),
            (std::vector<int64_t>{CloseProgress::kMostTiles, 1, 0}));
  EXPECT_EQ(tiles_of(std::vector<ClosedPiece>(CloseWork::kMostTargets, {memory, 6144})), (std::vector<int64_t>{96, 0}));
  EXPECT_EQ(tiles_of(std::vector<ClosedPiece>(65, {memory, 6145})), (std::vector<int64_t>{96, 2, 0}));
  EXPECT_EQ(tiles_of({}), (std::vector<int64_t>{0}));
}

TEST(CloseLaunches, refuse_pieces_too_short_for_a_launch) {
  const std::vector<float> open(300);
  std::vector<std::byte> closed(600);
  const auto cut = [&](int64_t first, int64_t second) {
    const std::vector<ClosedPiece> pieces = {{closed.data(), first},
                                             {closed.data() + 2 * first, second},
                                             {closed.data() + 2 * (first + second), 300 - first - second}};
    CloseLaunches({.open = open.data(), .pieces = pieces});
  };
  EXPECT_NO_THROW(cut(1, 298)) << "the first and the last may be";
  EXPECT_NO_THROW(cut(172, 128));
  EXPECT_NO_THROW(cut(0, 127));
  EXPECT_THROW(cut(1, 127), std::logic_error);
  EXPECT_THROW(cut(172, 127), std::logic_error);
}

TEST(CloseLaunches, refuse_a_piece_over_values_that_are_read_after_it) {
  std::vector<float> open(300);
  const auto over = [&](int64_t element) {
    const std::vector<ClosedPiece> pieces = {{reinterpret_cast<std::byte*>(open.data()), 128},
                                             {reinterpret_cast<std::byte*>(open.data() + element), 172}};
    CloseLaunches({.open = open.data(), .pieces = pieces});
  };
  EXPECT_NO_THROW(over(64));
  EXPECT_NO_THROW(over(128));
  EXPECT_NO_THROW(over(300));
  EXPECT_THROW(over(129), std::logic_error);
  EXPECT_THROW(over(299), std::logic_error);
}

}  // namespace
}  // namespace sluice
