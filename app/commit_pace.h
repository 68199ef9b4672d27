// When a run whose commits are many steps apart commits in between: steps may take longer than was predicted when
// `sluice.commit_interval: auto` chose the interval.
#pragma once
#include <cstdint>

#include "engine/plan.h"

namespace sluice {

class CommitPace {
 public:
  static constexpr auto kMostLostNs = static_cast<int64_t>(kMostLostMs * 1e6);

  explicit CommitPace(int64_t now_ns) : since_ns_(now_ns) {}
  // Asked before each step, with the last committed one: is it so long since the end of the step that is committed, or
  // is to be? A commit is durable when the step after it has ended: one that has come is of the time that was asked
  // before.
  bool is_due(int64_t now_ns, int64_t committed) {
    const bool came = committed != committed_;
    committed_ = committed;
    if (came) since_ns_ = asked_ns_;
    asked_ns_ = now_ns;
    if (now_ns - since_ns_ < kMostLostNs) return false;
    since_ns_ = now_ns;
    return true;
  }

 private:
  int64_t since_ns_, asked_ns_ = since_ns_, committed_ = -1;
};

}  // namespace sluice
