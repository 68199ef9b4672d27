#include "engine/tune.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "core/at_once.h"
#include "core/bytes.h"
#include "core/errors.h"
#include "engine/planner.h"

namespace sluice {
namespace {

constexpr int kRounds = 2;               // of both lines
constexpr double kAlike = 0.01;          // predictions so near to each other say nothing
constexpr int64_t kMostTimesLarger = 8;  // micro-batches
constexpr int64_t kMostChunks = 64;      // of the largest partition
constexpr int64_t kCommonChunk = int64_t{1} << 20;

class Search {
 public:
  Search(const TuneSpace& space, const PlanOptions& base, const std::function<void(int64_t, int64_t)>& progress)
      : space_(space), base_(base), progress_(progress) {}

  TuneSearch run() {
    for (size_t batching = 0; batching < space_.batchings.size(); ++batching) {
      told_at_most_ = static_cast<int64_t>(batching + 1) * of_a_batching();
      descend(batching);
      done_ = told_at_most_;
      tell();
    }
    TuneSearch found;
    for (const auto& [settings, step_ms] : predicted_) {
      if (step_ms) found.candidates.push_back({settings, *step_ms});
      if (!step_ms) ++found.unfit;
    }
    std::sort(found.candidates.begin(), found.candidates.end(), [](const TuneCandidate& a, const TuneCandidate& b) {
      return std::tuple(a.step_ms, a.settings.changes(), a.settings) <
             std::tuple(b.step_ms, b.settings.changes(), b.settings);
    });
    return found;
  }

 private:
  // Moves only where the step gets shorter.
  void descend(size_t batching) {
    TuneSettings at{.batching = batching};
    for (int round = 0; round < kRounds; ++round) {
      const TuneSettings before = at;
      at = best_along(at, &TuneSettings::split, space_.device_bytes.size());
      at = best_along(at, &TuneSettings::chunk, space_.chunk_elements.size());
      if (at == before) break;
    }
    if (predicted_.at(at)) return;
    std::vector<TuneSettings> pairs;
    for (size_t chunk = 1; chunk < space_.chunk_elements.size(); ++chunk) {
      for (size_t split = 1; split < space_.device_bytes.size(); ++split) pairs.push_back({batching, chunk, split});
    }
    predict_all(pairs);
  }

  TuneSettings best_along(TuneSettings best, size_t TuneSettings::*axis, size_t count) {
    std::vector<TuneSettings> line(count, best);
    for (size_t i = 0; i < count; ++i) line[i].*axis = i;
    predict_all(line);
    for (const TuneSettings& other : line) {
      const std::optional<double> ms = predicted_.at(other), best_ms = predicted_.at(best);
      if (ms && (!best_ms || *ms < *best_ms)) best = other;
    }
    return best;
  }

  // Each once.
  void predict_all(const std::vector<TuneSettings>& all) {
    std::vector<TuneSettings> fresh;
    std::ranges::copy_if(all, std::back_inserter(fresh), [&](const auto& each) { return !predicted_.contains(each); });
    done_ += std::ssize(all) - std::ssize(fresh);
    std::vector<std::optional<double>> steps_ms(fresh.size());
    std::mutex one_at_a_time;
    at_once(fresh.size(), half_of_the_cores(), [&](size_t i) {
      steps_ms[i] = predict(fresh[i]);
      const std::lock_guard lock(one_at_a_time);
      ++done_;
      tell();
    });
    for (size_t i = 0; i < fresh.size(); ++i) predicted_.emplace(fresh[i], steps_ms[i]);
  }

  std::optional<double> predict(const TuneSettings& settings) const {
    const auto plan = find_plan(space_.batchings[settings.batching].model, options_of(space_, settings, base_));
    return plan ? std::optional(plan->busiest.value().step_ms) : std::nullopt;
  }

  int64_t of_a_batching() const {
    return static_cast<int64_t>(kRounds * (space_.device_bytes.size() + space_.chunk_elements.size()));
  }
  void tell() const {
    if (progress_)
      progress_(std::min(done_, told_at_most_), of_a_batching() * static_cast<int64_t>(space_.batchings.size()));
  }

  const TuneSpace& space_;
  const PlanOptions& base_;
  const std::function<void(int64_t, int64_t)>& progress_;
  std::map<TuneSettings, std::optional<double>> predicted_;  // nothing: does not fit
  int64_t done_ = 0, told_at_most_ = 0;  // where every pair of a batching is tried, that is more than was foreseen
};

std::vector<int64_t> given_first(int64_t given, std::vector<int64_t> values) {
  std::erase(values, given);
  values.insert(values.begin(), given);
  return values;
}

}  // namespace

PlanOptions options_of(const TuneSpace& space, const TuneSettings& settings, const PlanOptions& base) {
  const MicroBatching& batching = space.batchings.at(settings.batching);
  PlanOptions options = base;
  options.micro_batches = batching.micro_batches;
  options.workspace_bytes = batching.workspace_bytes;
  options.graph_bytes = batching.graph_bytes;
  options.chunk_elements = space.chunk_elements.at(settings.chunk);
  options.device_bytes = space.device_bytes.at(settings.split);
  options.host_bytes = space.total_bytes - options.device_bytes;
  options.speeds.value().visits = batching.visits;
  return options;
}

TuneSearch search_settings(const TuneSpace& space, const PlanOptions& base,
                           const std::function<void(int64_t, int64_t)>& progress) {
  return Search(space, base, progress).run();
}

std::vector<TuneCandidate> worth_trying(const TuneSearch& search, int count) {
  SLUICE_CHECK(count > 0, "a trial at the least");
  std::vector<TuneCandidate> taken;
  const auto is_given = [](const TuneCandidate& each) { return each.settings == TuneSettings{}; };
  const auto given = std::find_if(search.candidates.begin(), search.candidates.end(), is_given);
  if (given != search.candidates.end()) taken.push_back(*given);
  for (const TuneCandidate& candidate : search.candidates) {
    if (static_cast<int>(taken.size()) >= count) break;
    const auto is_alike = [&](const TuneCandidate& other) {
      return other.settings.batching == candidate.settings.batching &&
             std::abs(candidate.step_ms - other.step_ms) <= kAlike * other.step_ms;
    };
    if (std::none_of(taken.begin(), taken.end(), is_alike)) taken.push_back(candidate);
  }
  return taken;
}

std::vector<int64_t> micro_batch_sizes(int64_t samples_of_step, int64_t given) {
  std::vector<int64_t> sizes;
  for (int64_t size = std::max<int64_t>(1, given / kMostTimesLarger);
       size <= std::min(samples_of_step, given * kMostTimesLarger); ++size) {
    if (samples_of_step % size == 0) sizes.push_back(size);
  }
  return given_first(given, std::move(sizes));
}

std::vector<int64_t> chunk_sizes(int64_t largest_partition_elements, int64_t given) {
  std::vector<int64_t> sizes;
  for (int64_t size = kSmallestDefaultChunk; size <= kLargestDefaultChunk; size *= 2) {
    if (size >= kCommonChunk || size * kMostChunks >= largest_partition_elements) sizes.push_back(size);
    if (size >= largest_partition_elements) break;
  }
  return given_first(given, std::move(sizes));
}

std::vector<int64_t> device_shares(int64_t total_bytes, int64_t given) {
  const int64_t grain = total_bytes >= 64 * kMiB ? kMiB : 64 * kKiB;
  std::vector<int64_t> shares;
  for (const int64_t sixteenths : {1, 2, 3, 4, 6, 8, 10, 12, 14}) {
    const int64_t bytes = total_bytes / 16 * sixteenths / grain * grain;
    if (bytes > 0 && (shares.empty() || bytes > shares.back())) shares.push_back(bytes);
  }
  return given_first(given, std::move(shares));
}

}  // namespace sluice
