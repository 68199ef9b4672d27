// Every state that a power cut can leave of recorded traffic. At each point of it a drive holds what a completed sync
// covered (a sync covers the writes whose completion was told before it was issued), and of the writes after that any
// subset, each of them whole or torn. Up to ten such writes all subsets are gone through; beyond that, seeded samples.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/fakes/recorded_drives.h"

namespace sluice {

// What a store may open at: kMay adds a step, kMust leaves only that one. -1: nothing opens.
struct StepMark {
  enum class Kind : uint8_t { kMay, kMust } kind = Kind::kMay;
  size_t events = 0;  // from a cut after so many events on
  int64_t step = 0;
};

struct CrashState {
  std::shared_ptr<RecordedDrives> drives;  // taken back after the visit
  const std::set<int64_t>& allowed;
  std::string description;
};

class CrashExplorer {
 public:
  using Visit = std::function<void(const CrashState&)>;

  // The marks are in the order of their events. Copies of the traffic only.
  // every_nth: one of so many states is visited, for builds in which a visit takes long.
  CrashExplorer(const RecordedDrives& recorded, std::vector<StepMark> marks, int every_nth = 1);
  // States visited.
  int64_t explore(const Visit& visit);

 private:
  enum class Torn : uint8_t { kNot, kAtSectors, kAtBlocks };

  void take(size_t event);
  void visit_subsets(size_t cut, const Visit& visit);
  void visit_state(size_t cut, const std::vector<size_t>& survivors, Torn torn, const Visit& visit);
  void apply_torn(const DriveEvent& write, int64_t unit_bytes);

  const std::vector<DriveEvent>& events_;
  std::vector<StepMark> marks_;
  std::shared_ptr<RecordedDrives> drives_ = std::make_shared<RecordedDrives>();
  std::vector<size_t> unsynced_;                                  // writes, in the order in which they were issued
  std::set<size_t> done_;                                         // of them those whose completion was told
  std::vector<std::pair<size_t, std::vector<size_t>>> covering_;  // syncs under way and the writes they cover
  std::set<int64_t> allowed_ = {-1};
  size_t next_mark_ = 0;
  int64_t states_ = 0, visited_ = 0;
  int every_nth_;
  std::mt19937_64 random_{7};
};

}  // namespace sluice
