// The model's bytes between steps: filling a new store, loading homes of an opened one, reading parameters, digests.
// The caller owns store and arenas meanwhile (no unit is running); the update ring serves as scratch.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

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

  // Writes every record of a new store from `source`, moments zero; host homes keep theirs. While a chunk is filled,
  // those before it are being written: as many as the update ring has room for, and those at home in host memory.
  void create(const ParameterSource& source, const std::function<void(int64_t, int64_t)>& progress);
  // Reads and verifies every record whose home is host memory.
  void load();

  // What lies in scratch is no longer what the store holds: call after every unit.
  void forget();
  void read(int parameter, std::span<std::byte> into);                    // all of it, in the weights' dtype
  void read_master(int parameter, int64_t first, std::span<float> into);  // fp32
  Digests digests();

 private:
  // Consecutive bytes of one plane of a parameter's elements [first, first + count).
  using Piece = std::function<void(std::span<const std::byte>)>;
  struct PlaneOf {
    Group group = Group::kWeights;
    int plane = 0;
  };
  void for_each_piece(const Parameter& parameter, PlaneOf plane, const Piece& piece);
  // Where a new chunk's records are filled. part: of the ring, -1 where both are at home in host memory.
  struct NewChunk {
    int chunk = 0, part = -1;
    std::byte *weights = nullptr, *state = nullptr;
  };
  int ring_parts() const;
  NewChunk new_chunk(int chunk, int parts);
  void fill_chunk(const NewChunk& place, const ParameterSource& source);
  std::byte* address(int chunk, Group group);  // its home in host memory, or scratch
  const std::byte* loaded(int chunk, Group group);
  RecordLayout layout_of(int chunk, Group group) const;

  const Plan& plan_;
  RecordStore& store_;
  const UpdatePass& pass_;
  std::byte* host_;
  int in_scratch_[2] = {-1, -1};  // the chunk whose record is in scratch, by group
};

}  // namespace sluice
