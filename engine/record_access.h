// The model's bytes between steps: filling a new store, loading homes of an opened one, reading parameters, digests.
// The caller owns store and arenas meanwhile (no unit is running); the update ring serves as scratch.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/plan.h"
#include "engine/update_pass.h"
#include "swap/record_store.h"

namespace sluice {

// Fills elements [first, first + into.size()) of a parameter, in fp32: initial values, or a file's.
using ParameterSource = std::function<void(const Parameter& parameter, int64_t first, std::span<float> into)>;

struct Digests {
  uint32_t weights_crc32c = 0, state_crc32c = 0;
};

class RecordAccess {
 public:
  // All must outlive it. `host` is the start of the host arena.
  RecordAccess(const Plan& plan, RecordStore& store, const UpdatePass& pass, std::byte* host);

  // Writes every record of a new store from `source` (called by one thread at a time), moments zero; host homes keep
  // theirs. While a chunk is filled, those before it are being written.
  void create(const ParameterSource& source, const std::function<void(int64_t, int64_t)>& progress);
  // Reads and verifies every record whose home is host memory, as many at once as the store takes.
  void load();
  // Reads and verifies every other record. `progress`: chunks done, and in all.
  void verify_rest(const std::function<void(int64_t, int64_t)>& progress);

  // What lies in scratch will no longer be what the store holds: call before every unit.
  void forget();
  void read(int parameter, std::span<std::byte> into);                    // all of it, in the weights' dtype
  void read_master(int parameter, int64_t first, std::span<float> into);  // fp32
  Digests digests();  // one pass over the records, in the store's order

 private:
  // Consecutive bytes of one plane of a parameter's elements [first, first + count).
  using Piece = std::function<void(std::span<const std::byte>)>;
  struct PlaneOf {
    Group group = Group::kWeights;
    int plane = 0;
  };
  const Parameter& parameter_at(int parameter) const;
  void for_each_piece(const Parameter& parameter, PlaneOf plane, const Piece& piece);
  // What digests are made of: the checksum of every plane of one parameter, without padding.
  using PlaneSums = std::array<uint32_t, 1 + kMaxPlanes>;  // weights, then state
  enum class Which : uint8_t { kInHost, kNotInHost };
  // Reads records whose home is host memory, or those whose home is not, `ahead` chunks at once at the most; verifies a
  // chunk's, then calls `use`, chunk after chunk.
  void for_each_chunk(Which which, int ahead, const std::function<void(int)>& use);
  void add_chunk(int chunk, std::span<PlaneSums> sums);

  bool in_host(int chunk, Group group) const;
  std::byte* address(int chunk, Group group) const;  // its home in host memory, or its part of the ring
  void fill_chunk(int chunk, const ParameterSource& source, std::span<float> values);
  const std::byte* loaded(int chunk, Group group);

  const Plan& plan_;
  RecordStore& store_;
  const UpdatePass& pass_;
  std::byte* host_;
  // The update ring in parts, each with room for both records of any chunk; chunk c's are in part c modulo
  // their number.
  struct RingParts {
    int count = 1;
    int64_t bytes = 0, state_at = 0;  // of a part; where the state record lies in it
  };
  static RingParts divide_ring(const Plan& plan);
  int part_of(int chunk) const { return chunk % parts_.count; }
  RingParts parts_;
  std::vector<std::array<int, 2>> in_part_;  // by part and group: the chunk whose record is there, -1 none
};

}  // namespace sluice
