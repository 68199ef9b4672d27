#include "offload/program.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/errors.h"

namespace sluice {

std::string_view name_of(Lane lane) {
  constexpr std::string_view kNames[] = {"read", "write", "upload", "download", "compute", "update"};
  return kNames[static_cast<int>(lane)];
}

std::string_view name_of(Verb verb) {
  constexpr std::string_view kNames[] = {"swap_in", "swap_out", "upload", "download", "compute", "update",
                                         "verify",  "seal",     "close",  "clip",     "commit"};
  return kNames[static_cast<int>(verb)];
}

int Program::emit(const Hop& hop, std::span<const Range> reads, std::span<const Range> fills) {
  const int id = static_cast<int>(hops_.size());
  waits_.clear();
  for (const Range& range : reads) read(range, id, hop);
  for (const Range& range : fills) fill(range, id);
  std::sort(waits_.begin(), waits_.end());
  waits_.erase(std::unique(waits_.begin(), waits_.end()), waits_.end());
  predecessors_.insert(predecessors_.end(), waits_.begin(), waits_.end());
  first_predecessor_.push_back(static_cast<int32_t>(predecessors_.size()));
  hops_.push_back(hop);
  return id;
}

void Program::wait_for(int32_t predecessor, int hop) {
  if (predecessor >= 0 && predecessor != hop) waits_.push_back(predecessor);
}

void Program::wait_for_all(const Segment& users, int hop) {
  wait_for(users.writer, hop);
  for (int32_t at = users.last_reader; at >= 0; at = readers_[at].before) wait_for(readers_[at].hop, hop);
}

// Makes a segment begin at `at` if one spans it; returns the first segment that begins at or after `at`.
Program::Segments::iterator Program::split(Segments& segments, int64_t at) {
  auto next = segments.lower_bound(at);
  if (next != segments.end() && next->first == at) return next;
  if (next == segments.begin()) return next;
  auto before = std::prev(next);
  if (before->second.end <= at) return next;
  const Segment tail = before->second;
  before->second.end = at;
  return segments.emplace_hint(next, at, tail);
}

// Nearly every range is one that was named before: then there is nothing to split or to join.
Program::Segment* Program::exactly(const Range& range) {
  Segments& segments = segments_[static_cast<int>(range.place)];
  const auto found = segments.find(range.begin);
  return found != segments.end() && found->second.end == range.end ? &found->second : nullptr;
}

void Program::read(Segment& segment, int64_t at, const Range& range, int hop, const Hop& what) {
  if (range.content != 0 && segment.content != 0 && segment.content != range.content) {
    check_failed("content", __FILE__, __LINE__,
                 fmt::format("hop {} ({}) reads bytes {}..{} of place {} after they were overwritten", hop,
                             describe(what, ""), at, segment.end, static_cast<int>(range.place)));
  }
  wait_for(segment.writer, hop);
  if (segment.last_reader >= 0 && readers_[segment.last_reader].hop == hop) return;
  readers_.push_back({.hop = hop, .before = segment.last_reader});
  segment.last_reader = static_cast<int32_t>(readers_.size()) - 1;
}

void Program::read(const Range& range, int hop, const Hop& what) {
  SLUICE_CHECK(range.begin < range.end, "an empty range is read");
  if (Segment* segment = exactly(range)) return read(*segment, range.begin, range, hop, what);
  Segments& segments = segments_[static_cast<int>(range.place)];
  auto it = split(segments, range.begin);
  split(segments, range.end);
  int64_t at = range.begin;
  while (at < range.end) {
    if (it == segments.end() || it->first > at) {  // bytes that no hop of this unit has touched yet
      const int64_t end = it == segments.end() ? range.end : std::min(range.end, it->first);
      it = segments.emplace_hint(it, at, Segment{.end = end, .content = range.content});
    }
    read(it->second, at, range, hop, what);
    at = it->second.end;
    ++it;
  }
}

void Program::fill(const Range& range, int hop) {
  SLUICE_CHECK(range.begin < range.end, "an empty range is filled");
  if (Segment* segment = exactly(range)) {
    wait_for_all(*segment, hop);
    segment->writer = hop;
    segment->content = range.content;
    segment->last_reader = -1;
    return;
  }
  Segments& segments = segments_[static_cast<int>(range.place)];
  auto first = split(segments, range.begin);
  auto last = split(segments, range.end);
  first = segments.lower_bound(range.begin);
  for (auto it = first; it != last; ++it) wait_for_all(it->second, hop);
  segments.erase(first, last);
  segments.emplace(range.begin, Segment{.end = range.end, .content = range.content, .writer = hop});
}

void Program::finish() {
  const int count = static_cast<int>(hops_.size());
  for (auto& segments : segments_) segments.clear();
  readers_ = std::vector<Reader>();
  waits_ = std::vector<int32_t>();
  first_successor_.assign(count + 1, 0);
  for (int32_t p : predecessors_) ++first_successor_[p + 1];
  for (int i = 0; i < count; ++i) first_successor_[i + 1] += first_successor_[i];
  successors_.resize(predecessors_.size());
  std::vector<int32_t> next(first_successor_.begin(), first_successor_.end());
  for (int hop = 0; hop < count; ++hop) {
    for (int32_t p : predecessors(hop)) successors_[next[p]++] = hop;
    lanes_[static_cast<int>(hops_[hop].lane)].push_back(hop);
  }
  hops_.shrink_to_fit();
  predecessors_.shrink_to_fit();
  first_predecessor_.shrink_to_fit();
  for (auto& lane : lanes_) lane.shrink_to_fit();
}

std::span<const int32_t> Program::slice(const std::vector<int32_t>& items, const std::vector<int32_t>& first, int hop) {
  return std::span(items).subspan(first[hop], first[hop + 1] - first[hop]);
}

int64_t Program::memory_bytes() const {
  int64_t bytes = static_cast<int64_t>(hops_.capacity() * sizeof(Hop));
  for (const auto* list : {&first_predecessor_, &predecessors_, &first_successor_, &successors_}) {
    bytes += static_cast<int64_t>(list->capacity() * sizeof(int32_t));
  }
  for (const auto& lane : lanes_) bytes += static_cast<int64_t>(lane.capacity() * sizeof(int32_t));
  return bytes;
}

std::string Program::describe(const Hop& hop, std::string_view visit_name) {
  switch (hop.verb) {
    case Verb::kCompute:
      return fmt::format("compute {} #{}", visit_name, hop.index);
    case Verb::kClip:
    case Verb::kCommit:
      return std::string(name_of(hop.verb));
    case Verb::kClose:
      return fmt::format("close {} partition {}", visit_name, hop.index);
    default:
      if (hop.group == Group::kActivations)
        return fmt::format("{} {} tensor {}", name_of(hop.verb), visit_name, hop.index);
      return fmt::format("{} {} {} {}", name_of(hop.verb), visit_name, name_of(hop.group), hop.index);
  }
}

}  // namespace sluice
