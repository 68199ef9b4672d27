#include "engine/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/errors.h"

namespace sluice {
namespace {

void check_index(const VisitSpec& visit, std::string_view what, int index, size_t count) {
  if (index >= 0 && index < static_cast<int>(count)) return;
  throw ConfigError(fmt::format("model: visit {} names {} {}, the model has {}", visit.name, what, index, count));
}

void check_distinct(const VisitSpec& visit, std::string_view what, std::vector<int> indices) {
  std::sort(indices.begin(), indices.end());
  const auto twice = std::adjacent_find(indices.begin(), indices.end());
  if (twice == indices.end()) return;
  throw ConfigError(fmt::format("model: visit {} names {} {} twice", visit.name, what, *twice));
}

}  // namespace

void ModelSpec::validate() const {
  if (visits.empty()) throw ConfigError("model: no visits");
  enum class Tensor { kNotGiven, kGiven, kTaken };
  std::vector<Tensor> seen(tensors.size(), Tensor::kNotGiven);
  std::vector<int> uses(partitions.size(), 0);
  for (const VisitSpec& visit : visits) {
    for (int p : visit.partitions) check_index(visit, "partition", p, partitions.size());
    check_distinct(visit, "partition", visit.partitions);
    check_distinct(visit, "tensor", visit.takes);
    check_distinct(visit, "tensor", visit.gives);
    for (int p : visit.partitions) ++uses[p];
    for (int t : visit.takes) {
      check_index(visit, "tensor", t, tensors.size());
      if (seen[t] == Tensor::kNotGiven) {
        throw ConfigError(
            fmt::format("model: visit {} takes tensor {} before any visit gives it", visit.name, tensors[t].name));
      }
      seen[t] = Tensor::kTaken;
    }
    for (int t : visit.gives) {
      check_index(visit, "tensor", t, tensors.size());
      if (seen[t] == Tensor::kTaken) {
        throw ConfigError(
            fmt::format("model: visit {} gives tensor {} after it was taken", visit.name, tensors[t].name));
      }
      seen[t] = Tensor::kGiven;
    }
    const bool last = &visit == &visits.back();
    if (visit.gives.empty() != last) {
      throw ConfigError(last ? fmt::format("model: the last visit, {}, gives a tensor that nobody takes", visit.name)
                             : fmt::format("model: visit {} gives nothing and is not the last", visit.name));
    }
  }
  for (size_t t = 0; t < tensors.size(); ++t) {
    if (seen[t] != Tensor::kTaken) throw ConfigError(fmt::format("model: nobody takes tensor {}", tensors[t].name));
    if (tensors[t].elements <= 0) throw ConfigError(fmt::format("model: tensor {} has no elements", tensors[t].name));
  }
  for (size_t p = 0; p < partitions.size(); ++p) {
    if (uses[p] == 0) throw ConfigError(fmt::format("model: no visit uses partition {}", partitions[p].name));
  }
}

std::string ModelSpec::canonical_text() const {
  std::string text;
  for (const PartitionSpec& partition : partitions) {
    text += fmt::format("{}:", partition.name);
    for (const ParameterSpec& parameter : partition.parameters) {
      text += fmt::format(" {}[{}]", parameter.name, fmt::join(parameter.shape, ","));
    }
    text += '\n';
  }
  return text;
}

int64_t ModelSpec::elements() const {
  int64_t all = 0;
  for (const PartitionSpec& partition : partitions) {
    for (const ParameterSpec& parameter : partition.parameters) all += parameter.elements();
  }
  return all;
}

}  // namespace sluice
