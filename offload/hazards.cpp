#include "offload/hazards.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/errors.h"
#include "offload/program.h"

namespace sluice {

std::span<const int32_t> Hazards::add(int id, const Hop& hop, std::span<const Range> reads,
                                      std::span<const Range> fills) {
  waits_.clear();
  for (const Range& range : reads) read(range, {id, hop});
  for (const Range& range : fills) fill(range, id);
  std::sort(waits_.begin(), waits_.end());
  waits_.erase(std::unique(waits_.begin(), waits_.end()), waits_.end());
  return waits_;
}

void Hazards::wait_for(int32_t predecessor, int hop) {
  if (predecessor >= 0 && predecessor != hop) waits_.push_back(predecessor);
}

void Hazards::wait_for_all(const Segment& users, int hop) {
  wait_for(users.writer, hop);
  for (int32_t at = users.last_reader; at >= 0; at = readers_[at].before) wait_for(readers_[at].hop, hop);
}

Hazards::Segments::iterator Hazards::Arena::split(int64_t at) {
  auto next = segments.lower_bound(at);
  if (next != segments.end() && next->first == at) return next;
  if (next == segments.begin()) return next;
  auto before = std::prev(next);
  if (before->second.end <= at) return next;
  const Segment tail = before->second;
  before->second.end = at;
  return segments.emplace_hint(next, at, tail);
}

Hazards::Segment* Hazards::Arena::beginning(int64_t at) {
  Known& last = known_at(at);
  if (last.segment != nullptr && last.begin == at) return last.segment;
  const auto found = segments.find(at);
  if (found == segments.end()) return nullptr;
  last = {at, &found->second};
  return last.segment;
}

// Nearly every range is one that was named before: then there is nothing to split or to join.
Hazards::Segment* Hazards::Arena::exactly(const Range& range) {
  Segment* const segment = beginning(range.begin);
  return segment != nullptr && segment->end == range.end ? segment : nullptr;
}

void Hazards::Arena::forget(const Segments::value_type& segment) {
  Known& last = known_at(segment.first);
  if (last.segment == &segment.second) last = {};
}

// Nothing: the place has numbers.
Hazards::Arena* Hazards::arena_of(Place place) {
  return place == Place::kHost ? &host_ : place == Place::kDevice ? &device_ : nullptr;
}

std::span<Hazards::Segment> Hazards::numbers(const Range& range) {
  std::pmr::vector<Segment>& all = numbers_[static_cast<size_t>(range.place)];
  if (static_cast<int64_t>(all.size()) < range.end) all.resize(static_cast<size_t>(range.end));
  return std::span(all).subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.end - range.begin));
}

void Hazards::read(const Range& range, const User& by) {
  SLUICE_CHECK(range.begin < range.end, "an empty range is read");
  if (Arena* arena = arena_of(range.place)) return read(*arena, range, by);
  int64_t at = range.begin;
  for (Segment& number : numbers(range)) {
    if (number.end == 0) number = {.end = at + 1, .content = range.content};
    read(number, at++, range, by);
  }
}

void Hazards::read(Arena& arena, const Range& range, const User& by) {
  if (Segment* segment = arena.exactly(range)) return read(*segment, range.begin, range, by);
  Segments& segments = arena.segments;
  auto it = arena.split(range.begin);
  arena.split(range.end);
  int64_t at = range.begin;
  while (at < range.end) {
    if (it == segments.end() || it->first > at) {
      const int64_t end = it == segments.end() ? range.end : std::min(range.end, it->first);
      it = segments.emplace_hint(it, at, Segment{.end = end, .content = range.content});
    }
    read(it->second, at, range, by);
    at = it->second.end;
    ++it;
  }
}

void Hazards::read(Segment& segment, int64_t at, const Range& range, const User& by) {
  if (range.content != 0 && segment.content != 0 && segment.content != range.content) {
    check_failed("content", __FILE__, __LINE__,
                 fmt::format("hop {} ({}) reads bytes {}..{} of place {} after they were overwritten", by.id,
                             Program::describe(by.hop, ""), at, segment.end, static_cast<int>(range.place)));
  }
  wait_for(segment.writer, by.id);
  if (segment.last_reader >= 0 && readers_[segment.last_reader].hop == by.id) return;
  readers_.push_back({.hop = by.id, .before = segment.last_reader});
  segment.last_reader = static_cast<int32_t>(readers_.size()) - 1;
}

void Hazards::fill(const Range& range, int hop) {
  SLUICE_CHECK(range.begin < range.end, "an empty range is filled");
  if (Arena* arena = arena_of(range.place)) return fill(*arena, range, hop);
  int64_t at = range.begin;
  for (Segment& number : numbers(range)) {
    number.end = ++at;
    fill(number, range, hop);
  }
}

void Hazards::fill(Arena& arena, const Range& range, int hop) {
  if (Segment* segment = arena.exactly(range)) return fill(*segment, range, hop);
  Segments& segments = arena.segments;
  const auto first = arena.split(range.begin), last = arena.split(range.end);
  for (auto it = first; it != last; ++it) {
    wait_for_all(it->second, hop);
    arena.forget(*it);
  }
  segments.erase(first, last);
  segments.emplace_hint(last, range.begin, Segment{.end = range.end, .content = range.content, .writer = hop});
}

void Hazards::fill(Segment& segment, const Range& range, int hop) {
  wait_for_all(segment, hop);
  segment.content = range.content;
  segment.writer = hop;
  segment.last_reader = -1;
}

}  // namespace sluice
