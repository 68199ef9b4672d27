// Who must wait for whom: which hops wrote the bytes of each place and which use them since. What a program is built
// with and does not keep.
//
// Segments lie in memory that is given back as a whole: a program has tens of thousands, and a search for plans builds
// hundreds of programs.
#pragma once
#include <cstdint>
#include <map>
#include <memory_resource>
#include <span>
#include <vector>

namespace sluice {

struct Hop;

enum class Place : uint8_t { kStore, kHost, kDevice, kControl, kScratch };
constexpr int kPlaceCount = 5;

// Offsets are bytes in kHost and kDevice, numbers of the builder's own in kControl, and of records in kStore and
// extents in kScratch: of their bytes, with the checksums that the store has of them.
struct Range {
  Place place = Place::kHost;
  int64_t begin = 0, end = 0;
  uint64_t content = 0;  // what is (or is put) there; 0: not said
};

class Hazards {
 public:
  Hazards() = default;
  Hazards(const Hazards&) = delete;
  Hazards& operator=(const Hazards&) = delete;

  // Numbers of those before it that hop number `id` must wait for: ascending, valid until the next call. `hop` is what
  // is said of it where a range that it reads does not hold the content it names: std::logic_error.
  std::span<const int32_t> add(int id, const Hop& hop, std::span<const Range> reads, std::span<const Range> fills);

 private:
  // Bytes that have the same users; where a place has numbers, one number.
  struct Segment {
    int64_t end = 0;  // 0: no hop of this unit has touched it yet
    uint64_t content = 0;
    int32_t writer = -1;
    int32_t last_reader = -1;  // since then: in readers_
  };
  // A list that only grows at its head: segments cut from one share what they had in common.
  struct Reader {
    int32_t hop = -1, before = -1;
  };
  using Segments = std::pmr::map<int64_t, Segment>;  // disjoint, by where they begin

  // Of the bytes of an arena. Segments that were looked up are found again by a number made of where they begin: they
  // stay where they are in their map.
  struct Arena {
    explicit Arena(std::pmr::memory_resource* memory) : segments(memory) {}
    Segment* exactly(const Range& range);
    Segment* beginning(int64_t at);
    void forget(const Segments::value_type& segment);
    // Makes a segment begin at `at` if one spans it; returns the first segment that begins at or after `at`.
    Segments::iterator split(int64_t at);

    struct Known {
      int64_t begin = 0;
      Segment* segment = nullptr;
    };
    static constexpr int kKnownBits = 11;
    Known& known_at(int64_t begin) { return known[static_cast<uint64_t>(begin) * kGolden >> (64 - kKnownBits)]; }

    Segments segments;
    std::vector<Known> known = std::vector<Known>(size_t{1} << kKnownBits);
  };
  // 2^64 over the golden ratio: the upper bits of a product depend on all of what is multiplied (Knuth, The Art of
  // Computer Programming, volume 3, 6.4).
  static constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;

  struct User {
    int id = -1;
    const Hop& hop;
  };
  void read(const Range& range, const User& by);
  void read(Arena& arena, const Range& range, const User& by);
  void read(Segment& segment, int64_t at, const Range& range, const User& by);
  void fill(const Range& range, int hop);
  void fill(Arena& arena, const Range& range, int hop);
  void fill(Segment& segment, const Range& range, int hop);
  void wait_for(int32_t predecessor, int hop);
  void wait_for_all(const Segment& users, int hop);
  Arena* arena_of(Place place);
  std::span<Segment> numbers(const Range& range);

  std::pmr::monotonic_buffer_resource memory_;
  Arena host_{&memory_}, device_{&memory_};
  std::pmr::vector<std::pmr::vector<Segment>> numbers_{kPlaceCount, &memory_};  // by place, of those that have them
  std::pmr::vector<Reader> readers_{&memory_};
  std::vector<int32_t> waits_;  // of the hop being emitted
};

}  // namespace sluice
