#include "models/gpt2_workspace.h"

#include <algorithm>
#include <vector>

#include "core/bytes.h"
#include "core/geometry.h"
#include "libtorch/workspace.h"
#include "libtorch/zero_turn.h"

namespace sluice {

int64_t measure_gpt2_workspace(const ModelSpec& spec, const Gpt2Options& options, Gpt2Visit& embedding,
                               Gpt2Visit& block, Gpt2Visit& head) {
  const Geometry geometry(spec.partitions, int64_t{1} << 22);
  // Address space, not memory: as far as any shape that runs here may reach.
  const ZeroMemory memory(int64_t{1} << 40);
  Workspace workspace(memory.span());
  const WorkspaceScope scope(workspace);
  const std::vector<int64_t> zeros(static_cast<size_t>(options.batch * options.sequence), 0);
  const Gpt2Tokens tokens{
      .batch = options.batch, .sequence = options.sequence, .ids = zeros, .targets = zeros, .logits = {}};
  const int last = static_cast<int>(spec.visits.size()) - 1;
  const auto run = [&](Gpt2Visit& kind, int visit, Pass pass) {
    ZeroTurn turn(spec, geometry, visit, weights_dtype(options.precision), pass);
    kind.run(turn, tokens);
  };
  for (const Pass pass : {Pass::kForward, Pass::kEvaluate, Pass::kBackward}) {
    run(embedding, 0, pass);
    if (last > 1) run(block, 1, pass);
    run(head, last, pass);
  }
  return workspace.high_water_bytes();
}

int64_t estimate_gpt2_workspace(const Gpt2Config& config, const Gpt2Options& options) {
  (void)config;
  return options.batch;
}

}  // namespace sluice
