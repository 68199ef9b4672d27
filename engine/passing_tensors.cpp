#include "engine/passing_tensors.h"

#include <algorithm>
#include <utility>

#include "core/bytes.h"

namespace sluice {

int64_t passing_bytes(const ModelSpec& model, const Plan& plan) {
  int64_t most = 0;
  for (const VisitSpec& visit : model.visits) {
    int64_t bytes = 0;
    for (const auto* tensors : {&visit.takes, &visit.gives}) {
      for (const int t : *tensors) {
        for (int m = 0; m < plan.options.micro_batches; ++m) {
          if (plan.tensor(t, m).home == Home::kNvme) bytes += round_up(model.tensors[t].bytes(), kPlaneAlignmentBytes);
        }
      }
    }
    most = std::max(most, bytes);
  }
  return most;
}

PassingTensors::PassingTensors(const PlannedModel& planned, Verbs& verbs, UnitKind kind)
    : model_(planned.model),
      uses_(planned.uses),
      verbs_(verbs),
      trains_(kind != UnitKind::kEvaluate),
      writes_later_(planned.plan.host_boundary.bytes >= passing_bytes(planned.model, planned.plan)),
      ring_(planned.plan.host_boundary.offset, planned.plan.host_boundary.bytes) {}

int64_t PassingTensors::key(const TensorMove& tensor) const {
  return 2 * verbs_.number(tensor.tensor, tensor.micro_batch) + (tensor.content == Content::kTensorGradient ? 1 : 0);
}

PassingTensors::Entry* PassingTensors::find(const TensorMove& tensor) {
  const auto found = number_.find(key(tensor));
  return found == number_.end() ? nullptr : &entries_[found->second - first_];
}

// How many entries the next buffer of so many bytes takes the place of. Where it begins the ring anew, those at the
// ring's end are as good as lost: they are the next in any case.
size_t PassingTensors::leaving(int64_t bytes) const {
  if (entries_.empty()) return 0;
  const int64_t at = ring_.peek(bytes), last = entries_.back().tensor.at;
  size_t count = 0;
  if (at <= last) {
    while (count < entries_.size() && entries_[count].tensor.at > last) ++count;
  }
  const auto overlaps = [&](const Entry& entry) { return entry.tensor.at >= at && entry.tensor.at < at + bytes; };
  while (count < entries_.size() && overlaps(entries_[count])) ++count;
  return count;
}

// A buffer for it. What leaves and will be read again is written.
int64_t PassingTensors::make_room(const TensorMove& tensor) {
  const int64_t bytes = verbs_.tensor_buffer_bytes(tensor);
  for (size_t count = leaving(bytes); count > 0; --count) {
    Entry& oldest = entries_.front();
    if (oldest.wanted && !oldest.written) write(oldest);
    const auto found = number_.find(key(oldest.tensor.tensor));
    if (found != number_.end() && found->second == first_) number_.erase(found);
    entries_.pop_front();
    ++first_;
  }
  return ring_.take(bytes);
}

PassingTensors::Entry& PassingTensors::enter(TensorInHost tensor) {
  number_[key(tensor.tensor)] = first_ + entries_.size();
  return entries_.emplace_back(Entry{.tensor = std::move(tensor)});
}

void PassingTensors::write(Entry& entry) {
  verbs_.swap_out(verbs_.seal(entry.tensor));
  entry.written = true;
}

// By another visit, once this one has it on the device. A gradient's last reader is who gave the tensor first.
bool PassingTensors::still_wanted(const TensorMove& brought) const {
  if (brought.content == Content::kTensorGradient) return brought.visit != uses_.first_giver[brought.tensor];
  return trains_ ? !read_once(brought) : brought.visit != uses_.last_taker[brought.tensor];
}

// The last visit runs its forward and its backward in one.
bool PassingTensors::read_once(const TensorMove& tensor) const {
  return !uses_.shared_tensor(tensor.tensor) &&
         uses_.last_taker[tensor.tensor] + 1 == static_cast<int>(model_.visits.size());
}

void PassingTensors::bring(const TensorMove& tensor) {
  Entry* entry = find(tensor);
  if (entry == nullptr) entry = &read(tensor);
  verbs_.upload(entry->tensor, tensor);
  entry->read = true;
  entry->wanted = still_wanted(tensor);
  if (tensor.content == Content::kTensor && !entry->came_back && tensor.visit == uses_.last_taker[tensor.tensor]) {
    number_.erase(key(tensor));
  }
}

// Who rewrites a tensor finds its buffer.
void PassingTensors::take_home(const TensorMove& tensor) {
  Entry* entry = find(tensor);
  TensorInHost taken = verbs_.download(tensor, entry != nullptr ? entry->tensor.at : make_room(tensor));
  if (entry == nullptr) {
    entry = &enter(std::move(taken));
  } else {
    *entry = {.tensor = std::move(taken)};
  }
  next_to_write_ = std::min(next_to_write_, number_[key(tensor)]);
  if (!writes_later_) write(*entry);
}

bool PassingTensors::read_ahead(const TensorMove& tensor) {
  if (find(tensor) != nullptr) return true;
  const auto end = entries_.begin() + static_cast<std::ptrdiff_t>(leaving(verbs_.tensor_buffer_bytes(tensor)));
  if (std::any_of(entries_.begin(), end,
                  [](const Entry& entry) { return entry.wanted && !(entry.read && entry.written); })) {
    return false;
  }
  read(tensor);
  return true;
}

PassingTensors::Entry& PassingTensors::read(const TensorMove& tensor) {
  Entry& entry = enter(verbs_.verify(verbs_.swap_in(tensor, make_room(tensor))));
  entry.written = entry.came_back = true;
  return entry;
}

void PassingTensors::write_waiting() {
  if (!trains_) return;
  for (size_t i = std::max(next_to_write_, first_) - first_; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    const TensorMove& tensor = entry.tensor.tensor;
    const bool is_last = tensor.visit == uses_.last_giver[tensor.tensor];  // else it is rewritten
    const bool comes_back = tensor.content == Content::kTensor && is_last && !read_once(tensor);
    if (comes_back && !entry.written) write(entry);
  }
  next_to_write_ = first_ + entries_.size();
}

}  // namespace sluice
