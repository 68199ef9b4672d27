// Planes of a benchmark, filled as in training, and the tasks that sweep over them on the update team.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "core/arena.h"
#include "core/topology.h"
#include "cpu_adam/adam.h"
#include "cpu_adam/update_team.h"

namespace sluice {

class BenchPlanes {
 public:
  BenchPlanes(Precision precision, int64_t elements);

  int64_t elements() const { return elements_; }
  AdamFormat format() const { return format_; }
  AdamPlanes at(int64_t element) const;
  // What a record of these elements writes, for its checksum: weights and state planes, from `element` on.
  std::vector<std::span<const std::byte>> written(int64_t element, int64_t elements) const;
  // The same memory as floats, for streams: every written plane.
  std::vector<std::span<float>> floats(int64_t element, int64_t elements) const;
  float* scratch() const { return scratch_; }  // fp32, one for each element
  float* moment1() const { return planes_.moment1; }
  float* moment2() const { return planes_.moment2; }

 private:
  AdamFormat format_;
  int64_t elements_;
  Arena arena_;
  AdamPlanes planes_;
  float* scratch_ = nullptr;
};

// Ranges of elements, one a task, run by the team in order.
struct BenchChunk {
  int64_t first = 0, elements = 0;
};
std::vector<BenchChunk> equal_chunks(int64_t elements, int threads);

using ChunkPass = std::function<void(int64_t first, int64_t elements)>;
struct SweepTimes {
  double first_ns = 0, all_ns = 0;  // from the start to the end of the first chunk, and of the last
};
SweepTimes sweep(UpdateTeam& team, std::span<const BenchChunk> chunks, const ChunkPass& pass);

int64_t bytes_moved_per_element(AdamFormat format);
AdamKernel kernel_named(const std::string& isa, AdamFormat format);

}  // namespace sluice
