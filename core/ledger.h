// The ledger: every byte is charged to (tier, use). The table printed at the start and its peaks at the end come from
// here. Thread-safe: charges and releases may come from any thread.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

enum class Tier : uint8_t { kDevice, kHost, kNvme };
constexpr int kTierCount = 3;
std::string_view name_of(Tier tier);  // "device", "host", "nvme"

class Ledger {
 public:
  // A budget of -1 means none. Set before the first charge.
  void set_budget(Tier tier, int64_t bytes);
  int64_t budget(Tier tier) const;

  // Throws ConfigError when the tier's budget would be exceeded: a budget is a hard cap. The name of a use is for
  // people: "weights", "update ring", "workspace".
  void charge(Tier tier, std::string_view use, int64_t bytes);
  void release(Tier tier, std::string_view use, int64_t bytes);

  int64_t now(Tier tier) const;
  int64_t peak(Tier tier) const;
  struct Row {
    Tier tier;
    std::string use;
    int64_t now_bytes, peak_bytes;
  };
  std::vector<Row> rows() const;

 private:
  struct Account {
    int64_t now = 0, peak = 0;
  };
  mutable std::mutex mutex_;
  Account total_[kTierCount];
  int64_t budget_[kTierCount] = {-1, -1, -1};
  std::map<std::pair<Tier, std::string>, Account> uses_;
};

}  // namespace sluice
