#include "libtorch/workspace.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/errors.h"

namespace sluice {
namespace {

constexpr size_t kMaxPieces = 4096;

struct Piece {
  int64_t offset = 0;
  int64_t bytes = 0;
  bool used = false;
};

// The live workspaces of the process: frees name an address and nothing else.
struct Registry {
  std::mutex mutex;
  std::vector<std::shared_ptr<Workspace::State>> states;
};
Registry& registry() {
  static Registry* const kRegistry = new Registry;  // never destroyed: tensors may be freed during exit
  return *kRegistry;
}

}  // namespace

struct Workspace::State {
  std::byte* base = nullptr;
  int64_t bytes = 0;
  mutable std::mutex mutex;
  std::vector<Piece> pieces;  // by offset, without gaps; never two free neighbours
  int64_t in_use = 0, high_water = 0;
  bool orphaned = false;

  bool contains(const void* address) const { return address >= base && address < base + bytes; }
  size_t find_hole(int64_t wanted) const;
  std::byte* take(int64_t wanted);
  void release(std::byte* address);
};

size_t Workspace::State::find_hole(int64_t wanted) const {
  const size_t last = pieces.size() - 1;
  size_t best = pieces.size();
  int64_t best_bytes = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < last; ++i) {
    const Piece& piece = pieces[i];
    if (!piece.used && piece.bytes >= wanted && piece.bytes < best_bytes) best = i, best_bytes = piece.bytes;
  }
  if (best != pieces.size()) return best;
  return !pieces[last].used && pieces[last].bytes >= wanted ? last : pieces.size();
}

std::byte* Workspace::State::take(int64_t wanted) {
  const int64_t rounded = round_up(std::max<int64_t>(wanted, 1), kAlignmentBytes);
  const std::lock_guard lock(mutex);
  const size_t at = pieces.empty() ? 0 : find_hole(rounded);
  if (at == pieces.size()) {
    throw DeviceError("the device's workspace is full: " + std::to_string(wanted) + " bytes wanted, " +
                      std::to_string(in_use) + " of " + std::to_string(bytes) +
                      " in use; lower train_micro_batch_size_per_gpu, "
                      "data.sequence_length or sluice.loss_tile_tokens");
  }
  Piece& piece = pieces[at];
  const Piece rest{piece.offset + rounded, piece.bytes - rounded, false};
  piece.bytes = rounded;
  piece.used = true;
  std::byte* const address = base + piece.offset;
  in_use += rounded;
  high_water = std::max(high_water, rest.offset);
  if (rest.bytes > 0) pieces.insert(pieces.begin() + static_cast<std::ptrdiff_t>(at) + 1, rest);
  return address;
}

void Workspace::State::release(std::byte* address) {
  const int64_t offset = address - base;
  const std::lock_guard lock(mutex);
  auto piece = std::lower_bound(pieces.begin(), pieces.end(), offset,
                                [](const Piece& p, int64_t wanted) { return p.offset < wanted; });
  SLUICE_CHECK(piece != pieces.end() && piece->offset == offset && piece->used,
               "a block was given back that the workspace did not hand out");
  in_use -= piece->bytes;
  piece->used = false;
  if (auto next = std::next(piece); next != pieces.end() && !next->used) {
    piece->bytes += next->bytes;
    pieces.erase(next);
  }
  if (piece != pieces.begin() && !std::prev(piece)->used) {
    std::prev(piece)->bytes += piece->bytes;
    pieces.erase(piece);
  }
}

Workspace::Workspace(std::span<std::byte> memory) : state_(std::make_shared<State>()) {
  SLUICE_CHECK(reinterpret_cast<uintptr_t>(memory.data()) % kAlignmentBytes == 0, "the workspace must be aligned");
  state_->base = memory.data();
  state_->bytes = static_cast<int64_t>(memory.size()) / kAlignmentBytes * kAlignmentBytes;
  state_->pieces.reserve(kMaxPieces);
  if (state_->bytes > 0) state_->pieces.push_back({0, state_->bytes, false});
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.states.push_back(state_);
}

Workspace::~Workspace() {
  if (!state_) return;
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const std::lock_guard own(state_->mutex);
  if (state_->in_use > 0) {
    state_->orphaned = true;  // the last block's release() removes it
  } else {
    std::erase(all.states, state_);
  }
}

Workspace::Workspace(Workspace&&) noexcept = default;
Workspace& Workspace::operator=(Workspace&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

std::byte* Workspace::take(int64_t bytes) { return state_->take(bytes); }

bool Workspace::release(void* address) noexcept {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (size_t i = 0; i < all.states.size(); ++i) {
    const std::shared_ptr<State> state = all.states[i];
    if (!state->contains(address)) continue;
    state->release(static_cast<std::byte*>(address));
    if (state->orphaned && state->in_use == 0) std::erase(all.states, state);
    return true;
  }
  return false;
}

int64_t Workspace::bytes() const { return state_->bytes; }
int64_t Workspace::bytes_in_use() const {
  const std::lock_guard lock(state_->mutex);
  return state_->in_use;
}
int64_t Workspace::high_water_bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->high_water;
}

}  // namespace sluice
