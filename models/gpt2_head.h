// What the head has in common with a tile of it. Includes LibTorch: for models' .cpp files only.
#pragma once
#include <cstdint>

#include "models/gpt2_module.h"
#include "models/gpt2_visits.h"

namespace sluice {

// In the order of the visit's weights: the final norm's, and the head's rows, or some of them.
enum HeadWeight : int { kHeadNormWeight, kHeadNormBias, kHeadRows };

class HeadModule final : public BoundModule {
 public:
  explicit HeadModule(double epsilon);
  at::Tensor normed(const at::Tensor& x) const;
  at::Tensor logits_of(const at::Tensor& normed) const;
  at::Tensor norm_weight, norm_bias, rows;

 private:
  double epsilon_;
};

// Some tokens of a boundary tensor, [tokens, width].
at::Tensor tokens_of(const TensorView& view, const TileRange& tokens, int64_t width);

// normed(x) of some tokens with the graph that leads to it.
struct NormedTokens {
  at::Tensor leaf, normed;
};
NormedTokens normed_with_graph(const HeadModule& module, const at::Tensor& x);

// Contributes what follows from the gradient of some tokens' logits, and writes that of x to `to`. The gradient of the
// rows is made in slices and added to the open gradient, so that it never exists whole outside of it.
void differentiate_logits(const HeadModule& module, VisitTurn& turn, NormedTokens made, at::Tensor logits_gradient,
                          at::Tensor& to);

// Fills the logits of the last token that these rows are for.
void fill_logits(const HeadModule& module, const VisitTurn& turn, const Gpt2Tokens& tokens, const TileRange& rows);

}  // namespace sluice
