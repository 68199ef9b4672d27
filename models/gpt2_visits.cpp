// The visits of a layout, each run by the object of its kind.
#include "models/gpt2_visits.h"

#include <algorithm>

namespace sluice {

namespace {

bool has_shapes_of(const ModelSpec& spec, const VisitSpec& a, const VisitSpec& b) {
  const auto alike = [&spec](int one, int other) {
    return std::ranges::equal(spec.partitions[static_cast<size_t>(one)].parameters,
                              spec.partitions[static_cast<size_t>(other)].parameters, {}, &ParameterSpec::shape,
                              &ParameterSpec::shape);
  };
  return std::ranges::equal(a.partitions, b.partitions, alike);
}

}  // namespace

// The first of a layer's tiles begins its sum and the others add to it. A smaller tile may take more than a larger one:
// products take what they take for a shape, and a workspace has holes.
int Gpt2Layout::first_like(int visit) const {
  const auto at = static_cast<size_t>(visit);
  for (size_t i = 0; i < at; ++i) {
    if (roles[i].kind == roles[at].kind && std::min(roles[i].tile, 1) == std::min(roles[at].tile, 1) &&
        has_shapes_of(spec, spec.visits[i], spec.visits[at])) {
      return static_cast<int>(i);
    }
  }
  return visit;
}

Gpt2Visits::Gpt2Visits(const Gpt2Config& config, const Gpt2Options& options) : layout_(gpt2_layout(config, options)) {
  const auto at = [this](Gpt2Kind kind) -> auto& { return kinds_[static_cast<size_t>(kind)]; };
  at(Gpt2Kind::kEmbedding) = make_gpt2_embedding(config);
  at(Gpt2Kind::kBlock) = make_gpt2_block(config);
  at(Gpt2Kind::kHead) = make_gpt2_head(config, options);
  at(Gpt2Kind::kEmbeddingTile) = make_gpt2_embedding_tile(config);
  at(Gpt2Kind::kAttentionTile) = make_gpt2_attention_tile(config);
  at(Gpt2Kind::kAttentionInput) = make_gpt2_attention_input(config);
  at(Gpt2Kind::kAttentionMixing) = make_gpt2_attention_mixing(config);
  at(Gpt2Kind::kAttentionOutput) = make_gpt2_attention_output(config);
  at(Gpt2Kind::kMlpTile) = make_gpt2_mlp_tile(config);
  at(Gpt2Kind::kHeadTile) = make_gpt2_head_tile(config, options);
  at(Gpt2Kind::kLoss) = make_gpt2_loss(config);
}

void Gpt2Visits::run(int visit, VisitTurn& turn, const Gpt2Tokens& tokens) {
  kind_of(visit).run(turn, tokens, layout_.roles[static_cast<size_t>(visit)].tile);
}

void Gpt2Visits::forget_graphs() {
  for (const auto& kind : kinds_) kind->forget_graphs();
}

}  // namespace sluice
