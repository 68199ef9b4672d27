// The visits of a layout, each run by the object of its kind.
#include "models/gpt2_visits.h"

#include <algorithm>

namespace sluice {

// The first of a layer's tiles begins its sum and the others add to it; a later tile is as large as the second, or
// smaller.
int Gpt2Layout::first_like(int visit) const {
  const auto alike = [](const Gpt2Role& a, const Gpt2Role& b) {
    return a.kind == b.kind && std::min(a.tile, 1) == std::min(b.tile, 1);
  };
  const Gpt2Role& role = roles[static_cast<size_t>(visit)];
  return static_cast<int>(std::find_if(roles.begin(), roles.end(), [&](const Gpt2Role& r) { return alike(r, role); }) -
                          roles.begin());
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
