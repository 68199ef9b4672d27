#include "models/gpt2_timing.h"

#include <algorithm>

#include "core/arena.h"
#include "core/clock.h"
#include "core/geometry.h"
#include "libtorch/practice_turn.h"
#include "libtorch/workspace.h"

namespace sluice {
namespace {

constexpr int64_t kLongEnoughNs = 100'000'000;  // for one kind's pass
constexpr size_t kFewestRuns = 2;
constexpr int64_t kMoreThanCachesBytes = int64_t{64} << 20;

class Timing {
 public:
  Timing(const Gpt2Probe& probe, int64_t workspace_bytes)
      : probe_(probe),
        geometry_(probe.spec.partitions, int64_t{1} << 22),
        memory_(workspace_bytes),
        workspace_(memory_.span()),
        zeros_(static_cast<size_t>(probe.options.batch * probe.options.sequence), 0) {}

  // Of visits of one kind, which take turns: what they work on is not in the caches, as in a step.
  VisitTime time(Gpt2Visit& kind, int first_visit, int count) {
    std::vector<PracticeTurn> turns;
    for (int64_t bytes = 0; count > 0 && bytes < kMoreThanCachesBytes; --count) {
      turns.emplace_back(probe_.spec, geometry_, first_visit++, weights_dtype(probe_.options.precision));
      bytes += turns.back().bytes();
    }
    const bool sink = turns.front().outputs().empty();
    return {.forward_ms = sink ? 0 : median_ms(kind, turns, Pass::kForward),
            .backward_ms = median_ms(kind, turns, Pass::kBackward)};
  }

 private:
  double median_ms(Gpt2Visit& kind, std::vector<PracticeTurn>& turns, Pass pass) {
    const WorkspaceScope scope(workspace_);
    const Gpt2Tokens tokens{.batch = probe_.options.batch,
                            .sequence = probe_.options.sequence,
                            .ids = zeros_,
                            .targets = zeros_,
                            .logits = {}};
    std::vector<double> runs_ms;
    const int64_t began = now_ns();
    while (runs_ms.size() < kFewestRuns || now_ns() - began < kLongEnoughNs) {
      PracticeTurn& turn = turns[runs_ms.size() % turns.size()];
      const int64_t from = now_ns();
      turn.begin(pass);
      kind.run(turn, tokens);
      runs_ms.push_back(static_cast<double>(now_ns() - from) / 1e6);
    }
    const auto middle = runs_ms.begin() + static_cast<std::ptrdiff_t>((runs_ms.size() - 1) / 2);
    std::nth_element(runs_ms.begin(), middle, runs_ms.end());
    return *middle;
  }

  const Gpt2Probe& probe_;
  Geometry geometry_;
  Arena memory_;
  Workspace workspace_;
  std::vector<int64_t> zeros_;
};

}  // namespace

std::vector<VisitTime> time_gpt2_visits(const Gpt2Probe& probe, int64_t workspace_bytes) {
  Timing timing(probe, workspace_bytes);
  const int last = static_cast<int>(probe.spec.visits.size()) - 1;
  std::vector<VisitTime> times(probe.spec.visits.size(), timing.time(probe.block, 1, last - 1));
  times.front() = timing.time(probe.embedding, 0, 1);
  times.back() = timing.time(probe.head, last, 1);
  return times;
}

std::vector<VisitTime> estimate_gpt2_visits(const Gpt2Config& config, const Gpt2Options& options, double tflop_per_s) {
  const double tokens = static_cast<double>(options.batch * options.sequence);
  const auto ms = [&](int64_t multiply_adds) {  // of one token, once through
    return 2 * tokens * static_cast<double>(multiply_adds) / (tflop_per_s * 1e12) * 1e3;
  };
  // Attention over half of the sequence on average: scores and values.
  const double block = ms((4 * config.n_embd + 2 * config.inner()) * config.n_embd + options.sequence * config.n_embd);
  const double head = ms(config.vocab_size * config.n_embd);
  std::vector<VisitTime> times(static_cast<size_t>(config.n_layer + 2),
                               {.forward_ms = block, .backward_ms = 3 * block});
  times.front() = {};
  times.back() = {.backward_ms = 3 * head};
  return times;
}

}  // namespace sluice
