#include "app/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "app/console.h"
#include "core/bytes.h"
#include "core/topology.h"

namespace sluice {
namespace {

// "bound by compute 1313 ms; update 21 %, read 15 %, ...": the busiest lane, and what share of its time the others were
// busy.
std::string lane_words(const StepLanes& lanes) {
  std::pair<const char*, double> all[] = {{"read", lanes.read.busy_ms},       {"write", lanes.write.busy_ms},
                                          {"upload", lanes.upload.busy_ms},   {"download", lanes.download.busy_ms},
                                          {"compute", lanes.compute.busy_ms}, {"update", lanes.update.busy_ms}};
  std::stable_sort(std::begin(all), std::end(all), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string words = fmt::format("bound by {} {:.0f} ms;", all[0].first, all[0].second);
  for (size_t i = 1; i < std::size(all); ++i) {
    const double share = all[0].second > 0 ? 100 * all[i].second / all[0].second : 0;
    words += fmt::format("{} {} {:.0f} %", i == 1 ? "" : ",", all[i].first, share);
  }
  return words;
}

std::string memory_words(const Ledger& ledger, Tier tier) {
  return fmt::format("{} {} (peak {})", name_of(tier), format_bytes(ledger.now(tier)), format_bytes(ledger.peak(tier)));
}

}  // namespace

std::string step_line(const StepMetrics& metrics, const StepContext& context, const Ledger& ledger) {
  const StepEnd& end = metrics.end;
  return fmt::format(
      "step {}/{}  loss {:.4f}  lr {:.3g}  grad_norm {:.4f}  loss_scale {:g}{}  samples/s {:.2f} (now {:.2f})  "
      "tokens/s "
      "{:.0f}  TFLOP/s {:.3f}  {}  {}  {:.0f} ms, {}",
      end.step, context.steps, end.loss, metrics.learning_rate, end.grad_norm, end.loss_scale,
      end.skipped ? "  SKIPPED" : "", context.average_samples_per_s, metrics.samples_per_s, metrics.tokens_per_s,
      context.flops_per_token * metrics.tokens_per_s / 1e12, memory_words(ledger, Tier::kDevice),
      memory_words(ledger, Tier::kHost), metrics.step_ms, lane_words(metrics.lanes));
}

std::string summary(const RunSummary& run, const Ledger& ledger) {
  std::string text;
  auto out = std::back_inserter(text);
  fmt::format_to(out, "\n{} steps, {} of training in this process\n", run.steps, format_duration(run.seconds));
  if (run.first_loss && run.last_loss) {
    fmt::format_to(out, "loss              first {:.4f}, last {:.4f}\n", *run.first_loss, *run.last_loss);
  }
  if (run.validation) {
    fmt::format_to(out,
                   "validation loss   {:.4f}, unigram cross-entropy of the same {} tokens {:.4f}: {:.4f} nat {} it\n",
                   run.validation->loss, run.validation->tokens, run.validation->unigram_nats,
                   std::abs(run.validation->unigram_nats - run.validation->loss),
                   run.validation->loss <= run.validation->unigram_nats ? "below" : "above");
  }
  for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
    fmt::format_to(out, "{:<7} peak      {} ({} bytes) of {} ({} bytes)\n", name_of(tier),
                   format_bytes(ledger.peak(tier)), ledger.peak(tier), format_bytes(ledger.budget(tier)),
                   ledger.budget(tier));
  }
  fmt::format_to(out, "nvme    peak      {} ({} bytes)\n", format_bytes(ledger.peak(Tier::kNvme)),
                 ledger.peak(Tier::kNvme));
  text += run.endurance;
  const int64_t rss = peak_resident_bytes();
  fmt::format_to(out, "process peak      {}, of it {} outside the two budgets' arenas and tables (runtime)\n",
                 format_bytes(rss),
                 format_bytes(std::max<int64_t>(0, rss - ledger.peak(Tier::kDevice) - ledger.peak(Tier::kHost))));
  fmt::format_to(out, "digests           weights {:08x}, state {:08x}\n", run.digests.weights_crc32c,
                 run.digests.state_crc32c);
  fmt::format_to(out, "run               {}", run.folder);
  return text;
}

}  // namespace sluice
