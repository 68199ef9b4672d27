#include "engine/open_slots.h"

#include <algorithm>

namespace sluice {
namespace {

struct Sum {
  int from = 0, to = 0;  // visits; the backward goes from the higher to the lower
  int64_t elements = 0;
  int* slot = nullptr;  // of it, in the plan
};

}  // namespace

void assign_open_slots(const ModelSpec& model, const ModelUses& uses, Plan& plan) {
  const int micro_batches = plan.options.micro_batches;
  plan.tensor_open_slots.assign(model.tensors.size() * static_cast<size_t>(micro_batches), -1);
  plan.partition_open_slots.assign(model.partitions.size(), -1);
  std::vector<Sum> sums;
  for (size_t t = 0; t < model.tensors.size(); ++t) {
    if (!uses.shared_tensor(static_cast<int>(t))) continue;
    for (int m = 0; m < micro_batches; ++m) {
      int* const slot = &plan.tensor_open_slots[t * static_cast<size_t>(micro_batches) + static_cast<size_t>(m)];
      sums.push_back({uses.last_taker[t], uses.first_giver[t], model.tensors[t].elements, slot});
    }
  }
  for (size_t p = 0; p < model.partitions.size(); ++p) {
    if (!uses.shared_partition(static_cast<int>(p))) continue;
    const int64_t elements = plan.geometry.partitions()[p].elements;
    sums.push_back({uses.last_visit[p], uses.first_visit[p], elements, &plan.partition_open_slots[p]});
  }
  std::stable_sort(sums.begin(), sums.end(), [](const Sum& a, const Sum& b) { return a.from > b.from; });
  std::vector<int> free_below;  // per slot: the visit at which its last sum ended
  plan.open_slots.clear();
  for (const Sum& sum : sums) {
    size_t slot = 0;
    while (slot < free_below.size() &&
           (plan.open_slots[slot].elements != sum.elements || free_below[slot] <= sum.from)) {
      ++slot;
    }
    if (slot == free_below.size()) {
      plan.open_slots.push_back({.elements = sum.elements});
      free_below.push_back(0);
    }
    free_below[slot] = sum.to;
    *sum.slot = static_cast<int>(slot);
  }
}

}  // namespace sluice
