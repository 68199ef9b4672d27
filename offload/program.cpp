#include "offload/program.h"

#include <fmt/format.h>

#include <array>

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
  SLUICE_CHECK(first_successor_.empty(), "a program is finished");
  if (!hazards_) {
    hazards_ = std::make_unique<Hazards>();
    hops_.reserve(kFirstHops);
    first_predecessor_.reserve(kFirstHops);
    predecessors_.reserve(2 * kFirstHops);
  }
  const int id = static_cast<int>(hops_.size());
  const std::span<const int32_t> waits = hazards_->add(id, hop, reads, fills);
  predecessors_.insert(predecessors_.end(), waits.begin(), waits.end());
  first_predecessor_.push_back(static_cast<int32_t>(predecessors_.size()));
  hops_.push_back(hop);
  return id;
}

void Program::finish() {
  const int count = static_cast<int>(hops_.size());
  hazards_.reset();
  first_successor_.assign(count + 1, 0);
  for (int32_t p : predecessors_) ++first_successor_[p + 1];
  for (int i = 0; i < count; ++i) first_successor_[i + 1] += first_successor_[i];
  successors_.resize(predecessors_.size());
  std::vector<int32_t> next(first_successor_.begin(), first_successor_.end());
  std::array<size_t, kLaneCount> in_lane{};
  for (const Hop& hop : hops_) ++in_lane[static_cast<size_t>(hop.lane())];
  for (size_t lane = 0; lane < in_lane.size(); ++lane) lanes_[lane].reserve(in_lane[lane]);
  for (int hop = 0; hop < count; ++hop) {
    for (int32_t p : predecessors(hop)) successors_[next[p]++] = hop;
    lanes_[static_cast<int>(hops_[hop].lane())].push_back(hop);
  }
  hops_.shrink_to_fit();
  predecessors_.shrink_to_fit();
  first_predecessor_.shrink_to_fit();
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

std::string_view Program::category(const Hop& hop) {
  switch (hop.verb) {
    case Verb::kCompute:
      return "compute";
    case Verb::kUpdate:
      return "update";
    case Verb::kVerify:
    case Verb::kSeal:
      return "checksum";
    case Verb::kClose:
      return "gradient";
    case Verb::kClip:
    case Verb::kCommit:
      return "control";
    default:
      return name_of(hop.group);
  }
}

std::string Program::describe(const Hop& hop, std::string_view visit_name) {
  switch (hop.verb) {
    case Verb::kCompute:
      return fmt::format("compute {} #{}", visit_name, hop.micro_batch);
    case Verb::kClip:
    case Verb::kCommit:
      return std::string(name_of(hop.verb));
    case Verb::kClose:
      return fmt::format("close {} partition {}", visit_name, hop.partition);
    default:
      if (hop.group == Group::kActivations)
        return fmt::format("{} {} tensor {}", name_of(hop.verb), visit_name, hop.tensor_number);
      return fmt::format("{} {} {} {}", name_of(hop.verb), visit_name, name_of(hop.group),
                         hop.visit < 0 ? hop.chunk : hop.partition);
  }
}

}  // namespace sluice
