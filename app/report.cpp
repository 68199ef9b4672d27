#include "app/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "app/console.h"
#include "core/bytes.h"
#include "core/topology.h"

namespace sluice {
namespace {

// "bound by nvme 1313 ms; read 70 %, compute 60 %, ... of the step", or what was busiest where nothing bound the step,
// and for what share of the step each lane was busy; a resource's only lane is not said twice.
std::string lane_words(const StepLanes& lanes, double step_ms) {
  LaneTimes busy_ms{};
  for (size_t lane = 0; lane < busy_ms.size(); ++lane) busy_ms[lane] = lanes.uses[lane].busy_ms;
  const GroupTimes groups = busy_of_groups({busy_ms, lanes.drive_busy_ms}, step_ms);
  const LaneGroup bound = longest(groups);
  const Busiest busiest{bound, groups[static_cast<size_t>(bound)], step_ms};
  std::vector<std::pair<std::string_view, double>> all;
  for (size_t i = 0; i < busy_ms.size(); ++i) {
    const auto lane = static_cast<Lane>(i);
    if (lanes_of(bound).size() > 1 || lanes_of(bound).front() != lane) all.emplace_back(name_of(lane), busy_ms[i]);
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string words =
      busiest.binds() ? fmt::format("bound by {} {:.0f} ms", name_of(bound), busiest.ms) : binding_words(busiest);
  for (size_t i = 0; i < all.size(); ++i) {
    const double share = step_ms > 0 ? 100 * all[i].second / step_ms : 0;
    words += fmt::format("{} {} {:.0f} %", i == 0 ? ";" : ",", all[i].first, share);
  }
  return words + " of the step";
}

std::string memory_words(const Ledger& ledger, Tier tier) {
  return fmt::format("{} {} (peak {})", name_of(tier), format_bytes(ledger.now(tier)), format_bytes(ledger.peak(tier)));
}

}  // namespace

GroupTimes busy_of_groups(const BusyTimes& busy, double step_ms) {
  GroupTimes groups{};
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto group = static_cast<LaneGroup>(i);
    for (const Lane lane : lanes_of(group)) {
      const double ms = busy.lanes_ms[static_cast<size_t>(lane)];
      groups[i] = group == LaneGroup::kNvme ? std::min(groups[i] + ms, step_ms) : std::max(groups[i], ms);
    }
  }
  if (busy.drive_ms) groups[static_cast<size_t>(LaneGroup::kNvme)] = *busy.drive_ms;
  return groups;
}

std::string step_line(const StepMetrics& metrics, const StepContext& context, const Ledger& ledger) {
  const StepEnd& end = metrics.end;
  return fmt::format(
      "step {}/{}  loss {:.4f}  lr {:.3g}  grad_norm {:.4f}  loss_scale {:g}{}  samples/s {:.2f} (now {:.2f})  "
      "tokens/s {:.0f}  TFLOP/s {:.3f}  {}  {}  {}  {:.0f} ms, {}",
      end.step, context.steps, end.loss, metrics.learning_rate, std::abs(end.grad_norm), end.loss_scale,
      end.skipped ? "  SKIPPED" : "", context.average_samples_per_s, metrics.samples_per_s, metrics.tokens_per_s,
      context.flops_per_token * metrics.tokens_per_s / 1e12, memory_words(ledger, Tier::kDevice),
      memory_words(ledger, Tier::kHost), memory_words(ledger, Tier::kNvme), metrics.step_ms,
      lane_words(metrics.lanes, metrics.step_ms));
}

std::string summary(const RunSummary& run, const Ledger& ledger) {
  std::string text;
  auto out = std::back_inserter(text);
  const std::string time = format_duration(run.seconds);
  if (run.steps_here == run.steps) {
    fmt::format_to(out, "\n{} steps, {} of training\n", run.steps, time);
  } else {
    fmt::format_to(out, "\n{} steps; of them {} in this process, {} of training\n", run.steps, run.steps_here, time);
  }
  if (run.first_loss && run.last_loss) {
    fmt::format_to(out, "loss              first {:.4f}, last {:.4f}\n", *run.first_loss, *run.last_loss);
  }
  if (run.validation && !std::isfinite(run.validation->loss)) {
    fmt::format_to(out, "validation loss   {}: no number\n", run.validation->loss);
  } else if (run.validation) {
    fmt::format_to(out,
                   "validation loss   {:.4f}, unigram cross-entropy of the same {} tokens {:.4f}: {:.4f} nat {} it\n",
                   run.validation->loss, run.validation->tokens, run.validation->unigram_nats,
                   std::abs(run.validation->unigram_nats - run.validation->loss),
                   run.validation->loss <= run.validation->unigram_nats ? "below" : "above");
  }
  // The tiers are reserved whole when a run begins; the compute's temporaries come and go.
  for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
    fmt::format_to(out, "{:<7} peak      {} ({} bytes) of {} ({} bytes)\n", name_of(tier),
                   format_bytes(ledger.peak(tier)), ledger.peak(tier), format_bytes(ledger.budget(tier)),
                   ledger.budget(tier));
  }
  fmt::format_to(out, "nvme    peak      {} ({} bytes)\n", format_bytes(ledger.peak(Tier::kNvme)),
                 ledger.peak(Tier::kNvme));
  fmt::format_to(out, "workspace peak    {} of {} that the device keeps for temporaries\n",
                 format_bytes(run.workspace_peak_bytes), format_bytes(run.workspace_bytes));
  text += run.endurance;
  const int64_t rss = peak_resident_bytes();
  fmt::format_to(out, "process peak      {}, of it {} outside the two budgets' arenas and tables (runtime)\n",
                 format_bytes(rss),
                 format_bytes(runtime_bytes(rss, ledger.peak(Tier::kDevice), ledger.peak(Tier::kHost), run.device)));
  fmt::format_to(out, "digests           weights {:08x}, state {:08x}\n", run.digests.weights_crc32c,
                 run.digests.state_crc32c);
  fmt::format_to(out, "run               {}", run.folder);
  return text;
}

}  // namespace sluice
