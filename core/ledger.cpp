#include "core/ledger.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/bytes.h"
#include "core/errors.h"

namespace sluice {

std::string_view name_of(Tier tier) {
  switch (tier) {
    case Tier::kDevice:
      return "device";
    case Tier::kHost:
      return "host";
    case Tier::kNvme:
      return "nvme";
  }
  SLUICE_CHECK(false, "unknown tier");
  return {};
}

void Ledger::set_budget(Tier tier, int64_t bytes) {
  std::lock_guard lock(mutex_);
  SLUICE_CHECK(total_[static_cast<int>(tier)].peak == 0, "a budget is set before the first charge");
  budget_[static_cast<int>(tier)] = bytes;
}

int64_t Ledger::budget(Tier tier) const {
  std::lock_guard lock(mutex_);
  return budget_[static_cast<int>(tier)];
}

void Ledger::charge(Tier tier, std::string_view use, int64_t bytes) {
  SLUICE_CHECK(bytes >= 0, "a charge is not negative");
  std::lock_guard lock(mutex_);
  Account& total = total_[static_cast<int>(tier)];
  const int64_t budget = budget_[static_cast<int>(tier)];
  if (budget >= 0 && bytes > budget - total.now) {
    throw ConfigError(fmt::format(
        "the {} budget of {} bytes ({}) cannot hold {} bytes more for {}: {} bytes are taken; raise the budget by {} "
        "bytes",
        name_of(tier), budget, format_bytes(budget), bytes, use, total.now, bytes - (budget - total.now)));
  }
  Account& account = uses_[{tier, std::string(use)}];
  for (Account* each : {&total, &account}) {
    each->now += bytes;
    each->peak = std::max(each->peak, each->now);
  }
}

void Ledger::release(Tier tier, std::string_view use, int64_t bytes) {
  std::lock_guard lock(mutex_);
  const auto found = uses_.find({tier, std::string(use)});
  SLUICE_CHECK(found != uses_.end() && bytes >= 0 && bytes <= found->second.now, "more is released than was charged");
  found->second.now -= bytes;
  total_[static_cast<int>(tier)].now -= bytes;
}

int64_t Ledger::now(Tier tier) const {
  std::lock_guard lock(mutex_);
  return total_[static_cast<int>(tier)].now;
}

int64_t Ledger::peak(Tier tier) const {
  std::lock_guard lock(mutex_);
  return total_[static_cast<int>(tier)].peak;
}

std::vector<Ledger::Row> Ledger::rows() const {
  std::lock_guard lock(mutex_);
  std::vector<Row> rows;
  for (const auto& [key, account] : uses_) {
    rows.push_back({.tier = key.first, .use = key.second, .now_bytes = account.now, .peak_bytes = account.peak});
  }
  return rows;
}

}  // namespace sluice
