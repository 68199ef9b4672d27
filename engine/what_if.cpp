#include "engine/what_if.h"

#include <algorithm>

#include "core/at_once.h"
#include "core/errors.h"
#include "engine/predict.h"
#include "swap/record_store.h"

namespace sluice {
namespace {

Resources raise(Resources resources, Offer::Raised raised) {
  switch (raised) {
    case Offer::Raised::kHostMemory:
      resources.host_bytes *= 2;
      break;
    case Offer::Raised::kDeviceMemory:
      resources.device_bytes *= 2;
      break;
    case Offer::Raised::kDrives:
      resources.drives += 1;
      break;
    case Offer::Raised::kTokens:
      resources.micro_batches *= 2;
      break;
  }
  return resources;
}

}  // namespace

Resources resources_of(const PlanOptions& options) {
  return {.device_bytes = options.device_bytes,
          .host_bytes = options.host_bytes,
          .drives = options.drives,
          .micro_batches = options.micro_batches};
}

PlanOptions with_resources(const PlanOptions& options, const Resources& resources) {
  SLUICE_CHECK(resources.drives > 0 && resources.micro_batches > 0, "a drive and a micro-batch");
  PlanOptions changed = options;
  changed.device_bytes = resources.device_bytes;
  changed.host_bytes = resources.host_bytes;
  changed.drives = resources.drives;
  changed.micro_batches = resources.micro_batches;
  if (changed.speeds) changed.speeds->machine.scale_drives(static_cast<double>(resources.drives) / options.drives);
  return changed;
}

namespace {

constexpr int kMostTried = 4096;  // micro-batches: plans for more take long

// Looks for it between numbers with which compute does not bind and with which it does.
class CriticalSearch {
 public:
  // `present`: of a plan made of these options, with which compute does not bind.
  CriticalSearch(const ModelSpec& model, const PlanOptions& options, const Prediction& present)
      : model_(model), options_(options), unbound_(options.micro_batches), estimate_(present.critical_micro_batches) {}

  std::optional<double> run() {
    int plans = 12;
    while (!bound_ && plans-- > 0) {
      if (!estimate_ || *estimate_ >= kMostTried) return estimate_;
      if (!look_at(std::max(unbound_, static_cast<int>(*estimate_)) + 1)) return std::nullopt;
    }
    if (!bound_) return estimate_;
    // Most often the one before is none; homes may have become better, too.
    for (int next = *bound_ - 1; next > unbound_ && plans-- > 0; next = unbound_ + (*bound_ - unbound_) / 2) {
      if (!look_at(next)) break;
    }
    const bool between = estimate_ && *estimate_ >= unbound_ && *estimate_ < *bound_;
    return between ? *estimate_ : *bound_ - 1;
  }

 private:
  bool look_at(int micro_batches) {
    options_.micro_batches = micro_batches;
    const std::optional<Plan> plan = find_plan(model_, options_);
    if (plan) see(predict(model_, *plan, *options_.speeds), micro_batches);
    return plan.has_value();
  }
  void see(const Prediction& prediction, int micro_batches) {
    if (prediction.binding == LaneGroup::kCompute) {
      bound_ = micro_batches;
    } else {
      unbound_ = micro_batches;
      estimate_ = prediction.critical_micro_batches;
    }
  }

  const ModelSpec& model_;
  PlanOptions options_;
  int unbound_;
  std::optional<int> bound_;
  std::optional<double> estimate_;  // with the homes of the plan for unbound_
};

}  // namespace

Prediction predict_with_critical_batch(const ModelSpec& model, const PlanOptions& options, const Plan& plan) {
  Prediction present = predict(model, plan, options.speeds.value());
  present.clipped_ms = clipped_step_ms(model, plan, *options.speeds);
  if (present.binding == LaneGroup::kCompute) return present;
  PlanOptions same_chunks = options;
  same_chunks.chunk_elements = plan.geometry.chunk_elements();
  present.critical_micro_batches = CriticalSearch(model, same_chunks, present).run();
  return present;
}

std::vector<Offer> what_would_help(const ModelSpec& model, const PlanOptions& options, const Plan& plan) {
  SLUICE_CHECK(options.speeds.has_value(), "a prediction starts from speeds");
  PlanOptions present = options;
  present.chunk_elements = plan.geometry.chunk_elements();
  std::vector<Offer> offers;
  for (const auto raised :
       {Offer::Raised::kHostMemory, Offer::Raised::kDeviceMemory, Offer::Raised::kDrives, Offer::Raised::kTokens}) {
    if (raised == Offer::Raised::kDrives && options.drives == kMaxDrives) continue;
    offers.push_back({.raised = raised, .resources = raise(resources_of(options), raised), .step_ms = {}});
  }
  const auto fill = [&](Offer& offer) {
    const PlanOptions changed = with_resources(present, offer.resources);
    const auto changed_plan = find_plan(model, changed);
    if (!changed_plan) return;
    offer.step_ms = changed_plan->busiest.value().step_ms;
    offer.micro_batches_per_s = offer.resources.micro_batches / *offer.step_ms * 1e3;
  };
  at_once(offers.size(), half_of_the_cores(), [&](size_t i) { fill(offers[i]); });  // seconds each for a large model
  std::stable_sort(offers.begin(), offers.end(),
                   [](const Offer& a, const Offer& b) { return a.micro_batches_per_s > b.micro_batches_per_s; });
  return offers;
}

}  // namespace sluice
