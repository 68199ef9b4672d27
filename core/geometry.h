// Chunk geometry: how partitions are laid out and cut. Immutable after construction, and shared by its copies; safe to
// read from any thread.
//
// A partition lays its parameters out contiguously, each starting at a multiple of 128 elements (padding is zero, and
// outside digests and norms). A chunk is a fixed-length range of a partition's elements; a partition's last chunk is
// shorter. Chunks are numbered through all partitions in order: the canonical order of chunks.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace sluice {

constexpr int64_t kParameterAlignmentElements = 128;
// Every plane of a record starts at a multiple of this, on NVMe and in host memory: it covers O_DIRECT's needs on every
// drive that is accepted (a drive that wants more is refused).
constexpr int64_t kPlaneAlignmentBytes = 4096;
constexpr int64_t kMinChunkElements = 128;

struct ParameterSpec {
  std::string name;
  std::vector<int64_t> shape;
  int64_t elements() const;
};

struct PartitionSpec {
  std::string name;
  std::vector<ParameterSpec> parameters;
};

struct Parameter {
  std::string name;
  std::vector<int64_t> shape;
  int64_t elements = 0;
  int64_t offset = 0;  // first element within its partition, a multiple of 128
  int partition = 0;
};

// Indices of chunks: for (int c : partition.chunks()).
struct ChunkRange {
  struct Iterator {
    int at = 0;
    int operator*() const { return at; }
    Iterator& operator++() { return ++at, *this; }
    bool operator==(const Iterator&) const = default;
  };
  int first = 0, count = 0;
  Iterator begin() const { return {first}; }
  Iterator end() const { return {first + count}; }
};

struct Partition {
  std::string name;
  int64_t elements = 0;       // padded: a multiple of 128
  int64_t first_element = 0;  // elements of the partitions before it
  int first_parameter = 0, parameter_count = 0;
  int first_chunk = 0, chunk_count = 0;
  ChunkRange chunks() const { return {first_chunk, chunk_count}; }
};

struct Chunk {
  int partition = 0;
  int64_t first = 0;     // element within its partition
  int64_t elements = 0;  // > 0
};

class Geometry {
 public:
  // Throws ConfigError for an empty partition, a repeated parameter name, a parameter without elements, or
  // chunk_elements below kMinChunkElements.
  Geometry(std::span<const PartitionSpec> partitions, int64_t chunk_elements);

  int64_t chunk_elements() const { return chunk_elements_; }
  std::span<const Partition> partitions() const { return parts_->partitions; }
  std::span<const Parameter> parameters() const { return parts_->parameters; }  // in order of partitions
  std::span<const Chunk> chunks() const { return parts_->chunks; }
  std::span<const Parameter> parameters_of(int partition) const;
  size_t number_of(const Parameter& parameter) const { return static_cast<size_t>(&parameter - parameters().data()); }

  // Canonical name order (bytes of the name, ascending): indices into parameters(). Norms and digests use it.
  std::span<const int> canonical() const { return parts_->canonical; }
  // Index of the parameter of that name, or -1.
  int find_parameter(std::string_view name) const;
  int64_t parameter_elements() const { return parts_->parameter_elements; }  // without padding
  int64_t padded_elements() const { return parts_->padded_elements; }

 private:
  struct Parts {
    std::vector<Partition> partitions;
    std::vector<Parameter> parameters;
    std::vector<Chunk> chunks;
    std::vector<int> canonical;
    int64_t parameter_elements = 0, padded_elements = 0;
  };
  void add_partition(Parts& parts, const PartitionSpec& spec) const;
  static void sort_names(Parts& parts);

  int64_t chunk_elements_;
  std::shared_ptr<const Parts> parts_;
};

// Where the planes of one record lie, relative to its first byte: the same on NVMe and in host memory.
struct RecordLayout {
  int plane_count = 0;
  int64_t plane_offset[kMaxPlanes] = {};  // bytes, multiples of kPlaneAlignmentBytes
  int64_t plane_bytes[kMaxPlanes] = {};   // payload: elements x bytes per element
  int64_t bytes_per_element[kMaxPlanes] = {};
  int64_t bytes = 0;  // whole record, padded
};
RecordLayout record_layout(RecordFormat format, Group group, int64_t elements);
// RecordLayout::bytes alone.
int64_t record_bytes(const RecordFormat& format, Group group, int64_t elements);

}  // namespace sluice
