// The partitions, tensors and visits of a GPT-2, whole or in tiles.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/bytes.h"
#include "models/gpt2_visits.h"

namespace sluice {
namespace {

constexpr HeadGrain kCpuGrain = {.loss_tile = 8 * kMiB, .softmax = kMiB / 2, .gradient = kMiB};
constexpr HeadGrain kGpuGrain = {.loss_tile = 64 * kMiB, .softmax = 16 * kMiB, .gradient = 16 * kMiB};
constexpr int64_t kProductElements = int64_t{1} << 21;

// Which of its layer's tiles, and what it has of the heads, features or rows between which the layer is cut.
struct Tile {
  int number = 0, count = 1;
  TileRange range;
};

class LayoutBuilder {
 public:
  LayoutBuilder(const Gpt2Config& config, const Gpt2Options& options)
      : config_(config),
        width_(config.n_embd),
        dtype_(weights_dtype(options.precision)),
        tokens_(options.batch * options.sequence) {}

  Gpt2Layout build() {
    int x = tensor("x.0", tokens_ * width_, dtype_);
    config_.tiling.embedding > 1 ? embedding_tiles(x) : embedding(x);
    for (int64_t i = 0; i < config_.n_layer; ++i) x = config_.tiling.linear > 1 ? block_tiles(i, x) : block(i, x);
    config_.tiling.embedding > 1 ? head_tiles(x) : head(x);
    return std::move(layout_);
  }

 private:
  int tensor(std::string name, int64_t elements, DType dtype) {
    layout_.spec.tensors.push_back({std::move(name), elements, dtype});
    return static_cast<int>(layout_.spec.tensors.size()) - 1;
  }
  int partition(std::string name, std::vector<ParameterSpec> parameters) {
    layout_.spec.partitions.push_back({std::move(name), std::move(parameters)});
    return static_cast<int>(layout_.spec.partitions.size()) - 1;
  }
  void visit(Gpt2Role role, VisitSpec spec) {
    layout_.roles.push_back(role);
    layout_.spec.visits.push_back(std::move(spec));
  }

  ParameterSpec wte() const { return {"transformer.wte.weight", {config_.vocab_size, width_}}; }
  ParameterSpec wpe() const { return {"transformer.wpe.weight", {config_.n_positions, width_}}; }
  ParameterSpec lm_head() const { return {"lm_head.weight", {config_.vocab_size, width_}}; }
  std::vector<ParameterSpec> last_norm() const {
    return {{"transformer.ln_f.weight", {width_}}, {"transformer.ln_f.bias", {width_}}};
  }

  // Rows of a matrix; and of each row, made of groups of `group` columns, the range's columns of every group.
  ParameterSpec rows(const ParameterSpec& whole, const Tile& tile);
  ParameterSpec columns(const ParameterSpec& whole, int64_t group, const Tile& tile);

  void embedding(int gives);
  int block(int64_t i, int takes);
  void head(int takes);
  void embedding_tiles(int gives);
  int block_tiles(int64_t i, int takes);
  void head_tiles(int takes);

  // One half of a block: the name of its partition, its parameters in their order in the block, how they are cut.
  struct HalfOf {
    Gpt2Kind kind;
    std::string name;
    std::span<const ParameterSpec> parameters;
    int64_t tiles = 1;
    int64_t cuts = 1, unit = 1;  // what can be cut apart, and its columns
    int64_t group = 0;           // columns() of the inner weight
  };
  void half_tiles(const HalfOf& half, int takes, int gives);
  // From `takes` to `gives`, a block's tensors; `parameters`: attention's.
  struct AttentionOf {
    std::string name;
    std::span<const ParameterSpec> parameters;
    int norm = 0;  // its partition
    int takes = 0, gives = 0;
  };
  void head_products(const AttentionOf& of, int head);
  Tile features_of(int head, int tile, int64_t tiles) const;

  const Gpt2Config& config_;
  int64_t width_;
  DType dtype_;
  int64_t tokens_;
  std::vector<int> wte_;  // its partitions
  Gpt2Layout layout_;
};

std::string block_name(int64_t i) { return fmt::format("h.{}", i); }

std::vector<ParameterSpec> block_parameters(const Gpt2Config& config, int64_t block) {
  const int64_t width = config.n_embd, inner = config.inner();
  std::vector<ParameterSpec> parameters = {{"ln_1.weight", {width}},
                                           {"ln_1.bias", {width}},
                                           {"attn.c_attn.weight", {width, 3 * width}},
                                           {"attn.c_attn.bias", {3 * width}},
                                           {"attn.c_proj.weight", {width, width}},
                                           {"attn.c_proj.bias", {width}},
                                           {"ln_2.weight", {width}},
                                           {"ln_2.bias", {width}},
                                           {"mlp.c_fc.weight", {width, inner}},
                                           {"mlp.c_fc.bias", {inner}},
                                           {"mlp.c_proj.weight", {inner, width}},
                                           {"mlp.c_proj.bias", {width}}};
  for (ParameterSpec& parameter : parameters) {
    parameter.name = fmt::format("transformer.{}.{}", block_name(block), parameter.name);
  }
  return parameters;
}

// --- whole layers ----------------------------------------------------------------------------------------------------

void LayoutBuilder::embedding(int gives) {
  wte_ = {partition("wte", {wte()})};
  const int positions = partition("wpe", {wpe()});
  visit({Gpt2Kind::kEmbedding}, {"embedding", {wte_[0], positions}, {}, {gives}});
}

int LayoutBuilder::block(int64_t i, int takes) {
  const int own = partition(block_name(i), block_parameters(config_, i));
  const int gives = tensor(fmt::format("x.{}", i + 1), tokens_ * width_, dtype_);
  visit({Gpt2Kind::kBlock}, {block_name(i), {own}, {takes}, {gives}});
  return gives;
}

void LayoutBuilder::head(int takes) {
  std::vector<ParameterSpec> parameters = last_norm();
  if (!config_.tie_word_embeddings) parameters.push_back(lm_head());
  std::vector<int> partitions = {partition(config_.tie_word_embeddings ? "ln_f" : "head", std::move(parameters))};
  if (config_.tie_word_embeddings) partitions.push_back(wte_[0]);
  visit({Gpt2Kind::kHead}, {"head", std::move(partitions), {takes}, {}});
}

// --- layers in tiles -------------------------------------------------------------------------------------------------

ParameterSpec LayoutBuilder::rows(const ParameterSpec& whole, const Tile& tile) {
  const int64_t columns = whole.shape[1];
  return layout_.tiles.add(whole, {.row_elements = whole.elements(),
                                   .from = tile.range.first * columns,
                                   .to = tile.range.end * columns,
                                   .tile = tile.number,
                                   .tiles = tile.count,
                                   .shape = {tile.range.size(), columns}});
}

ParameterSpec LayoutBuilder::columns(const ParameterSpec& whole, int64_t group, const Tile& tile) {
  std::vector<int64_t> shape = whole.shape;
  shape.back() = shape.back() / group * tile.range.size();
  return layout_.tiles.add(whole, {.row_elements = group,
                                   .from = tile.range.first,
                                   .to = tile.range.end,
                                   .tile = tile.number,
                                   .tiles = tile.count,
                                   .shape = std::move(shape)});
}

void LayoutBuilder::embedding_tiles(int gives) {
  const int tiles = static_cast<int>(config_.tiling.embedding),
            with_places = static_cast<int>(config_.position_tiles());
  for (int j = 0; j < tiles; ++j) {
    const Tile words{j, tiles, tile_range(config_.vocab_size, tiles, j)};
    wte_.push_back(partition(fmt::format("wte.{}", j), {rows(wte(), words)}));
    std::vector<int> own = {wte_.back()};
    if (j < with_places) {
      const Tile places{j, with_places, tile_range(config_.n_positions, with_places, j)};
      own.push_back(partition(fmt::format("wpe.{}", j), {rows(wpe(), places)}));
    }
    visit({Gpt2Kind::kEmbeddingTile, j}, {fmt::format("embedding.{}", j), std::move(own), {}, {gives}});
  }
}

// Every tile normalises for itself, so the norm's parameters are a partition that they share, with the bias of the sum.
void LayoutBuilder::half_tiles(const HalfOf& half, int takes, int gives) {
  const auto& p = half.parameters;
  const int tiles = static_cast<int>(half.tiles);
  const int shared = partition(half.name, {p[0], p[1], p[5]});
  for (int j = 0; j < tiles; ++j) {
    const TileRange range = tile_range(half.cuts, tiles, j);
    const Tile tile{j, tiles, {range.first * half.unit, range.end * half.unit}};
    std::vector<ParameterSpec> parts = {columns(p[2], half.group, tile), columns(p[3], half.group, tile),
                                        rows(p[4], tile)};
    const std::string name = fmt::format("{}.{}", half.name, j);
    visit({half.kind, j}, {name, {shared, partition(name, std::move(parts))}, {takes}, {gives}});
  }
}

// What a head's tile has of its features. The last ones are the larger.
Tile LayoutBuilder::features_of(int head, int tile, int64_t tiles) const {
  const int64_t features = width_ / config_.n_head;
  const TileRange own = inner_tile_range(features, tiles, tile);
  return {static_cast<int>(head * tiles) + tile,
          static_cast<int>(config_.n_head * tiles),
          {head * features + own.first, head * features + own.end}};
}
// One head: the first product's tiles, what mixes tokens, which has no weights, and the second product's tiles.
void LayoutBuilder::head_products(const AttentionOf& of, int head) {
  const auto& p = of.parameters;
  const auto [inputs, outputs] = config_.product_tiles();
  std::vector<int> products, mixed;
  for (int i = 0; i < inputs; ++i) {
    const Tile tile = features_of(head, i, inputs);
    const std::string name = fmt::format("{}.in.{}", of.name, tile.number);
    products.push_back(tensor(name, 3 * tokens_ * tile.range.size(), dtype_));
    const int weights = partition(name, {columns(p[2], width_, tile), columns(p[3], width_, tile)});
    visit({Gpt2Kind::kAttentionInput, tile.number}, {name, {of.norm, weights}, {of.takes}, {products.back()}});
  }
  for (int i = 0; i < outputs; ++i) {
    const Tile tile = features_of(head, i, outputs);
    mixed.push_back(tensor(fmt::format("{}.mixed.{}", of.name, tile.number), tokens_ * tile.range.size(), dtype_));
  }
  visit({Gpt2Kind::kAttentionMixing, head}, {fmt::format("{}.mix.{}", of.name, head), {}, std::move(products), mixed});
  for (int i = 0; i < outputs; ++i) {
    const Tile tile = features_of(head, i, outputs);
    const std::string name = fmt::format("{}.out.{}", of.name, tile.number);
    std::vector<ParameterSpec> weights = {rows(p[4], tile)};
    std::vector<int> takes = {mixed[static_cast<size_t>(i)]};
    if (tile.number == 0) {  // begins the sum
      weights.push_back(p[5]);
      takes.push_back(of.takes);
    }
    const int own = partition(name, std::move(weights));
    visit({Gpt2Kind::kAttentionOutput, tile.number}, {name, {own}, std::move(takes), {of.gives}});
  }
}

int LayoutBuilder::block_tiles(int64_t i, int takes) {
  const std::vector<ParameterSpec> parameters = block_parameters(config_, i);
  const int middle = tensor(fmt::format("y.{}", i), tokens_ * width_, dtype_);
  const int gives = tensor(fmt::format("x.{}", i + 1), tokens_ * width_, dtype_);
  const std::span<const ParameterSpec> all = parameters;
  if (config_.cuts_heads()) {
    const std::string name = block_name(i) + ".attn";
    const AttentionOf attention{.name = name,
                                .parameters = all.first(6),
                                .norm = partition(name, {parameters[0], parameters[1]}),
                                .takes = takes,
                                .gives = middle};
    for (int head = 0; head < config_.n_head; ++head) head_products(attention, head);
  } else {
    half_tiles({.kind = Gpt2Kind::kAttentionTile,
                .name = block_name(i) + ".attn",
                .parameters = all.first(6),
                .tiles = config_.tiling.linear,
                .cuts = config_.n_head,
                .unit = width_ / config_.n_head,
                .group = width_},
               takes, middle);
  }
  half_tiles({.kind = Gpt2Kind::kMlpTile,
              .name = block_name(i) + ".mlp",
              .parameters = all.last(6),
              .tiles = config_.tiling.linear,
              .cuts = config_.inner(),
              .group = config_.inner()},
             middle, gives);
  return gives;
}

void LayoutBuilder::head_tiles(int takes) {
  const int tiles = static_cast<int>(config_.tiling.embedding);
  const int norm = partition("ln_f", last_norm());
  const int statistics = tensor("statistics", 3 * tokens_, DType::kFp32);
  for (int j = 0; j < tiles; ++j) {
    const Tile words{j, tiles, tile_range(config_.vocab_size, tiles, j)};
    const std::string name = fmt::format("head.{}", j);
    const int own =
        config_.tie_word_embeddings ? wte_[static_cast<size_t>(j)] : partition(name, {rows(lm_head(), words)});
    visit({Gpt2Kind::kHeadTile, j}, {name, {norm, own}, {takes}, {statistics}});
  }
  visit({Gpt2Kind::kLoss}, {"loss", {}, {statistics}, {}});
}

}  // namespace

Gpt2Layout gpt2_layout(const Gpt2Config& config, const Gpt2Options& options) {
  return LayoutBuilder(config, options).build();
}

TileRange tile_range(int64_t count, int64_t tiles, int64_t tile) {
  const int64_t size = count / tiles, larger = count % tiles;
  const int64_t first = tile * size + std::min(tile, larger);
  return {first, first + size + (tile < larger ? 1 : 0)};
}

TileRange inner_tile_range(int64_t count, int64_t tiles, int64_t tile) {
  const int64_t size = count / tiles, larger = count % tiles;
  const int64_t first = tile * size + std::clamp<int64_t>(tile - 1, 0, larger);
  return {first, first + size + (tile > 0 && tile <= larger ? 1 : 0)};
}

HeadGrain head_grain(DeviceKind device) { return device == DeviceKind::kCuda ? kGpuGrain : kCpuGrain; }
int64_t default_loss_tile_tokens(const HeadGrain& grain, int64_t vocab_size, int64_t tokens) {
  return std::clamp<int64_t>(grain.loss_tile / vocab_size, 1, tokens);
}
int64_t softmax_rows(const HeadGrain& grain, int64_t vocab_size) {
  return std::max<int64_t>(1, grain.softmax / vocab_size);
}
int64_t head_gradient_rows(const HeadGrain& grain, int64_t width) {
  return std::max<int64_t>(1, grain.gradient / width);
}
int64_t product_columns(int64_t left_rows, int64_t right_rows) {
  return std::max<int64_t>(1, kProductElements / std::max(left_rows, right_rows));
}

}  // namespace sluice
