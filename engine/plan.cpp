#include "engine/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/bytes.h"
#include "core/errors.h"
#include "engine/few_pieces.h"
#include "engine/plan_search.h"
#include "engine/planner.h"
#include "engine/predict.h"
#include "offload/program.h"
#include "swap/record_store.h"
#include "swap/store_format.h"

namespace sluice {
namespace {

std::string or_none(const std::optional<int64_t>& bytes) {
  return bytes ? fmt::format("{} ({})", *bytes, format_bytes(*bytes)) : std::string("none would do");
}

// Each beside all of the other.
struct SmallestBudgets {
  std::optional<int64_t> device, host;
};

[[noreturn]] void refuse(const Planner& planner, const PlanOptions& options, const SmallestBudgets& smallest) {
  std::string text = fmt::format(
      "the budgets are too small: sluice.device_memory {} ({}; the compute's workspace alone takes {}), "
      "sluice.host_memory {} ({}); smallest device_memory that would do with this host_memory: {}; "
      "smallest host_memory that would do with this device_memory: {}",
      options.device_bytes, format_bytes(options.device_bytes), format_bytes(options.workspace_bytes),
      options.host_bytes, format_bytes(options.host_bytes), or_none(smallest.device), or_none(smallest.host));
  if (!smallest.device && !smallest.host) {
    // Neither alone helps: the least device memory of all, and the least host memory beside it.
    const auto least_device = planner.smallest_device(planner.everything_bytes());
    const auto least_host = least_device ? planner.smallest_host(*least_device) : std::nullopt;
    text +=
        fmt::format("; smallest pair: device_memory {}, host_memory {}", or_none(least_device), or_none(least_host));
  }
  throw BudgetError(text);
}

}  // namespace

bool Plan::any_speculated() const {
  return std::find(update_times.begin(), update_times.end(), UpdateTime::kEarly) != update_times.end();
}

void Plan::move_to_other_slots() {
  for (size_t c = 0; c < other_slots.size(); ++c) {
    if (!has_other_slot(static_cast<int>(c))) continue;
    std::swap(chunks[c].state_offset, other_slots[c].state);
    std::swap(chunks[c].weights_offset, other_slots[c].weights);
  }
}

RecordLayout Plan::record(int chunk, Group group) const {
  return record_layout(options.format(), group, geometry.chunks()[chunk].elements);
}

int64_t Plan::record_bytes(int chunk, Group group) const {
  return sluice::record_bytes(options.format(), group, geometry.chunks()[chunk].elements);
}

int64_t Plan::payload_bytes(int chunk, Group group) const {
  return geometry.chunks()[chunk].elements * bytes_per_element(options.format(), group);
}

int64_t Plan::drive_bytes(const Hop& hop) const {
  return hop.scratch_extent >= 0 ? scratch_bytes[hop.scratch_extent] : record_bytes(hop.chunk, hop.group);
}

TableNeeds table_needs(const Plan& plan) {
  return {.chunk_count = static_cast<int64_t>(plan.chunks.size()),
          .scratch_count = static_cast<int64_t>(plan.scratch_bytes.size()),
          .depth = plan.options.io_depth,
          .drives = plan.options.drives,
          .caller_bytes = plan.options.progress_bytes};
}

UpdateLayout Plan::update_layout(int chunk) const {
  const ChunkHomes& homes = chunks[chunk];
  UpdateLayout layout;
  if (homes.updated_on_device()) return layout;
  const auto place = [&layout](int64_t bytes) {
    const int64_t at = layout.bytes;
    layout.bytes += round_up(bytes, kPlaneAlignmentBytes);
    return at;
  };
  if (homes.state == Home::kNvme) layout.state = place(record_bytes(chunk, Group::kState));
  if (homes.weights == Home::kNvme) layout.weights = place(record_bytes(chunk, Group::kWeights));
  return layout;
}

namespace {

// A plan is made of chunks: one of too many is not begun. Their tables alone would not fit.
bool has_too_many_chunks(const ModelSpec& model, const PlanOptions& options) {
  constexpr int64_t kAlwaysPlanned =
      65536;  // in any memory they are planned, and refused where their tables do not fit
  if (options.chunk_elements == 0) return false;
  const int64_t most = std::max(kAlwaysPlanned, options.host_bytes / kLeastTableBytesOfAChunk);
  return model.elements() / options.chunk_elements > most;
}

[[noreturn]] void refuse_chunks(const ModelSpec& model, const PlanOptions& options) {
  throw ConfigError(fmt::format(
      "sluice.chunk_elements {} cuts the model's {} elements into {} chunks, whose tables alone take more than "
      "sluice.host_memory {} ({}): give larger chunks, or leave their size out; a store that has them needs more "
      "memory",
      options.chunk_elements, model.elements(), model.elements() / options.chunk_elements, options.host_bytes,
      format_bytes(options.host_bytes)));
}

void check(const ModelSpec& model, const PlanOptions& options) {
  const auto refuse = [](std::string_view option, auto value, std::string_view allowed) {
    throw ConfigError(fmt::format("PlanOptions::{} is {}: allowed is {}", option, value, allowed));
  };
  model.validate();
  options.placement.validate();
  check_update_mode(options.update, options.commit_interval, options.placement);
  if (options.micro_batches < 1) refuse("micro_batches", options.micro_batches, "1 or more");
  if (options.chunk_elements < 0) refuse("chunk_elements", options.chunk_elements, "1 or more, or 0: derived");
  if (options.commit_interval < 0) refuse("commit_interval", options.commit_interval, "1 or more, or 0: auto");
  if (options.workspace_bytes < 0) refuse("workspace_bytes", options.workspace_bytes, "0 or more");
  if (options.io_depth < 1) refuse("io_depth", options.io_depth, "1 or more");
  if (options.drives < 1) refuse("drives", options.drives, "1 or more");
  if (options.progress_bytes < 0 || options.progress_bytes > kMaxCallerBytes)
    refuse("progress_bytes", options.progress_bytes, "what a commit carries, 1 MiB at most");
  if (!options.graph_bytes.empty() && options.graph_bytes.size() != model.visits.size())
    refuse("graph_bytes", fmt::format("a list of {}", options.graph_bytes.size()), "one for each visit, or none");
  if (!options.speeds) return;
  options.speeds->machine.validate();
  if (options.speeds->visits.size() != model.visits.size())
    refuse("speeds.visits", fmt::format("a list of {}", options.speeds->visits.size()), "one for each visit");
}

}  // namespace

std::optional<int64_t> wanted_chunk_elements(const ModelSpec& model, const PlanOptions& options) {
  if (has_too_many_chunks(model, options)) return std::nullopt;
  return Planner(model, options).chunk_elements(options.host_bytes);
}

namespace {

// Where the chunks that host memory has room for are few, smaller ones: there is more to do side by side, and less of
// it is left when the rest is done. All choices are looked at anew with each size that is large still. With small
// chunks steps take longer than predicted (bench/README.md): they have to make one clearly shorter, with the same
// choice already.
PlanSearch::Candidate with_smaller_chunks(const ModelSpec& model, PlanOptions options, PlanSearch::Candidate best) {
  constexpr int64_t kLarge = 256 * kKiB;  // elements
  constexpr double kWorthIt = 0.99, kClearlyWorthIt = 0.95;
  const Geometry geometry = best.plan.geometry;  // of which partitions stay
  const int64_t largest = std::ranges::max(geometry.partitions(), {}, &Partition::elements).elements;
  while (options.chunk_elements / 2 >= largest) options.chunk_elements /= 2;  // the same chunks
  while (options.chunk_elements > kSmallestDefaultChunk) {
    options.chunk_elements /= 2;
    if (count_chunks(geometry.partitions(), options.chunk_elements) > kFewChunks) break;
    const bool is_large = options.chunk_elements >= kLarge;
    const auto is_worth_it = [&](const std::optional<PlanSearch::Candidate>& smaller) {
      return smaller && smaller->step_ms < (is_large ? kWorthIt : kClearlyWorthIt) * best.step_ms;
    };
    if (!is_large && !is_worth_it(PlanSearch(model, options).attempt(best.choice))) continue;
    std::optional<PlanSearch::Candidate> smaller = PlanSearch(model, options).best();  // as where the size is given
    if (is_worth_it(smaller)) best = std::move(*smaller);
  }
  return best;
}

}  // namespace

std::optional<Plan> find_plan(const ModelSpec& model, const PlanOptions& options) {
  check(model, options);
  if (has_too_many_chunks(model, options)) return std::nullopt;
  // Chunks of one size throughout a search.
  PlanOptions sized = options;
  for (const int64_t elements : Planner(model, options).chunk_sizes(options.host_bytes)) {
    sized.chunk_elements = elements;
    std::optional<PlanSearch::Candidate> best = PlanSearch(model, sized).best();
    if (!best) continue;
    if (!options.speeds) return std::move(best->plan);
    if (options.chunk_elements == 0) best = with_smaller_chunks(model, sized, std::move(*best));
    sized.chunk_elements = best->plan.geometry.chunk_elements();
    best = PlanSearch(model, sized).with_early_updates(std::move(*best));
    best->plan.busiest = predict(model, best->plan, *options.speeds).busiest();
    return std::move(best->plan);
  }
  return std::nullopt;
}

namespace {

// More of one memory may make a longer program, whose tables there is no room for in the other: then less of it is
// used.
std::optional<Plan> plan_with_less(const ModelSpec& model, const PlanOptions& options,
                                   const SmallestBudgets& smallest) {
  PlanOptions less = options;
  if (smallest.device && *smallest.device < options.device_bytes) {
    less.device_bytes = *smallest.device;
  } else if (smallest.host && *smallest.host < options.host_bytes) {
    less.host_bytes = *smallest.host;
  } else {
    return std::nullopt;
  }
  std::optional<Plan> plan = find_plan(model, less);
  if (!plan) return std::nullopt;
  plan->options.device_bytes = options.device_bytes;
  plan->options.host_bytes = options.host_bytes;
  return plan;
}

}  // namespace

Plan make_plan(const ModelSpec& model, const PlanOptions& options) {
  if (std::optional<Plan> plan = find_plan(model, options)) return std::move(*plan);
  if (has_too_many_chunks(model, options)) refuse_chunks(model, options);
  const Planner planner(model, options);
  const SmallestBudgets smallest{planner.smallest_device(options.host_bytes),
                                 planner.smallest_host(options.device_bytes)};
  if (std::optional<Plan> plan = plan_with_less(model, options, smallest)) return std::move(*plan);
  refuse(planner, options, smallest);
}

std::string Plan::homes_words() const {
  if (!busiest) return "in the fixed order: no speeds are known";
  const std::string words = (busiest->binds() ? ": " : "; ") + binding_words(*busiest);
  std::string whole;
  if (!named.state.empty()) whole += fmt::format(", all state on {}", name_of(named.state[0].home));
  if (!named.activations.empty()) whole += fmt::format(", all activations on {}", name_of(named.activations[0].home));
  if (host_state == HostStateOrder::kBehindReadAhead) whole += ", in host memory state that is not read ahead";
  if (homes_by == HomesBy::kSpeeds) return "so that the busiest resource has the least to do" + whole + words;
  return "in the fixed order" + whole + ", as no other homes are predicted to be faster" + words;
}

std::string Plan::update_words() const {
  const auto early = std::ranges::count_if(update_order, [this](int chunk) { return speculated(chunk); });
  const bool is_auto = options.update == UpdateMode::kAuto;
  if (early == 0) {
    return std::string("all beside the next forward") +
           (is_auto ? "; none in the backward is predicted to shorten the step" : "");
  }
  const bool some_wait = early < std::ssize(chunks);
  return fmt::format("{} of {} chunks in the backward{}{}", early, chunks.size(),
                     is_auto ? " while the clip does not engage" : "",
                     some_wait ? ", the others beside the next forward" : "");
}

std::string Plan::table() const {
  std::string text = fmt::format("{:<8} {:<38} {:>12}\n", "tier", "use", "bytes");
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kNvme}) {
    int64_t sum = 0;
    for (const UseRow& row : uses) {
      if (row.tier != tier || row.bytes == 0) continue;
      text += fmt::format("{:<8} {:<38} {:>12}\n", name_of(tier), row.use, format_bytes(row.bytes));
      sum += row.bytes;
    }
    const int64_t budget = tier == Tier::kDevice ? options.device_bytes : options.host_bytes;
    text += tier == Tier::kNvme ? fmt::format("{:<8} {:<38} {:>12}\n", "nvme", "= disk needed", format_bytes(sum))
                                : fmt::format("{:<8} {:<38} {:>12}  of {}\n", name_of(tier), "= planned",
                                              format_bytes(sum), format_bytes(budget));
  }
  text += fmt::format("\n{:<12} {:<34} {:>12}\n", "link", "what a step moves", "bytes");
  for (const MoveRow& row : moves) {
    if (row.bytes > 0) text += fmt::format("{:<12} {:<34} {:>12}\n", row.link, row.what, format_bytes(row.bytes));
  }
  const auto every = [](int interval) {
    return interval == 1 ? "every step" : fmt::format("every {} steps", interval);
  };
  const std::string other = other_commits ? fmt::format("; {}: {:.{}f} ms predicted", every(other_commits->interval),
                                                        other_commits->step_ms, other_commits->step_ms < 10 ? 3 : 1)
                                          : "";
  text += fmt::format("\nchunks: {} of {} elements; commit every {} step{}: a crash loses at most {} steps{}\n",
                      chunks.size(), geometry.chunk_elements(), commit_interval, commit_interval == 1 ? "" : "s",
                      commit_interval + 1, other);
  return text + "homes: " + homes_words() + "\nupdates: " + update_words() + "\n";
}

}  // namespace sluice
