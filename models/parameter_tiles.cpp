#include "models/parameter_tiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/errors.h"

namespace sluice {

ParameterSpec ParameterTiles::add(const ParameterSpec& whole, const Cut& cut) {
  const int64_t rows = whole.elements() / cut.row_elements;
  ParameterSpec part{.name = fmt::format("{}[{}/{}]", whole.name, cut.tile, cut.tiles), .shape = cut.shape};
  ParameterTile tile{
      .whole = whole, .first = cut.from, .run = cut.to - cut.from, .stride = cut.row_elements, .runs = rows};
  SLUICE_CHECK(rows * cut.row_elements == whole.elements() && part.elements() == tile.run * tile.runs,
               "a tile's shape is not that of its elements");
  const bool added = tiles_.emplace(part.name, std::move(tile)).second;
  SLUICE_CHECK(added, "a tile is added twice");
  return part;
}

const ParameterTile* ParameterTiles::find(std::string_view parameter) const {
  const auto tile = tiles_.find(parameter);
  return tile == tiles_.end() ? nullptr : &tile->second;
}

ParameterSource ParameterTiles::cut(ParameterSource whole) const {
  if (tiles_.empty()) return whole;
  return [tiles = *this, whole = std::move(whole)](const Parameter& parameter, int64_t first, std::span<float> into) {
    const ParameterTile* const tile = tiles.find(parameter.name);
    if (tile == nullptr) return whole(parameter, first, into);
    const Parameter uncut{.name = tile->whole.name, .shape = tile->whole.shape, .elements = tile->whole.elements()};
    while (!into.empty()) {
      const int64_t run = first / tile->run, within = first % tile->run;
      const int64_t count = std::min(tile->run - within, static_cast<int64_t>(into.size()));
      whole(uncut, tile->first + run * tile->stride + within, into.first(static_cast<size_t>(count)));
      into = into.subspan(static_cast<size_t>(count));
      first += count;
    }
  };
}

std::vector<WholeParameter> whole_parameters(const ModelSpec& model, const ParameterTiles& tiles) {
  std::vector<WholeParameter> all;
  std::map<std::string_view, size_t> known;
  int index = 0;
  for (const PartitionSpec& partition : model.partitions) {
    for (const ParameterSpec& parameter : partition.parameters) {
      const ParameterTile* const tile = tiles.find(parameter.name);
      const ParameterSpec& whole = tile != nullptr ? tile->whole : parameter;
      const auto [place, fresh] = known.emplace(whole.name, all.size());
      if (fresh) all.push_back({.spec = whole, .parts = {}});
      all[place->second].parts.push_back({.parameter = index++, .name = parameter.name, .tile = tile});
    }
  }
  return all;
}

}  // namespace sluice
