#include "engine/store_identity.h"

namespace sluice {

StoreIdentity store_identity(const ModelSpec& model, const PlanOptions& plan, const Geometry& geometry) {
  return {.model = model.canonical_text(),
          .precision = plan.precision,
          .optimizer = plan.optimizer,
          .moments = plan.moments,
          .chunk_elements = geometry.chunk_elements(),
          .chunk_count = static_cast<int64_t>(geometry.chunks().size())};
}

}  // namespace sluice
