// Parameters that the engine holds in tiles, each a parameter of its own, while files and initial values know the
// whole. Immutable once filled; no LibTorch.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace sluice {

// A tile's elements, in order: `runs` runs of `run` consecutive elements of the whole, each beginning `stride` after
// the one before, the first at `first`. Rows of a matrix are one run; columns are one run a row.
struct ParameterTile {
  ParameterSpec whole;  // as in Hugging Face's files
  int64_t first = 0, run = 0, stride = 0, runs = 1;
};

class ParameterTiles {
 public:
  // Elements [from, to) of every row of `row_elements` elements of the whole; names the tile "NAME[tile/tiles]".
  // Returns the tile as the engine's parameter of this shape.
  struct Cut {
    int64_t row_elements = 0, from = 0, to = 0;
    int tile = 0, tiles = 1;
    std::vector<int64_t> shape;
  };
  ParameterSpec add(const ParameterSpec& whole, const Cut& cut);

  const ParameterTile* find(std::string_view parameter) const;  // null: the parameter is not cut
  // A source of tiles and uncut parameters from one of whole parameters. It outlives the object.
  ParameterSource cut(ParameterSource whole) const;

 private:
  std::map<std::string, ParameterTile, std::less<>> tiles_;
};

// A whole parameter and what of the engine's parameters it is made of.
struct WholeParameter {
  struct Part {
    int parameter = 0;                    // index into the engine's parameters
    std::string name;                     // of it
    const ParameterTile* tile = nullptr;  // null: all of it
  };
  ParameterSpec spec;
  std::vector<Part> parts;
};
// In the order in which the model's partitions first touch them. `tiles` must outlive the result.
std::vector<WholeParameter> whole_parameters(const ModelSpec& model, const ParameterTiles& tiles);

}  // namespace sluice
