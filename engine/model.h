// A model as the engine sees it: partitions, named tensors between visits, and the list of visits. Plain data.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/geometry.h"

namespace sluice {

// A boundary tensor: given by a visit, taken by one or more later ones. Sizes are those of one micro-batch.
// Until it is taken, further visits may give it again: each finds in its output what the one before left there and
// rewrites it, as a sum over the tiles of a layer. In the backward every giver sees the whole gradient.
struct TensorSpec {
  std::string name;
  int64_t elements = 0;
  DType dtype = DType::kFp32;
  int64_t bytes() const { return elements * bytes_of(dtype); }
};

// One use of a block. Indices into the model's partitions and tensors. A visit that gives nothing is a sink: it has no
// forward of its own in training; its backward computes the loss, on the same fetch of its weights.
struct VisitSpec {
  std::string name;
  std::vector<int> partitions;
  std::vector<int> takes, gives;
};

struct ModelSpec {
  std::vector<PartitionSpec> partitions;
  std::vector<TensorSpec> tensors;
  std::vector<VisitSpec> visits;  // forward runs it, backward runs it reversed

  // Throws ConfigError: indices out of range, a tensor given after it was taken, never given or never taken, a
  // partition no visit uses, a last visit that gives something, no visits.
  void validate() const;
  // Canonical text of partitions and shapes: what the store's fingerprint is made of.
  std::string canonical_text() const;
  int64_t elements() const;  // of all parameters, without padding
};

}  // namespace sluice
