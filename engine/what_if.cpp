#include "engine/what_if.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

#include "core/errors.h"
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
  if (changed.speeds) {
    MachineSpeeds& machine = changed.speeds->machine;
    const double more = static_cast<double>(resources.drives) / options.drives;
    for (double* speed : {&machine.read_gb_per_s, &machine.write_gb_per_s, &machine.mixed_gb_per_s}) *speed *= more;
  }
  return changed;
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
  // Plans of large models take seconds each. Half of the cores: others may be at work, or be measured.
  const auto worker_count = std::clamp<size_t>(std::thread::hardware_concurrency() / 2, 1, offers.size());
  std::atomic<size_t> next = 0;
  std::vector<std::future<void>> workers;
  while (workers.size() < worker_count) {
    workers.push_back(std::async(std::launch::async, [&] {
      for (size_t i = next++; i < offers.size(); i = next++) fill(offers[i]);
    }));
  }
  for (std::future<void>& each : workers) each.get();
  std::stable_sort(offers.begin(), offers.end(),
                   [](const Offer& a, const Offer& b) { return a.micro_batches_per_s > b.micro_batches_per_s; });
  return offers;
}

}  // namespace sluice
