#include "tests/fakes/crash_explorer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

constexpr size_t kExhaustiveWrites = 10;
constexpr int kSamples = 64;
constexpr int64_t kBlockBytes = 4096;

}  // namespace

CrashExplorer::CrashExplorer(const RecordedDrives& recorded, std::vector<StepMark> marks, int every_nth)
    : events_(recorded.events), marks_(std::move(marks)), every_nth_(every_nth) {
  drives_->record = RecordedDrives::Record::kNo;
  drives_->paths = recorded.paths;
  drives_->images.resize(recorded.images.size());
  for (DriveImage& image : drives_->images) image.mark();
}

int64_t CrashExplorer::explore(const Visit& visit) {
  for (size_t cut = 1; cut <= events_.size(); ++cut) {
    take(cut - 1);
    bool marked = false;
    for (; next_mark_ < marks_.size() && marks_[next_mark_].events <= cut; ++next_mark_, marked = true) {
      if (marks_[next_mark_].kind == StepMark::Kind::kMust) allowed_.clear();
      allowed_.insert(marks_[next_mark_].step);
    }
    // In between, a cut leaves nothing that an earlier one has not left.
    if (marked || events_[cut - 1].kind == DriveEvent::Kind::kWrite) visit_subsets(cut, visit);
  }
  return visited_;
}

void CrashExplorer::take(size_t at) {
  const DriveEvent& event = events_[at];
  switch (event.kind) {
    case DriveEvent::Kind::kWrite:
      unsynced_.push_back(at);
      return;
    case DriveEvent::Kind::kWriteDone:
      done_.insert(event.request);
      return;
    case DriveEvent::Kind::kSync: {
      std::vector<size_t> covered;
      std::copy_if(unsynced_.begin(), unsynced_.end(), std::back_inserter(covered),
                   [&](size_t write) { return events_[write].drive == event.drive && done_.contains(write); });
      covering_.emplace_back(at, std::move(covered));
      return;
    }
    case DriveEvent::Kind::kSyncDone: {
      const auto sync = std::find_if(covering_.begin(), covering_.end(),
                                     [&](const auto& each) { return each.first == event.request; });
      for (size_t write : sync->second) {
        drives_->images[event.drive].write(events_[write].offset, events_[write].bytes);
        std::erase(unsynced_, write);
      }
      drives_->images[event.drive].mark();
      covering_.erase(sync);
      return;
    }
  }
}

// Subsets without the newest write were gone through at the cut before it, unless the marks have changed since.
void CrashExplorer::visit_subsets(size_t cut, const Visit& visit) {
  const bool all = events_[cut - 1].kind != DriveEvent::Kind::kWrite || unsynced_.size() <= 1;
  const size_t free = all ? unsynced_.size() : unsynced_.size() - 1;
  const bool exhaustive = unsynced_.size() <= kExhaustiveWrites;
  const uint64_t count = exhaustive ? uint64_t{1} << free : kSamples;
  for (uint64_t i = 0; i < count; ++i) {
    // Samples of three densities: few, half and most of the writes survive.
    const uint64_t density = exhaustive ? 0 : 1 + random_() % 3;
    std::vector<size_t> survivors;
    for (size_t bit = 0; bit < free; ++bit) {
      const bool survives = exhaustive ? (i >> bit & 1) != 0 : random_() % 4 < density;
      if (survives) survivors.push_back(unsynced_[bit]);
    }
    if (!all) survivors.push_back(unsynced_.back());
    visit_state(cut, survivors, Torn::kNot, visit);
    if (survivors.empty()) continue;
    visit_state(cut, survivors, Torn::kAtSectors, visit);
    const bool has_blocks = std::any_of(survivors.begin(), survivors.end(), [&](size_t write) {
      return static_cast<int64_t>(events_[write].bytes.size()) > kBlockBytes;
    });
    if (has_blocks) visit_state(cut, survivors, Torn::kAtBlocks, visit);
  }
}

void CrashExplorer::visit_state(size_t cut, const std::vector<size_t>& survivors, Torn torn, const Visit& visit) {
  if (states_++ % every_nth_ != 0) return;
  ++visited_;
  const size_t surely_torn = torn == Torn::kNot ? survivors.size() : random_() % survivors.size();
  for (size_t i = 0; i < survivors.size(); ++i) {
    const DriveEvent& write = events_[survivors[i]];
    if (torn == Torn::kNot || (i != surely_torn && random_() % 2 == 0)) {
      drives_->images[write.drive].write(write.offset, write.bytes);
    } else {
      apply_torn(write, torn == Torn::kAtSectors ? kSectorBytes : kBlockBytes);
    }
  }
  visit({.drives = drives_,
         .allowed = allowed_,
         .description = fmt::format("cut after event {}, torn {}, surviving writes {}", cut, static_cast<int>(torn),
                                    fmt::join(survivors, " "))});
  for (DriveImage& image : drives_->images) image.undo();
}

// Half of the tears keep the first units, the other half any of them.
void CrashExplorer::apply_torn(const DriveEvent& write, int64_t unit_bytes) {
  const auto bytes = static_cast<int64_t>(write.bytes.size());
  const int64_t units = (bytes + unit_bytes - 1) / unit_bytes;
  const bool first_ones = random_() % 2 == 0;
  const auto kept = static_cast<int64_t>(random_() % static_cast<uint64_t>(units));
  for (int64_t unit = 0; unit < units; ++unit) {
    if (first_ones ? unit >= kept : random_() % 2 == 0) continue;
    const int64_t at = unit * unit_bytes;
    const auto length = static_cast<size_t>(std::min(unit_bytes, bytes - at));
    drives_->images[write.drive].write(write.offset + at,
                                       std::span(write.bytes).subspan(static_cast<size_t>(at), length));
  }
}

}  // namespace sluice
