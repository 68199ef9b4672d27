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
  const auto parts = std::make_shared<Parts>();
  for (const PartitionSpec& spec : partitions) add_partition(*parts, spec);
  sort_names(*parts);
  parts_ = parts;
}

void Geometry::sort_names(Parts& parts) {
  const auto name = [&](int parameter) -> const std::string& {
    return parts.parameters[static_cast<size_t>(parameter)].name;
  };
  std::vector<int>& canonical = parts.canonical;
  canonical.resize(parts.parameters.size());
  std::iota(canonical.begin(), canonical.end(), 0);
  // std::string compares bytes as unsigned.
  std::sort(canonical.begin(), canonical.end(), [&](int a, int b) { return name(a) < name(b); });
  const auto twice =
      std::adjacent_find(canonical.begin(), canonical.end(), [&](int a, int b) { return name(a) == name(b); });
  if (twice != canonical.end()) throw ConfigError(fmt::format("two parameters are named '{}'", name(*twice)));
}

void Geometry::add_partition(Parts& parts, const PartitionSpec& spec) const {
  if (spec.parameters.empty()) throw ConfigError(fmt::format("partition '{}' has no parameters", spec.name));
  const int index = static_cast<int>(parts.partitions.size());
  Partition partition{.name = spec.name,
                      .first_element = parts.padded_elements,
                      .first_parameter = static_cast<int>(parts.parameters.size()),
                      .parameter_count = static_cast<int>(spec.parameters.size()),
                      .first_chunk = static_cast<int>(parts.chunks.size())};
  for (const ParameterSpec& parameter : spec.parameters) {
    parts.parameters.push_back(parameter_from(parameter, index, partition.elements));
    parts.parameter_elements += parts.parameters.back().elements;
    partition.elements += round_up(parts.parameters.back().elements, kParameterAlignmentElements);
  }
  for (int64_t first = 0; first < partition.elements; first += chunk_elements_) {
    const int64_t elements = std::min(chunk_elements_, partition.elements - first);
    parts.chunks.push_back({.partition = index, .first = first, .elements = elements});
  }
  partition.chunk_count = static_cast<int>(parts.chunks.size()) - partition.first_chunk;
  parts.padded_elements += partition.elements;
  parts.partitions.push_back(std::move(partition));
}

std::span<const Parameter> Geometry::parameters_of(int partition) const {
  const Partition& p = parts_->partitions.at(static_cast<size_t>(partition));
  return parameters().subspan(static_cast<size_t>(p.first_parameter), static_cast<size_t>(p.parameter_count));
}

int Geometry::find_parameter(std::string_view name) const {
  const std::vector<int>& canonical = parts_->canonical;
  const auto name_of = [this](int index) -> std::string_view {
    return parts_->parameters[static_cast<size_t>(index)].name;
  };
  const auto at = std::ranges::lower_bound(canonical, name, {}, name_of);
  return at != canonical.end() && name_of(*at) == name ? *at : -1;
}

RecordLayout record_layout(RecordFormat format, Group group, int64_t elements) {
  RecordLayout layout;
  for (const Plane& plane : planes_of(format, group)) {
    const int64_t payload = elements * plane.bytes_per_element;
    layout.plane_offset[layout.plane_count] = layout.bytes;
    layout.plane_bytes[layout.plane_count] = payload;
    layout.bytes_per_element[layout.plane_count] = plane.bytes_per_element;
    layout.bytes += round_up(payload, kPlaneAlignmentBytes);
    ++layout.plane_count;
  }
  return layout;
}

int64_t record_bytes(const RecordFormat& format, Group group, int64_t elements) {
  int64_t bytes = 0;
  for (const Plane& plane : planes_of(format, group)) {
    bytes += round_up(elements * plane.bytes_per_element, kPlaneAlignmentBytes);
  }
  return bytes;
}

}  // namespace sluice
