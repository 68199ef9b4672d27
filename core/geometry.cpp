#include "core/geometry.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/bytes.h"
#include "core/errors.h"

namespace sluice {
namespace {

// Bytes of a record stay far below what an int64 holds.
constexpr int64_t kMostElements = int64_t{1} << 48;

Parameter parameter_from(const ParameterSpec& spec, int partition, int64_t offset) {
  const int64_t elements = spec.elements();
  if (elements <= 0) throw ConfigError(fmt::format("parameter '{}' has no elements", spec.name));
  return {.name = spec.name, .shape = spec.shape, .elements = elements, .offset = offset, .partition = partition};
}

}  // namespace

int64_t ParameterSpec::elements() const {
  int64_t product = 1;
  for (const int64_t side : shape) {
    if (side < 0 || __builtin_mul_overflow(product, side, &product) || product > kMostElements) {
      throw ConfigError(fmt::format("parameter '{}' has an impossible shape [{}]", name, fmt::join(shape, ", ")));
    }
  }
  return product;
}

Geometry::Geometry(std::span<const PartitionSpec> partitions, int64_t chunk_elements)
    : chunk_elements_(chunk_elements) {
  if (chunk_elements < kMinChunkElements) {
    throw ConfigError(
        fmt::format("chunk_elements is {}; it must be {} at the least", chunk_elements, kMinChunkElements));
  }
  for (const PartitionSpec& spec : partitions) add_partition(spec);
  canonical_.resize(parameters_.size());
  std::iota(canonical_.begin(), canonical_.end(), 0);
  // std::string compares bytes as unsigned.
  std::sort(canonical_.begin(), canonical_.end(), [&](int a, int b) {
    return parameters_[static_cast<size_t>(a)].name < parameters_[static_cast<size_t>(b)].name;
  });
  for (size_t i = 1; i < canonical_.size(); ++i) {
    const std::string& name = parameters_[static_cast<size_t>(canonical_[i])].name;
    if (name == parameters_[static_cast<size_t>(canonical_[i - 1])].name) {
      throw ConfigError(fmt::format("two parameters are named '{}'", name));
    }
  }
}

void Geometry::add_partition(const PartitionSpec& spec) {
  if (spec.parameters.empty()) throw ConfigError(fmt::format("partition '{}' has no parameters", spec.name));
  const int index = static_cast<int>(partitions_.size());
  Partition partition{.name = spec.name,
                      .first_element = padded_elements_,
                      .first_parameter = static_cast<int>(parameters_.size()),
                      .parameter_count = static_cast<int>(spec.parameters.size()),
                      .first_chunk = static_cast<int>(chunks_.size())};
  for (const ParameterSpec& parameter : spec.parameters) {
    parameters_.push_back(parameter_from(parameter, index, partition.elements));
    parameter_elements_ += parameters_.back().elements;
    partition.elements += round_up(parameters_.back().elements, kParameterAlignmentElements);
  }
  for (int64_t first = 0; first < partition.elements; first += chunk_elements_) {
    const int64_t elements = std::min(chunk_elements_, partition.elements - first);
    chunks_.push_back({.partition = index, .first = first, .elements = elements});
  }
  partition.chunk_count = static_cast<int>(chunks_.size()) - partition.first_chunk;
  padded_elements_ += partition.elements;
  partitions_.push_back(std::move(partition));
}

std::span<const Parameter> Geometry::parameters_of(int partition) const {
  const Partition& p = partitions_.at(static_cast<size_t>(partition));
  return parameters().subspan(static_cast<size_t>(p.first_parameter), static_cast<size_t>(p.parameter_count));
}

std::span<const Chunk> Geometry::chunks_of(int partition) const {
  const Partition& p = partitions_.at(static_cast<size_t>(partition));
  return chunks().subspan(static_cast<size_t>(p.first_chunk), static_cast<size_t>(p.chunk_count));
}

int Geometry::find_parameter(std::string_view name) const {
  const auto at = std::lower_bound(canonical_.begin(), canonical_.end(), name, [&](int index, std::string_view wanted) {
    return parameters_[static_cast<size_t>(index)].name < wanted;
  });
  return at != canonical_.end() && parameters_[static_cast<size_t>(*at)].name == name ? *at : -1;
}

RecordLayout record_layout(RecordFormat format, Group group, int64_t elements) {
  RecordLayout layout;
  for (const Plane& plane : planes_of(format, group)) {
    const int64_t payload = elements * plane.bytes_per_element;
    layout.plane_offset[layout.plane_count] = layout.bytes;
    layout.plane_bytes[layout.plane_count] = payload;
    layout.bytes_per_element[layout.plane_count] = plane.bytes_per_element;
    layout.bytes += round_up(payload, kPlaneAlignmentBytes);
    layout.payload_bytes += payload;
    ++layout.plane_count;
  }
  return layout;
}

}  // namespace sluice
