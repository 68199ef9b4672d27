#include "models/gpt2_workspace.h"

#include <algorithm>
#include <vector>

#include "core/bytes.h"
#include "core/geometry.h"
#include "libtorch/probe_memory.h"
#include "libtorch/process.h"
#include "libtorch/stand_in_turn.h"
#include "libtorch/visit_memory.h"
#include "models/causal_attention.h"

namespace sluice {

Geometry geometry_of(const Gpt2Probe& probe) {
  return Geometry(probe.visits.layout().spec.partitions, int64_t{1} << 22);
}

StandInTurn::Of turn_of(const Gpt2Probe& probe, const Geometry& geometry, int visit) {
  return {.model = probe.visits.layout().spec,
          .geometry = geometry,
          .visit = visit,
          .weights = weights_dtype(probe.options.precision)};
}

namespace {

bool on_gpu(const Gpt2Options& options) { return options.device == DeviceKind::kCuda; }

// Whether attention's scores exist whole (causal_attention.h).
bool keeps_scores(const Gpt2Options& options) {
  if (on_gpu(options)) return options.precision == Precision::kFp32;
  return has_whole_scores(weights_dtype(options.precision), options.sequence);
}

// Address space on the host. Memory on a GPU, where the closed form leaves out what kernels take for a moment.
int64_t more_than_enough(const Gpt2Probe& probe) {
  return on_gpu(probe.options) ? 2 * probe.estimate_bytes + 256 * kMiB : 4 * probe.estimate_bytes + 64 * kMiB;
}

int64_t largest_turn_bytes(const Gpt2Probe& probe, const Geometry& geometry) {
  int64_t largest = 0;
  for (int visit = 0; visit < static_cast<int>(probe.visits.layout().spec.visits.size()); ++visit) {
    largest = std::max(largest, StandInTurn::bytes(turn_of(probe, geometry, visit)));
  }
  return largest;
}

// What measuring runs visits in.
class Measuring {
 public:
  explicit Measuring(const Gpt2Probe& probe)
      : probe_(probe),
        geometry_(geometry_of(probe)),
        zeros_(static_cast<size_t>(probe.options.batch * probe.options.sequence), 0),
        workspace_(probe.options.device, more_than_enough(probe)),
        graph_(probe.options.device, more_than_enough(probe)),
        turn_(probe.options.device, largest_turn_bytes(probe, geometry_)),
        memory_(workspace_.span(), workspace_.stream()) {}

  // The graph's bytes, where the forward keeps one.
  int64_t run(int visit) {
    for (const Pass pass : {Pass::kForward, Pass::kEvaluate, Pass::kBackward}) {
      run(visit, pass, {});
      turn_.give_back();
    }
    if (spec().visits[static_cast<size_t>(visit)].gives.empty()) return 0;
    run(visit, Pass::kForward, graph_.span());
    const int64_t graph_bytes = probe_.visits.graph_peak_bytes(visit);
    if (graph_bytes > 0) run(visit, Pass::kBackward, graph_.span());
    probe_.visits.forget_graphs();
    turn_.give_back();
    graph_.give_back();
    return graph_bytes;
  }
  int64_t workspace_bytes() const { return memory_.high_water_bytes(); }

 private:
  const ModelSpec& spec() const { return probe_.visits.layout().spec; }
  void run(int visit, Pass pass, std::span<std::byte> graph) {
    IdleTurn turn(turn_of(probe_, geometry_, visit), turn_.span().data());
    turn.begin(pass, graph);
    const VisitScope scope(memory_);
    probe_.visits.run(visit, turn,
                      {.batch = probe_.options.batch,
                       .sequence = probe_.options.sequence,
                       .ids = zeros_,
                       .targets = zeros_,
                       .logits = {}});
  }

  const Gpt2Probe& probe_;
  Geometry geometry_;
  std::vector<int64_t> zeros_;
  ProbeMemory workspace_, graph_, turn_;
  VisitMemory memory_;
};

}  // namespace

int64_t bytes_to_measure_gpt2(const Gpt2Probe& probe) {
  if (on_gpu(probe.options)) return 2 * more_than_enough(probe) + largest_turn_bytes(probe, geometry_of(probe));
  return 2 * with_closed_form_margin(probe.estimate_bytes);  // a graph takes no more than the workspace
}

ComputeMemory measure_gpt2_memory(const Gpt2Probe& probe) {
  const Gpt2Layout& layout = probe.visits.layout();
  Measuring measuring(probe);
  ComputeMemory need{.workspace_bytes = 0, .graph_bytes = {}};
  for (int visit = 0; visit < static_cast<int>(layout.roles.size()); ++visit) {
    const int like = layout.first_like(visit);
    need.graph_bytes.push_back(like < visit ? need.graph_bytes[static_cast<size_t>(like)] : measuring.run(visit));
  }
  need.workspace_bytes = measuring.workspace_bytes();
  return need;
}

namespace {

// Attention's scratch in backward. On a GPU the queries' gradients in fp32, several times over until each of its
// multiprocessors has a share. On a CPU scores and their gradients of one tile of queries by one of keys, each thread
// its own; in fp32, and once more in the tensors' type where that is narrower.
int64_t attention_scratch(const Gpt2Config& config, const Gpt2Options& options) {
  constexpr int64_t kMultiprocessors = 160;  // of the largest GPUs
  if (on_gpu(options)) {
    return (kMultiprocessors + options.batch * config.n_head) * options.sequence * (config.n_embd / config.n_head) * 4;
  }
  const int64_t queries = options.sequence >= 768 ? 256 : options.sequence >= 192 ? 64 : 32;
  const int64_t keys = std::min<int64_t>(512, options.sequence);
  const int64_t element_bytes = options.precision == Precision::kFp32 ? 4 : 6;
  return compute_threads() * 2 * queries * keys * element_bytes;
}

// What a product of matrices [rows, shared] and [shared, columns] takes beside them. Without a kernel of its own, what
// it widens and the part of the result. With fp16's each thread packs blocks of both, of at most so many rows, columns
// and elements of the shared dimension; where that has several blocks, their sums are fp32.
int64_t product_bytes(const Gpt2Options& options, int64_t rows, int64_t shared, int64_t columns) {
  if (on_gpu(options)) return 0;
  const DType type = weights_dtype(options.precision);
  if (!has_product_kernel(type)) {
    return 4 * (rows * shared + (rows + shared) * std::min(columns, product_columns(rows, shared)));
  }
  if (type != DType::kFp16) return 0;
  constexpr int64_t kRows = 512, kShared = 1024, kPackedColumns = 128, kSummedColumns = 192;  // of oneDNN 3's
  const int64_t block_rows = std::min(rows, kRows);
  const int64_t packed = (block_rows + kPackedColumns) * std::min(shared, kShared) * 2;
  const int64_t sums = shared > kShared ? block_rows * kSummedColumns * 4 : 0;
  return compute_threads() * (packed + sums);
}

// The MLP's half of a backward: attention's graph (5 tensors of the boundary's size, and its probabilities where scores
// exist whole) and its own sums, two tensors of the inner width, one weight gradient; and what best fit leaves between
// them. Or attention's half: where scores exist whole, probabilities, their gradient and that of the scores.
int64_t block_bytes(const Gpt2Config& config, const Gpt2Options& options) {
  const int64_t element_bytes = bytes_of(weights_dtype(options.precision));
  const int64_t tokens = options.batch * options.sequence;
  const int64_t boundary = tokens * config.n_embd * element_bytes, inner = tokens * config.inner() * element_bytes;
  const int64_t halves_of_boundary = options.precision == Precision::kFp32 ? 16 : 19;
  const int64_t mlp = boundary * halves_of_boundary / 2 + 2 * inner + config.inner() * config.n_embd * element_bytes +
                      product_bytes(options, config.inner(), tokens, config.n_embd);
  if (keeps_scores(options)) {
    const int64_t scores = tokens * config.n_head * options.sequence * element_bytes;
    return std::max(mlp + scores, 10 * boundary + 7 * scores / 2);
  }
  const int64_t attention =
      10 * boundary + 3 * config.n_embd * config.n_embd * element_bytes +
      std::max(attention_scratch(config, options), product_bytes(options, tokens, 3 * config.n_embd, config.n_embd));
  return std::max(mlp, attention);
}

// LayerNorm's statistics and sums.
int64_t norm_bytes(int64_t tokens, int64_t width) { return (2 * tokens + 2 * (1 + compute_threads()) * width) * 4; }

// In the midst of a head's attention between products in tiles, in its backward: products and result, their gradients
// and what is copied; where scores exist whole, they, their gradients and the mask. Factors that fit what was measured.
int64_t mixing_bytes(const Gpt2Config& config, const Gpt2Options& options) {
  const int64_t element_bytes = bytes_of(weights_dtype(options.precision));
  const int64_t tokens = options.batch * options.sequence;
  const int64_t features = tokens * config.n_embd / config.n_head * element_bytes;
  if (!keeps_scores(options)) return std::max(11 * features, 10 * features + attention_scratch(config, options));
  return 23 * features / 2 + (5 * tokens / 3 + options.sequence) * options.sequence * element_bytes;
}

// Of the first product's largest tile, as its weight's gradient is made: two tensors of the boundary's size, or three,
// that gradient and the product. Or of what mixes tokens.
int64_t head_parts_bytes(const Gpt2Config& config, const Gpt2Options& options) {
  const int64_t element_bytes = bytes_of(weights_dtype(options.precision));
  const int64_t tokens = options.batch * options.sequence, width = config.n_embd;
  const int64_t columns = 3 * tile_range(width / config.n_head, config.product_tiles().input, 0).size();
  const int64_t boundaries = options.precision == Precision::kBf16 ? 3 : 2;
  const int64_t input = boundaries * tokens * width * element_bytes + (tokens + width) * columns * element_bytes +
                        product_bytes(options, columns, tokens, width);
  return std::max(norm_bytes(tokens, width) + input, mixing_bytes(config, options));
}

// Of the larger half's largest tile. As its inner weight's gradient is made: one and a half or two tensors of the
// boundary's size, that gradient, and of the tile's inner width attention's eight or the MLP's two tensors. Or in the
// midst of attention: one of the boundary's, six of the inner width and, where scores exist whole, four of theirs and
// the mask.
int64_t block_tile_bytes(const Gpt2Config& config, const Gpt2Options& options) {
  const int64_t element_bytes = bytes_of(weights_dtype(options.precision));
  const int64_t tokens = options.batch * options.sequence, width = config.n_embd;
  const int64_t boundary = tokens * width * element_bytes;
  const int64_t norm = norm_bytes(tokens, width);
  const int64_t inner = tile_range(config.inner(), config.tiling.linear, 0).size();
  const int64_t mlp =
      2 * boundary + (2 * tokens + width) * inner * element_bytes + product_bytes(options, inner, tokens, width);
  if (config.cuts_heads()) return std::max(norm + mlp, head_parts_bytes(config, options));
  const int64_t heads = tile_range(config.n_head, config.tiling.linear, 0).size();
  const int64_t columns = heads * width / config.n_head;
  const int64_t halves_of_boundary = options.precision == Precision::kFp32 ? 3 : 4;
  const int64_t last = halves_of_boundary * boundary / 2 + (8 * tokens + 3 * width) * columns * element_bytes +
                       product_bytes(options, tokens, 3 * columns, width);
  int64_t midst = boundary + 6 * tokens * columns * element_bytes;
  if (keeps_scores(options)) {
    midst += (4 * tokens * heads + options.sequence) * options.sequence * element_bytes;
  } else {
    midst += attention_scratch(config, options);
  }
  return norm + std::max({mlp, last, midst});
}

// What a whole block's forward keeps: the inputs of its products, attention's result, the sum between the halves, the
// MLP's inner activations; and what best fit leaves between them: within a quarter. Or what the product for attention's
// inputs takes.
int64_t graph_bytes(const Gpt2Config& config, const Gpt2Options& options) {
  const int64_t element_bytes = bytes_of(weights_dtype(options.precision));
  const int64_t tokens = options.batch * options.sequence;
  const int64_t boundary = tokens * config.n_embd * element_bytes, inner = tokens * config.inner() * element_bytes;
  if (!keeps_scores(options)) {
    return std::max(8 * boundary + inner + product_bytes(options, tokens, config.n_embd, config.inner()),
                    4 * boundary + product_bytes(options, tokens, config.n_embd, 3 * config.n_embd));
  }
  const int64_t scores = tokens * config.n_head * options.sequence * element_bytes;
  return 8 * boundary + inner + 2 * scores;
}

// cuBLAS's own, and cuBLASLt's while a product runs.
constexpr int64_t kBlasBytes = 64 * kMiB;

// Logits of a tile, and either a few of their rows in fp32, a slice of the weight's gradient, or what a product takes.
int64_t head_bytes(const Gpt2Config& config, const Gpt2Options& options) {
  const int64_t element_bytes = bytes_of(weights_dtype(options.precision));
  const int64_t tile = options.loss_tile_tokens;
  const int64_t words = tile_range(config.vocab_size, config.tiling.embedding, 0).size();
  const HeadGrain grain = head_grain(options.device);
  const int64_t rows = std::min(softmax_rows(grain, config.vocab_size), tile) * words * 4;
  const int64_t slice = std::min(head_gradient_rows(grain, config.n_embd), words) * config.n_embd * element_bytes;
  const int64_t whole = tile * (words + config.n_embd * 3 / 2) * element_bytes +
                        std::max({rows, slice, product_bytes(options, tile, words, config.n_embd)});
  if (config.tiling.embedding == 1) return whole;
  // As the gradient of what a tile takes is made: logits and theirs, and two tensors of the boundary's size.
  return std::max(whole, 2 * tile * (words + config.n_embd) * element_bytes);
}

}  // namespace

int64_t estimate_gpt2_workspace(const Gpt2Config& config, const Gpt2Options& options) {
  const int64_t block = config.tiling.linear > 1 ? block_tile_bytes(config, options) : block_bytes(config, options);
  const int64_t bytes = std::max(block, head_bytes(config, options)) + (on_gpu(options) ? kBlasBytes : 0);
  return round_up(bytes, Workspace::kAlignmentBytes);
}

std::vector<int64_t> estimate_gpt2_graphs(const Gpt2Layout& layout, const Gpt2Config& config,
                                          const Gpt2Options& options) {
  std::vector<int64_t> bytes;
  for (const Gpt2Role& role : layout.roles) {
    bytes.push_back(role.kind == Gpt2Kind::kBlock ? graph_bytes(config, options) : 0);
  }
  return bytes;
}

}  // namespace sluice
