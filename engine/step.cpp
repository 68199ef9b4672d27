// One step, told in the order bytes move. Read build_unit at the end first; then the verbs, in the order of the path:
//
//   swap_in -> update -> swap_out          a chunk of step k, beside the forward of step k+1
//           -> upload -> compute           its fresh weights on the device, all micro-batches
//   swap_in -> verify -> upload -> compute weights again, for the backward
//   compute -> close -> download           gradients home
//
// `gather` and `reduce` would stand between upload and compute, and between compute and download; with one rank they do
// nothing and are not written.
#include "engine/step.h"

#include <algorithm>
#include <optional>

#include "core/errors.h"
#include "offload/byte_ring.h"

namespace sluice {
namespace {

// What is meant to lie in a range, for the program's check that nobody reads what another has overwritten.
enum class Content : uint64_t { kState = 1, kWeights, kDeviceWeights, kGradient, kTensor, kTensorGradient, kOpen };
uint64_t content(Content what, int64_t which) {
  return (static_cast<uint64_t>(what) << 48) | static_cast<uint64_t>(which);
}

// Control ranges: the step's scale, and each partition's part of the norm.
constexpr int64_t kScale = 0, kFirstNormPart = 1;

// Tokens: where bytes are. A verb takes what must be true before it and returns what is true after it, so an illegal
// order does not compile. Moved, not copied: bytes are in one place.
struct Token {
  Token() = default;
  Token(Token&&) = default;
  Token& operator=(Token&&) = default;
};
struct StateInStore : Token {
  int chunk = -1;
};
struct StateInHost : Token {
  int chunk = -1;
  int64_t at = 0;
};  // in a slot of the update ring, or at home
struct WeightsInStore : Token {
  int chunk = -1;
};
struct WeightsInHost : Token {
  int chunk = -1;
  int64_t at = 0;
};  // readable: verified or updated
struct ClosedInHost : Token {
  int chunk = -1;
  int64_t at = 0;
};
struct OnDevice : Token {
  std::vector<int64_t> weights;
};  // all weights of one visit, per partition
struct OpenOnDevice : Token {
  std::vector<int64_t> gradients;
};  // open gradients of one visit, per partition

class Step {
 public:
  Step(const ModelSpec& model, const Plan& plan, UnitKind kind)
      : model_(model),
        plan_(plan),
        uses_(model),
        kind_(kind),
        update_ring_(plan.host_update.offset, plan.host_update.bytes),
        staging_ring_(plan.host_staging.offset, plan.host_staging.bytes),
        weights_ring_(plan.device_weights.offset, plan.device_weights.bytes),
        open_ring_(plan.device_open.offset, plan.device_open.bytes),
        boundary_ring_(plan.device_boundary.offset, plan.device_boundary.bytes),
        updated_(model.partitions.size(), Updated::kNo) {}

  // The four parts of a unit.
  OnDevice fetch(int visit);  // weights of a visit, updated first where this unit has not yet
  void forward(int visit, const OnDevice& weights);
  void backward(int visit, const OnDevice& weights);
  void update_only(int visit);
  void commit();
  void clip();
  void prefetch();

  UnitProgram take() {
    unit_.program.finish();
    return std::move(unit_);
  }

 private:
  enum class Updated : uint8_t { kNo, kYes };
  struct Slot {
    UpdateLayout layout;
    int64_t base = 0;
    int64_t at(int64_t part, int64_t home) const { return part >= 0 ? base + part : home; }
  };

  // The verbs.
  StateInHost swap_in(StateInStore state, int64_t to, When when);
  WeightsInHost swap_in(WeightsInStore weights, int64_t to, When when);
  WeightsInHost verify(WeightsInHost weights);
  WeightsInHost update(const StateInHost& state, WeightsInHost weights, const ClosedInHost& gradient);
  void swap_out(const StateInHost& state);
  void swap_out(const WeightsInHost& weights);
  void upload(const WeightsInHost& weights, int64_t partition_at, When when);
  void upload_tensor(int visit, int tensor, int micro_batch, int64_t to, Content what);
  void compute(const Turn& turn, std::vector<int64_t> addresses);
  void close(int visit, const OpenOnDevice& open);
  void download(int visit, int chunk, int64_t from);
  ClosedInHost download_to_slot(int chunk, int64_t to);
  void download_tensor(int visit, int tensor, int micro_batch, int64_t from, Content what);

  WeightsInHost update_chunk(int index_in_order, int chunk);
  Slot take_slot(int chunk);
  void upload_partition(int visit, int partition, int64_t at);
  OpenOnDevice open(int visit);
  When weights_read_when(int index_in_order) const;

  void emit(const Hop& hop, std::vector<Range> reads, std::vector<Range> fills) {
    unit_.program.emit(hop, reads, fills);
  }
  const Chunk& chunk(int c) const { return plan_.geometry.chunks()[c]; }
  const Partition& partition(int p) const { return plan_.geometry.partitions()[p]; }
  RecordLayout record(int c, Group group) const {
    return record_layout(plan_.options.precision, group, chunk(c).elements);
  }
  static Range store(int c, Group group) {
    const int64_t record = 2 * int64_t{c} + static_cast<int64_t>(group);
    return {Place::kStore, record, record + 1};
  }
  Range host(int64_t at, int64_t bytes, Content what, int64_t which) const {
    return {Place::kHost, at, at + bytes, content(what, which)};
  }
  Range device(int64_t at, int64_t bytes, Content what, int64_t which) const {
    return {Place::kDevice, at, at + bytes, content(what, which)};
  }
  static Range control(int64_t at) { return {Place::kControl, at, at + 1}; }
  Range state_range(int64_t at, int c) const { return host(at, record(c, Group::kState).bytes, Content::kState, c); }
  Range weights_range(int64_t at, int c) const {
    return host(at, record(c, Group::kWeights).bytes, Content::kWeights, c);
  }
  Range gradient_range(int64_t at, int c) const {
    return host(at, plan_.gradient_bytes(chunk(c).elements), Content::kGradient, c);
  }
  Range device_weights(int p, int64_t at) const {
    return device(at, plan_.weights_bytes(partition(p).elements), Content::kDeviceWeights, p);
  }
  Range open_range(int p, int64_t at) const { return device(at, partition(p).elements * 4, Content::kOpen, p); }
  int64_t tensor_number(int tensor, int micro_batch) const {
    return int64_t{tensor} * plan_.options.micro_batches + micro_batch;
  }
  Range tensor_range(int tensor, int micro_batch, int64_t at, Content what) const {
    return device(at, model_.tensors[tensor].bytes(), what, tensor_number(tensor, micro_batch));
  }
  Range tensor_open(int tensor, int micro_batch) const {
    return device(plan_.tensor_open_offset[tensor_number(tensor, micro_batch)], model_.tensors[tensor].elements * 4,
                  Content::kOpen, (int64_t{1} << 40) + tensor_number(tensor, micro_batch));
  }
  void forward_turn(int visit, int micro_batch, const OnDevice& weights);
  void backward_turn(int visit, int micro_batch, const OnDevice& weights, const OpenOnDevice& open);
  std::vector<int64_t> inputs_on_device(const Turn& turn, const BoundaryLayout& layout, int64_t base);
  std::vector<Range> weights_read(int visit, const OnDevice& weights) const;

  const ModelSpec& model_;
  const Plan& plan_;
  ModelUses uses_;
  UnitKind kind_;
  ByteRing update_ring_, staging_ring_, weights_ring_, open_ring_, boundary_ring_;
  std::vector<Updated> updated_;
  int next_update_ = 0;  // position in plan_.update_order
  UnitProgram unit_;
};

// --- host <-> NVMe ---------------------------------------------------------------------------------------------------

StateInHost Step::swap_in(StateInStore state, int64_t to, When when) {
  const int c = state.chunk;
  emit({.verb = Verb::kSwapIn,
        .lane = Lane::kRead,
        .when = when,
        .group = Group::kState,
        .index = c,
        .host_offset = to,
        .bytes = record(c, Group::kState).payload_bytes},
       {store(c, Group::kState)}, {state_range(to, c)});
  return {{}, c, to};
}

WeightsInHost Step::swap_in(WeightsInStore weights, int64_t to, When when) {
  const int c = weights.chunk;
  emit({.verb = Verb::kSwapIn,
        .lane = Lane::kRead,
        .when = when,
        .group = Group::kWeights,
        .index = c,
        .host_offset = to,
        .bytes = record(c, Group::kWeights).payload_bytes},
       {store(c, Group::kWeights)}, {weights_range(to, c)});
  return {{}, c, to};
}

void Step::swap_out(const StateInHost& state) {
  const int c = state.chunk;
  const When when = plan_.chunks[c].state == Home::kNvme ? When::kPending : When::kCommitDirty;
  emit({.verb = Verb::kSwapOut,
        .lane = Lane::kWrite,
        .when = when,
        .group = Group::kState,
        .index = c,
        .host_offset = state.at,
        .bytes = record(c, Group::kState).payload_bytes},
       {state_range(state.at, c)}, {store(c, Group::kState)});
}

void Step::swap_out(const WeightsInHost& weights) {
  const int c = weights.chunk;
  const When when = plan_.chunks[c].weights == Home::kNvme ? When::kPending : When::kCommitDirty;
  emit({.verb = Verb::kSwapOut,
        .lane = Lane::kWrite,
        .when = when,
        .group = Group::kWeights,
        .index = c,
        .host_offset = weights.at,
        .bytes = record(c, Group::kWeights).payload_bytes},
       {weights_range(weights.at, c)}, {store(c, Group::kWeights)});
}

// --- the update threads ----------------------------------------------------------------------------------------------

// One fused pass: unscale, clip, AdamW, new weights, checksums. Where no update is pending it only verifies weights
// that have just been read.
WeightsInHost Step::update(const StateInHost& state, WeightsInHost weights, const ClosedInHost& gradient) {
  const int c = weights.chunk;
  unit_.updates.push_back({.chunk = c,
                           .weights_come = plan_.chunks[c].weights == Home::kNvme
                                               ? UpdateOperands::WeightsCome::kFromStore
                                               : UpdateOperands::WeightsCome::kFromHome,
                           .state = state.at,
                           .weights = weights.at,
                           .gradient = gradient.at});
  const Range state_at = state_range(state.at, c), weights_at = weights_range(weights.at, c);
  emit({.verb = Verb::kUpdate,
        .lane = Lane::kUpdate,
        .index = c,
        .operands = static_cast<int32_t>(unit_.updates.size()) - 1,
        .bytes = record(c, Group::kState).payload_bytes + record(c, Group::kWeights).payload_bytes},
       {state_at, weights_at, gradient_range(gradient.at, c), control(kScale)}, {state_at, weights_at});
  return weights;
}

WeightsInHost Step::verify(WeightsInHost weights) {
  const int c = weights.chunk;
  emit({.verb = Verb::kVerify,
        .lane = Lane::kUpdate,
        .index = c,
        .host_offset = weights.at,
        .bytes = record(c, Group::kWeights).payload_bytes},
       {weights_range(weights.at, c)}, {weights_range(weights.at, c)});
  return weights;
}

// --- host <-> device -------------------------------------------------------------------------------------------------

void Step::upload(const WeightsInHost& weights, int64_t partition_at, When when) {
  const Chunk& piece = chunk(weights.chunk);
  const int64_t to = partition_at + plan_.weights_bytes(piece.first), bytes = plan_.weights_bytes(piece.elements);
  emit({.verb = Verb::kUpload,
        .lane = Lane::kUpload,
        .when = when,
        .group = Group::kWeights,
        .index = weights.chunk,
        .host_offset = weights.at,
        .device_offset = to,
        .bytes = bytes},
       {weights_range(weights.at, weights.chunk)}, {device(to, bytes, Content::kDeviceWeights, piece.partition)});
}

void Step::download(int visit, int c, int64_t from) {
  const int64_t bytes = plan_.gradient_bytes(chunk(c).elements), to = plan_.chunks[c].gradient_offset;
  emit({.verb = Verb::kDownload,
        .lane = Lane::kDownload,
        .group = Group::kGradient,
        .visit = visit,
        .index = c,
        .host_offset = to,
        .device_offset = from,
        .bytes = bytes},
       {device(from, bytes, Content::kGradient, c)}, {gradient_range(to, c)});
}

// A gradient at home on the device comes to the update's slot as the update is due.
ClosedInHost Step::download_to_slot(int c, int64_t to) {
  const int64_t bytes = plan_.gradient_bytes(chunk(c).elements), from = plan_.chunks[c].gradient_offset;
  emit({.verb = Verb::kDownload,
        .lane = Lane::kDownload,
        .when = When::kPending,
        .group = Group::kGradient,
        .index = c,
        .host_offset = to,
        .device_offset = from,
        .bytes = bytes},
       {device(from, bytes, Content::kGradient, c)}, {gradient_range(to, c)});
  return {{}, c, to};
}

void Step::upload_tensor(int visit, int t, int m, int64_t to, Content what) {
  const int64_t home = plan_.tensor(t, m).offset, bytes = model_.tensors[t].bytes();
  emit({.verb = Verb::kUpload,
        .lane = Lane::kUpload,
        .visit = visit,
        .index = static_cast<int32_t>(tensor_number(t, m)),
        .operands = 0,
        .host_offset = home,
        .device_offset = to,
        .bytes = bytes},
       {host(home, bytes, what, tensor_number(t, m))}, {tensor_range(t, m, to, what)});
}

void Step::download_tensor(int visit, int t, int m, int64_t from, Content what) {
  const int64_t home = plan_.tensor(t, m).offset, bytes = model_.tensors[t].bytes();
  emit({.verb = Verb::kDownload,
        .lane = Lane::kDownload,
        .visit = visit,
        .index = static_cast<int32_t>(tensor_number(t, m)),
        .operands = 0,
        .host_offset = home,
        .device_offset = from,
        .bytes = bytes},
       {tensor_range(t, m, from, what)}, {host(home, bytes, what, tensor_number(t, m))});
}

// --- the update half -------------------------------------------------------------------------------------------------

Step::Slot Step::take_slot(int c) {
  Slot slot{plan_.update_layout(c)};
  if (slot.layout.bytes > 0) slot.base = update_ring_.take(slot.layout.bytes);
  return slot;
}

When Step::weights_read_when(int index) const {
  if (kind_ == UnitKind::kDrain) return index < plan_.prefetched_chunks ? When::kPendingNotPrefetched : When::kPending;
  return index < plan_.prefetched_chunks ? When::kNotPrefetched : When::kAlways;
}

WeightsInHost Step::update_chunk(int index, int c) {
  const ChunkHomes& homes = plan_.chunks[c];
  const Slot slot = take_slot(c);
  StateInHost state{{}, c, slot.at(slot.layout.state, homes.state_offset)};
  if (homes.state == Home::kNvme) {
    const When when = index < plan_.prefetched_chunks ? When::kPendingNotPrefetched : When::kPending;
    state = swap_in(StateInStore{{}, c}, state.at, when);
  }
  WeightsInHost weights{{}, c, slot.at(slot.layout.weights, homes.weights_offset)};
  if (homes.weights == Home::kNvme) weights = swap_in(WeightsInStore{{}, c}, weights.at, weights_read_when(index));
  ClosedInHost gradient{{}, c, slot.at(slot.layout.gradient, homes.gradient_offset)};
  if (homes.gradient == Home::kDevice) gradient = download_to_slot(c, gradient.at);
  weights = update(state, std::move(weights), gradient);
  swap_out(state);
  swap_out(weights);
  return weights;
}

// Brings a partition to the device: through its update the first time in a unit, from its home after that.
void Step::upload_partition(int visit, int p, int64_t at) {
  const bool first = updated_[p] == Updated::kNo, kept = plan_.kept_offset[p] >= 0;
  updated_[p] = Updated::kYes;
  if (!first && kept) return;
  for (int i = 0; i < partition(p).chunk_count; ++i) {
    const int c = partition(p).first_chunk + i;
    if (first) {
      const WeightsInHost fresh = update_chunk(next_update_++, c);
      if (kind_ != UnitKind::kDrain) upload(fresh, at, kept ? When::kStaleOnDevice : When::kAlways);
    } else if (plan_.chunks[c].weights == Home::kHost) {
      upload(WeightsInHost{{}, c, plan_.chunks[c].weights_offset}, at, When::kAlways);
    } else {
      const int64_t to = staging_ring_.take(record(c, Group::kWeights).bytes);
      upload(verify(swap_in(WeightsInStore{{}, c}, to, When::kAlways)), at, When::kAlways);
    }
  }
  (void)visit;
}

OnDevice Step::fetch(int visit) {
  const auto& partitions = model_.visits[visit].partitions;
  int64_t bytes = 0;
  for (int p : partitions) bytes += plan_.kept_offset[p] >= 0 ? 0 : plan_.weights_bytes(partition(p).elements);
  int64_t at = bytes > 0 && kind_ != UnitKind::kDrain ? weights_ring_.take(bytes) : 0;
  OnDevice fetched;
  for (int p : partitions) {
    const bool kept = plan_.kept_offset[p] >= 0;
    const int64_t place = kept ? plan_.kept_offset[p] : at;
    if (!kept) at += plan_.weights_bytes(partition(p).elements);
    upload_partition(visit, p, place);
    fetched.weights.push_back(place);
  }
  return fetched;
}

void Step::update_only(int visit) { fetch(visit); }

void Step::commit() {
  std::vector<Range> all{{Place::kStore, 0, 2 * static_cast<int64_t>(plan_.chunks.size())}};
  emit({.verb = Verb::kCommit, .lane = Lane::kWrite, .when = When::kCommit}, all, {});
}

// State reads for the updates to come do not depend on gradients: they start while the backward still runs.
void Step::prefetch() {
  update_ring_.rewind();
  for (int i = 0; i < plan_.prefetched_chunks; ++i) {
    const int c = plan_.update_order[i];
    const Slot slot = take_slot(c);
    if (plan_.chunks[c].state == Home::kNvme) {
      swap_in(StateInStore{{}, c}, slot.base + slot.layout.state, When::kAlways);
    }
    if (plan_.chunks[c].weights == Home::kNvme) {
      swap_in(WeightsInStore{{}, c}, slot.base + slot.layout.weights, When::kAlways);
    }
  }
}

// --- compute ---------------------------------------------------------------------------------------------------------

std::vector<Range> Step::weights_read(int visit, const OnDevice& weights) const {
  std::vector<Range> reads;
  const auto& partitions = model_.visits[visit].partitions;
  for (size_t i = 0; i < partitions.size(); ++i) reads.push_back(device_weights(partitions[i], weights.weights[i]));
  return reads;
}

// Inputs of a turn, uploaded where their home is the host. Returns where they are.
std::vector<int64_t> Step::inputs_on_device(const Turn& turn, const BoundaryLayout& layout, int64_t base) {
  const auto& takes = model_.visits[turn.visit].takes;
  std::vector<int64_t> at;
  for (size_t i = 0; i < takes.size(); ++i) {
    const TensorHome home = plan_.tensor(takes[i], turn.micro_batch);
    at.push_back(home.home == Home::kDevice ? home.offset : base + layout.inputs[i]);
    if (home.home == Home::kHost) upload_tensor(turn.visit, takes[i], turn.micro_batch, at.back(), Content::kTensor);
  }
  return at;
}

void Step::forward_turn(int visit, int m, const OnDevice& weights) {
  const Turn turn{visit, m, Pass::kForward, static_cast<int32_t>(unit_.addresses.size())};
  const VisitSpec& spec = model_.visits[visit];
  const BoundaryLayout layout = boundary_layout(model_, uses_, plan_, turn);
  const int64_t base = layout.bytes > 0 ? boundary_ring_.take(layout.bytes) : 0;
  const std::vector<int64_t> inputs = inputs_on_device(turn, layout, base);
  std::vector<Range> reads = weights_read(visit, weights), fills;
  std::vector<int64_t> addresses = weights.weights, outputs;
  for (size_t i = 0; i < inputs.size(); ++i)
    reads.push_back(tensor_range(spec.takes[i], m, inputs[i], Content::kTensor));
  for (size_t i = 0; i < spec.gives.size(); ++i) {
    const TensorHome home = plan_.tensor(spec.gives[i], m);
    outputs.push_back(home.home == Home::kDevice ? home.offset : base + layout.outputs[i]);
    fills.push_back(tensor_range(spec.gives[i], m, outputs.back(), Content::kTensor));
  }
  addresses.insert(addresses.end(), inputs.begin(), inputs.end());
  addresses.insert(addresses.end(), outputs.begin(), outputs.end());
  unit_.addresses.insert(unit_.addresses.end(), addresses.begin(), addresses.end());
  unit_.turns.push_back(turn);
  emit({.verb = Verb::kCompute,
        .lane = Lane::kCompute,
        .visit = visit,
        .index = m,
        .operands = static_cast<int32_t>(unit_.turns.size()) - 1},
       reads, fills);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (plan_.tensor(spec.gives[i], m).home == Home::kHost) {
      download_tensor(visit, spec.gives[i], m, outputs[i], Content::kTensor);
    }
  }
}

void Step::forward(int visit, const OnDevice& weights) {
  for (int m = 0; m < plan_.options.micro_batches; ++m) forward_turn(visit, m, weights);
}

// Where this visit's open gradients are: a place of their own for shared partitions, the ring for the others.
OpenOnDevice Step::open(int visit) {
  int64_t bytes = 0;
  const auto& partitions = model_.visits[visit].partitions;
  for (int p : partitions) bytes += uses_.shared_partition(p) ? 0 : partition(p).elements * 4;
  int64_t at = bytes > 0 ? open_ring_.take(bytes) : 0;
  OpenOnDevice open;
  for (int p : partitions) {
    open.gradients.push_back(uses_.shared_partition(p) ? plan_.open_offset[p] : at);
    if (!uses_.shared_partition(p)) at += partition(p).elements * 4;
  }
  return open;
}

// The block is recomputed from its checkpoint and back-propagated. A tensor's gradient takes the tensor's own place,
// unless several visits read it: then it has an open gradient of its own, rounded once when its giver's turn comes.
void Step::backward_turn(int visit, int m, const OnDevice& weights, const OpenOnDevice& open) {
  const Turn turn{visit, m, Pass::kBackward, static_cast<int32_t>(unit_.addresses.size())};
  const VisitSpec& spec = model_.visits[visit];
  const BoundaryLayout layout = boundary_layout(model_, uses_, plan_, turn);
  const int64_t base = layout.bytes > 0 ? boundary_ring_.take(layout.bytes) : 0;
  std::vector<int64_t> addresses = weights.weights;
  const std::vector<int64_t> inputs = inputs_on_device(turn, layout, base);
  std::vector<Range> reads = weights_read(visit, weights), fills;
  addresses.insert(addresses.end(), inputs.begin(), inputs.end());
  for (size_t i = 0; i < inputs.size(); ++i)
    reads.push_back(tensor_range(spec.takes[i], m, inputs[i], Content::kTensor));
  for (size_t i = 0; i < spec.gives.size(); ++i) {
    const int t = spec.gives[i];
    const TensorHome home = plan_.tensor(t, m);
    addresses.push_back(layout.outputs[i] >= 0 ? base + layout.outputs[i] : home.offset);
    const Range gradient = tensor_range(t, m, addresses.back(), Content::kTensorGradient);
    if (uses_.shared_tensor(t)) {  // rounded from its open gradient as the turn begins
      reads.push_back(tensor_open(t, m));
      fills.push_back(gradient);
    } else {
      if (home.home == Home::kHost) upload_tensor(visit, t, m, addresses.back(), Content::kTensorGradient);
      reads.push_back(gradient);
    }
  }
  for (size_t i = 0; i < spec.takes.size(); ++i) {
    const int t = spec.takes[i];
    addresses.push_back(layout.contributions[i] >= 0 ? base + layout.contributions[i] : inputs[i]);
    fills.push_back(tensor_range(t, m, addresses.back(), Content::kTensorGradient));
    if (!uses_.shared_tensor(t)) continue;
    if (uses_.last_taker[t] != visit) reads.push_back(tensor_open(t, m));
    fills.push_back(tensor_open(t, m));
  }
  for (size_t i = 0; i < spec.partitions.size(); ++i) {
    const Range range = open_range(spec.partitions[i], open.gradients[i]);
    addresses.push_back(open.gradients[i]);
    fills.push_back(range);
  }
  unit_.addresses.insert(unit_.addresses.end(), addresses.begin(), addresses.end());
  unit_.turns.push_back(turn);
  emit({.verb = Verb::kCompute,
        .lane = Lane::kCompute,
        .visit = visit,
        .index = m,
        .operands = static_cast<int32_t>(unit_.turns.size()) - 1},
       reads, fills);
  for (size_t i = 0; i < spec.takes.size(); ++i) {
    const int t = spec.takes[i];
    if (uses_.shared_tensor(t) || plan_.tensor(t, m).home == Home::kDevice) continue;
    download_tensor(visit, t, m, inputs[i], Content::kTensorGradient);
  }
}

void Step::backward(int visit, const OnDevice& weights) {
  const OpenOnDevice opened = open(visit);
  for (int m = 0; m < plan_.options.micro_batches; ++m) backward_turn(visit, m, weights, opened);
  close(visit, opened);
}

// After the last contribution: scaled, rounded once, its part of the norm taken. A closed chunk lies at the start of
// the fp32 range it came from until it has gone home, or at its home on the device.
void Step::close(int visit, const OpenOnDevice& open) {
  const auto& partitions = model_.visits[visit].partitions;
  for (size_t i = 0; i < partitions.size(); ++i) {
    const int p = partitions[i];
    if (uses_.first_visit[p] != visit) continue;  // another visit contributes later
    const int64_t at = open.gradients[i];
    std::vector<Range> fills{control(kFirstNormPart + p)};
    auto closed_at = [&](int c) {
      return plan_.chunks[c].gradient == Home::kDevice ? plan_.chunks[c].gradient_offset : at + chunk(c).first * 4;
    };
    for (int k = 0; k < partition(p).chunk_count; ++k) {
      const int c = partition(p).first_chunk + k;
      fills.push_back(device(closed_at(c), plan_.gradient_bytes(chunk(c).elements), Content::kGradient, c));
    }
    emit({.verb = Verb::kClose,
          .lane = Lane::kCompute,
          .group = Group::kGradient,
          .visit = visit,
          .index = p,
          .device_offset = at},
         {open_range(p, at)}, fills);
    for (int k = 0; k < partition(p).chunk_count; ++k) {
      const int c = partition(p).first_chunk + k;
      if (plan_.chunks[c].gradient == Home::kHost) download(visit, c, closed_at(c));
    }
  }
}

void Step::clip() {
  const auto parts = static_cast<int64_t>(model_.partitions.size());
  emit({.verb = Verb::kClip, .lane = Lane::kCompute}, {{Place::kControl, kFirstNormPart, kFirstNormPart + parts}},
       {control(kScale)});
}

}  // namespace

// A unit: [updates of step k beside forward k+1] [backward k+1, clip, first state reads for the updates to come].
UnitProgram build_unit(const ModelSpec& model, const Plan& plan, UnitKind kind) {
  Step step(model, plan, kind);
  const int last = static_cast<int>(model.visits.size()) - 1;
  if (kind == UnitKind::kDrain) {
    for (int visit = 0; visit <= last; ++visit) step.update_only(visit);
    step.commit();
    return step.take();
  }
  for (int visit = 0; visit < last; ++visit) {
    const OnDevice weights = step.fetch(visit);
    step.forward(visit, weights);
  }
  const OnDevice head = step.fetch(last);
  step.commit();
  if (kind == UnitKind::kEvaluate) {
    step.forward(last, head);
    return step.take();
  }
  step.backward(last, head);  // forward and backward in one, on one fetch of its weights
  for (int visit = last - 1; visit >= 0; --visit) {
    const OnDevice weights = step.fetch(visit);
    step.backward(visit, weights);
  }
  step.clip();
  step.prefetch();
  return step.take();
}

ModelUses::ModelUses(const ModelSpec& model)
    : takers(model.tensors.size(), 0),
      last_taker(model.tensors.size(), -1),
      first_visit(model.partitions.size(), -1),
      visits(model.partitions.size(), 0) {
  for (int v = 0; v < static_cast<int>(model.visits.size()); ++v) {
    for (int t : model.visits[v].takes) {
      ++takers[t];
      last_taker[t] = v;
    }
    for (int p : model.visits[v].partitions) {
      ++visits[p];
      if (first_visit[p] < 0) first_visit[p] = v;
    }
  }
}

BoundaryLayout boundary_layout(const ModelSpec& model, const ModelUses& uses, const Plan& plan, const Turn& turn) {
  const VisitSpec& visit = model.visits[turn.visit];
  BoundaryLayout layout;
  auto place = [&](int tensor) {
    const int64_t at = layout.bytes;
    layout.bytes += round_up(model.tensors[tensor].bytes(), kDeviceAlignmentBytes);
    return at;
  };
  const bool backward = turn.pass == Pass::kBackward;
  for (int t : visit.takes) {
    layout.inputs.push_back(plan.tensor(t, turn.micro_batch).home == Home::kHost ? place(t) : -1);
  }
  for (int t : visit.gives) {
    const bool through = plan.tensor(t, turn.micro_batch).home == Home::kHost || (backward && uses.shared_tensor(t));
    layout.outputs.push_back(through ? place(t) : -1);
  }
  for (int t : visit.takes) {  // a tensor that others still read must not be overwritten by this visit's contribution
    const bool own = backward && uses.shared_tensor(t) && plan.tensor(t, turn.micro_batch).home == Home::kDevice;
    layout.contributions.push_back(own ? place(t) : -1);
  }
  return layout;
}

int64_t UnitProgram::memory_bytes() const {
  return program.memory_bytes() +
         static_cast<int64_t>(updates.capacity() * sizeof(UpdateOperands) + turns.capacity() * sizeof(Turn) +
                              addresses.capacity() * sizeof(int64_t));
}

}  // namespace sluice
