// Follows how often the clip engages, and decides from that whether the next step may update chunks before its scale is
// known. A wrong prediction costs the update's I/O twice, so early updates pay where fewer than a fourth of the steps
// are clipped. A run begins with updates that wait: its first steps are those that are clipped most. No bit depends on
// it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace sluice {

class Speculation {
 public:
  static constexpr int kWindow = 8;        // steps that are looked at
  static constexpr int kTooManyWrong = 2;  // of them: updates wait for the scale. None: they run early
  static constexpr int kFirst = 2;  // steps of a run, none of them clipped: updates run early before a whole window

  enum class Choice : uint8_t { kDeferred, kSpeculative };
  Choice next() const { return choice_; }
  enum class Scale : uint8_t { kAsPredicted, kOther };
  // What a step's scale was, whether or not anything was updated early. Returns a line for the log where the choice
  // changes.
  std::optional<std::string> note(int64_t step, Scale scale);

 private:
  uint32_t wrong_ = 0;  // a bit for each of the last steps, the newest lowest
  int seen_ = 0;
  Choice choice_ = Choice::kDeferred;
};

}  // namespace sluice
