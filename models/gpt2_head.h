// What the head has in common with a tile of it. Includes LibTorch: for models' .cpp files only.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "models/gpt2_module.h"
#include "models/gpt2_visits.h"

namespace sluice {

// In the order of the visit's weights: the final norm's, and the head's rows, or some of them.
enum HeadWeight : int { kHeadNormWeight, kHeadNormBias, kHeadRows };

class HeadModule final : public BoundModule {
 public:
  HeadModule(double epsilon, const HeadGrain& grain);
  at::Tensor normed(const at::Tensor& x) const;
  at::Tensor logits_of(const at::Tensor& normed) const;
  const HeadGrain& grain() const { return grain_; }
  at::Tensor norm_weight, norm_bias, rows;

 private:
  HeadGrain grain_;
  double epsilon_;
};

// Which of the head's rows each token's target is, some tokens at a time.
class Targets {
 public:
  // Those of a visit's tokens among `rows`; ignored ones are among none.
  Targets(std::span<const int64_t> targets, const TileRange& rows);
  Targets(const Targets&) = delete;  // the tensors may be views of what is in it
  Targets& operator=(const Targets&) = delete;

  // Of `values`, [tokens, rows] of the tokens from `first` on: the target's, [tokens, 1]; any one where it is absent.
  at::Tensor select(const at::Tensor& values, int64_t first) const;
  // Takes 1 from the target's, where it is there.
  void subtract_one(at::Tensor& values, int64_t first) const;
  // [tokens, 1]: whether the target is not among the rows.
  at::Tensor absent(int64_t first, int64_t tokens) const;
  bool all_absent(int64_t first, int64_t tokens) const;
  int64_t count() const;  // that are there

 private:
  at::Tensor positions(int64_t first, int64_t tokens) const;  // in the values laid out flat

  int64_t rows_;
  std::vector<int64_t> positions_;  // as if the values of all tokens lay in one
  std::vector<float> present_;      // 1 or 0
  at::Tensor positions_there_, present_there_, absent_there_;
};

// Some tokens of a boundary tensor, [tokens, width].
at::Tensor tokens_of(const TensorView& view, const TileRange& tokens, int64_t width);

// normed(x) of some tokens with the graph that leads to it.
WithGraph normed_with_graph(const HeadModule& module, const at::Tensor& x);

// Contributes what follows from the gradient of some tokens' logits, and returns that of x. The gradient of the rows is
// made in slices and added to the open gradient, so that it never exists whole outside of it.
at::Tensor differentiate_logits(const HeadModule& module, VisitTurn& turn, WithGraph made, at::Tensor logits_gradient);

// Reports the mean of `count` tokens' losses without waiting for it; 0 of none. Divides their sum, an fp64 scalar, in
// place.
void report_mean(VisitTurn& turn, at::Tensor sum, int64_t count);

// Fills the logits of the last token that these rows are for.
void fill_logits(const HeadModule& module, const VisitTurn& turn, const Gpt2Tokens& tokens, const TileRange& rows);

}  // namespace sluice
