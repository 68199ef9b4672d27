#include "models/gpt2_timing.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "core/bytes.h"
#include "core/clock.h"
#include "core/geometry.h"
#include "core/median.h"
#include "engine/plan.h"
#include "engine/probe_time.h"
#include "libtorch/stand_in_turn.h"
#include "libtorch/visit_memory.h"
#include "offload/device_wait.h"

namespace sluice {
namespace {

constexpr int64_t kMoreThanCachesBytes = int64_t{64} << 20;

// With small numbers everywhere.
std::unique_ptr<Device> make_filled_device(DeviceKind kind, int64_t bytes) {
  std::unique_ptr<Device> device = make_device(kind, bytes);
  const std::vector<std::byte> values(static_cast<size_t>(kMiB), std::byte{kSmallValue});
  for (int64_t at = 0; at < bytes; at += kMiB) {
    device->copy_now(device->memory() + at, values.data(), std::min(kMiB, bytes - at));
  }
  return device;
}

// What is timed: of each kind as many visits as caches do not hold.
struct TimedVisits {
  std::vector<std::vector<int>> lists;  // of visits of one kind
  std::vector<size_t> list_of;          // each visit's, in `lists`
  int64_t bytes = 0;                    // of the device, with the workspace
};

int64_t graph_place_bytes(const ComputeMemory& memory, int visit) {
  return round_up(memory.graph_bytes[static_cast<size_t>(visit)], kDeviceAlignmentBytes);
}
int64_t workspace_place_bytes(const ComputeMemory& memory) {
  return round_up(memory.workspace_bytes, kDeviceAlignmentBytes);
}

TimedVisits timed_visits(const Gpt2Probe& probe, const ComputeMemory& memory) {
  const Gpt2Layout& layout = probe.visits.layout();
  const Geometry geometry = geometry_of(probe);
  TimedVisits timed;
  std::vector<int64_t> list_bytes;
  for (int visit = 0; visit < static_cast<int>(layout.roles.size()); ++visit) {
    const int first = layout.first_like(visit);
    const size_t list = first < visit ? timed.list_of[static_cast<size_t>(first)] : timed.lists.size();
    timed.list_of.push_back(list);
    if (first == visit) {
      timed.lists.emplace_back();
      list_bytes.push_back(0);
    }
    if (list_bytes[list] >= kMoreThanCachesBytes) continue;
    timed.lists[list].push_back(visit);
    list_bytes[list] += StandInTurn::bytes(turn_of(probe, geometry, visit)) + graph_place_bytes(memory, visit);
  }
  timed.bytes = workspace_place_bytes(memory) + *std::ranges::max_element(list_bytes);
  return timed;
}

class Timing {
 public:
  Timing(const Gpt2Probe& probe, const ComputeMemory& memory)
      : probe_(probe),
        memory_(memory),
        geometry_(geometry_of(probe)),
        timed_(timed_visits(probe, memory)),
        device_(make_filled_device(probe.options.device, timed_.bytes)),
        wait_(*device_),
        visits_(std::span(device_->memory(), static_cast<size_t>(workspace_place_bytes(memory))),
                device_->compute_stream()),
        zeros_(static_cast<size_t>(probe.options.batch * probe.options.sequence), 0) {}

  // Of every visit.
  std::vector<VisitTime> times() {
    std::vector<VisitTime> of_lists, times;
    for (const std::vector<int>& visits : timed_.lists) of_lists.push_back(time(visits));
    for (const size_t list : timed_.list_of) times.push_back(of_lists[list]);
    return times;
  }

 private:
  // Those of a list take turns: what they work on is not in the caches, as in a step.
  VisitTime time(const std::vector<int>& visits) {
    std::vector<Practised> turns;
    std::byte* at = device_->memory() + workspace_place_bytes(memory_);
    for (const int visit : visits) {
      const StandInTurn::Of of = turn_of(probe_, geometry_, visit);
      const auto graph_bytes = static_cast<size_t>(memory_.graph_bytes[static_cast<size_t>(visit)]);
      turns.push_back({visit, PracticeTurn(of, *device_, at), {at + StandInTurn::bytes(of), graph_bytes}});
      at += StandInTurn::bytes(of) + graph_place_bytes(memory_, visit);
    }
    const bool sink = turns.front().turn.outputs().empty(), keeps = !turns.front().graph.empty();
    using enum Graph;
    VisitTime time{.forward_ms = sink ? 0 : medians_ms(turns, {Pass::kForward}, kNone)[0],
                   .backward_ms = medians_ms(turns, {Pass::kBackward}, kNone)[0]};
    if (keeps) {
      const std::vector<double> kept_ms = medians_ms(turns, {Pass::kForward, Pass::kBackward}, kKept);
      time.keeping_forward_ms = kept_ms[0];
      time.kept_backward_ms = kept_ms[1];
    }
    probe_.visits.forget_graphs();
    return time;
  }

  struct Practised {
    int visit = 0;
    PracticeTurn turn;
    std::span<std::byte> graph;
  };
  enum class Graph : uint8_t { kNone, kKept };

  // Of each of these passes, which every visit runs one after the other.
  std::vector<double> medians_ms(std::vector<Practised>& turns, const std::vector<Pass>& passes, Graph keeping) {
    const VisitScope scope(visits_);
    const Gpt2Tokens tokens{.batch = probe_.options.batch,
                            .sequence = probe_.options.sequence,
                            .ids = zeros_,
                            .targets = zeros_,
                            .logits = {}};
    std::vector<std::vector<double>> runs_ms(passes.size());
    const int64_t began = now_ns();
    while (!are_enough_runs(std::ssize(runs_ms[0]), now_ns() - began)) {
      auto& [visit, turn, graph] = turns[runs_ms[0].size() % turns.size()];
      for (size_t pass = 0; pass < passes.size(); ++pass) {
        const int64_t from = now_ns();
        turn.begin(passes[pass], keeping == Graph::kKept ? graph : std::span<std::byte>());
        probe_.visits.run(visit, turn, tokens);
        wait_.for_compute();
        runs_ms[pass].push_back(static_cast<double>(now_ns() - from) / 1e6);
      }
    }
    std::vector<double> medians;
    for (const std::vector<double>& runs : runs_ms) medians.push_back(median(runs));
    return medians;
  }

  const Gpt2Probe& probe_;
  const ComputeMemory& memory_;
  Geometry geometry_;
  TimedVisits timed_;
  std::unique_ptr<Device> device_;
  DeviceWait wait_;
  VisitMemory visits_;
  std::vector<int64_t> zeros_;
};

}  // namespace

bool are_enough_runs(int64_t runs, int64_t took_ns) {
  constexpr int64_t kFewestRuns = 2, kLongEnoughNs = 100'000'000, kOnceWillDoNs = 5'000'000'000;
  return runs > 0 && took_ns >= (runs < kFewestRuns ? kOnceWillDoNs : kLongEnoughNs);
}

std::vector<VisitTime> time_gpt2_visits(const Gpt2Probe& probe, const ComputeMemory& memory) {
  return Timing(probe, memory).times();
}

int64_t bytes_to_time_gpt2(const Gpt2Probe& probe, const ComputeMemory& memory) {
  return timed_visits(probe, memory).bytes;
}

std::vector<VisitTime> estimate_gpt2_visits(const Gpt2Layout& layout, const Gpt2Config& config,
                                            const Gpt2Options& options, double tflop_per_s) {
  const double tokens = static_cast<double>(options.batch * options.sequence);
  const auto ms = [&](int64_t multiply_adds) {  // of one token, once through
    return 2 * tokens * static_cast<double>(multiply_adds) / (tflop_per_s * 1e12) * 1e3;
  };
  const auto part = [](int64_t count, int64_t tiles, int tile) {
    return static_cast<double>(tile_range(count, tiles, tile).size()) / static_cast<double>(count);
  };
  // Attention over half of the sequence on average: scores and values.
  const double attention = ms((4 * config.n_embd + options.sequence) * config.n_embd);
  const double products = ms(4 * config.n_embd * config.n_embd);  // of it
  const double mlp = ms(2 * config.inner() * config.n_embd), head = ms(config.vocab_size * config.n_embd);
  std::vector<VisitTime> times;
  for (const auto& [kind, tile] : layout.roles) {
    const auto recomputed = [&](double forward_ms) {
      times.push_back({.forward_ms = forward_ms,
                       .backward_ms = 3 * forward_ms,
                       .keeping_forward_ms = forward_ms,
                       .kept_backward_ms = 2 * forward_ms});
    };
    switch (kind) {
      case Gpt2Kind::kBlock:
        recomputed(attention + mlp);
        break;
      case Gpt2Kind::kAttentionTile:
        recomputed(attention * part(config.n_head, config.tiling.linear, tile));
        break;
      case Gpt2Kind::kAttentionInput:
        recomputed(products * 3 / 4 / static_cast<double>(config.n_head * config.product_tiles().input));
        break;
      case Gpt2Kind::kAttentionMixing:
        recomputed((attention - products) / static_cast<double>(config.n_head));
        break;
      case Gpt2Kind::kAttentionOutput:
        recomputed(products / 4 / static_cast<double>(config.n_head * config.product_tiles().output));
        break;
      case Gpt2Kind::kMlpTile:
        recomputed(mlp * part(config.inner(), config.tiling.linear, tile));
        break;
      case Gpt2Kind::kHeadTile:
        recomputed(head * part(config.vocab_size, config.tiling.embedding, tile));
        break;
      case Gpt2Kind::kHead:  // a sink: forward and backward in one
        times.push_back({.backward_ms = 3 * head});
        break;
      case Gpt2Kind::kEmbedding:
      case Gpt2Kind::kEmbeddingTile:
      case Gpt2Kind::kLoss:
        times.push_back({});
    }
  }
  return times;
}

double gpt2_trial_flops(const Gpt2Layout& layout, const Gpt2Config& config, const Gpt2Options& options) {
  const std::vector<VisitTime> times = estimate_gpt2_visits(layout, config, options, 1);
  double ms = 0;
  for (size_t visit = 0; visit < times.size(); ++visit) {
    if (layout.first_like(static_cast<int>(visit)) < static_cast<int>(visit)) continue;
    const VisitTime& time = times[visit];
    const double evaluation_ms = time.backward_ms / 3;
    ms += time.forward_ms + evaluation_ms + time.backward_ms + time.keeping_forward_ms;
    if (layout.roles[visit].kind == Gpt2Kind::kBlock) ms += time.kept_backward_ms;  // tiles keep no graph
  }
  return ms * 1e9;  // in a ms at 1 TFLOP/s
}

}  // namespace sluice
