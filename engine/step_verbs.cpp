#include "engine/step_verbs.h"

#include <array>

namespace sluice {
namespace {

uint64_t content(Content what, int64_t which) {
  return (static_cast<uint64_t>(what) << 48) | static_cast<uint64_t>(which);
}
Range host(int64_t at, int64_t bytes, uint64_t holds) { return {Place::kHost, at, at + bytes, holds}; }
Range device(int64_t at, int64_t bytes, uint64_t holds) { return {Place::kDevice, at, at + bytes, holds}; }
Range control(int64_t at) { return {Place::kControl, at, at + 1}; }
Range scratch(int extent, uint64_t holds) { return {Place::kScratch, extent, extent + 1, holds}; }
Range record_in_store(int c, Group group) {
  const int64_t record = 2 * int64_t{c} + static_cast<int64_t>(group);
  return {Place::kStore, record, record + 1};
}

// Control ranges: the step's scale, and each partition's part of the norm.
constexpr int64_t kScale = 0, kFirstNormPart = 1;

}  // namespace

// Transfers to NVMe move whole blocks; buffers have room for them.
int64_t Verbs::tensor_buffer_bytes(const TensorMove& move) const {
  return home_of(move).home == Home::kNvme ? round_up(bytes(move), kPlaneAlignmentBytes) : bytes(move);
}
TensorHome Verbs::home_of(const TensorMove& move) const {
  if (move.content != Content::kOpen) return plan_.tensor(move.tensor, move.micro_batch);
  const OpenSlot sum = plan_.tensor_open(move.tensor, move.micro_batch);
  return {sum.home, sum.offset};
}

Range Verbs::record_at(int c, Group group, int64_t at) const {
  const Content what = group == Group::kState ? Content::kState : Content::kWeights;
  return host(at, plan_.record_bytes(c, group), content(what, c));
}
Range Verbs::gradient_in_host(int c, int64_t at) const {
  const bool at_home = plan_.chunks[c].gradient == Home::kHost;
  const int64_t bytes = at_home ? plan_.gradient_bytes(chunk(c).elements) : plan_.gradient_block_bytes(c);
  return host(at, bytes, content(Content::kGradient, c));
}
Range Verbs::tensor_in_host(const TensorMove& move, int64_t at) const {
  return host(at, tensor_buffer_bytes(move), content_of(move, number(move.tensor, move.micro_batch)));
}
Range Verbs::gradient_on_device(int c, int64_t at) const {
  return device(at, plan_.gradient_bytes(chunk(c).elements), content(Content::kGradient, c));
}
Range Verbs::state_on_device(int c, int64_t at) const {
  return device(at, plan_.record_bytes(c, Group::kState), content(Content::kState, c));
}
Range Verbs::kept_on_device(int c, int64_t at) const {
  return device(at, plan_.weights_bytes(chunk(c).elements), content(Content::kDeviceWeights, chunk(c).partition));
}
Range Verbs::weights_on_device(int p, int64_t at) const {
  return device(at, plan_.weights_bytes(partition(p).elements), content(Content::kDeviceWeights, p));
}
Range Verbs::open_on_device(int p, int64_t at) const {
  return device(at, partition(p).elements * 4, content(Content::kOpen, p));
}
Range Verbs::tensor_on_device(const TensorMove& move) const {
  return device(move.device_at, bytes(move), content_of(move, number(move.tensor, move.micro_batch)));
}
Range Verbs::graph_on_device(const ComputeOperands& turn) const {
  return device(turn.graph, plan_.graph_bytes(turn.visit),
                content(Content::kGraph, number(turn.visit, turn.micro_batch)));
}
int64_t Verbs::bytes(const TensorMove& move) const {
  const TensorSpec& tensor = model_.tensors[move.tensor];
  return move.content == Content::kOpen ? tensor.elements * 4 : tensor.bytes();
}
uint64_t Verbs::content_of(const TensorMove& move, int64_t number) {
  constexpr int64_t kTensors = int64_t{1} << 40;  // apart from partitions' open gradients
  return content(move.content, move.content == Content::kOpen ? kTensors + number : number);
}

// --- host <-> NVMe ---------------------------------------------------------------------------------------------------

void Verbs::swap(Verb verb, const Record& record, int64_t at, When when) {
  const auto [c, group, prefetched] = record;
  const Range memory = record_at(c, group, at), store = record_in_store(c, group);
  const bool in = verb == Verb::kSwapIn;
  unit.program.emit({.verb = verb,
                     .when = when,
                     .prefetched = prefetched,
                     .group = group,
                     .chunk = c,
                     .host_offset = at,
                     .bytes = plan_.payload_bytes(c, group)},
                    {in ? &store : &memory, 1}, {in ? &memory : &store, 1});
}

// --- scratch extents: what a step keeps on NVMe and no commit knows of ----------------------------------------------

Verbs::Scratch Verbs::scratch_of(int c) const {
  return {.hop = {.group = Group::kGradient,
                  .chunk = c,
                  .scratch_extent = plan_.scratch_extent(c),
                  .bytes = plan_.gradient_bytes(chunk(c).elements)},
          .content = content(Content::kGradient, c)};
}

Verbs::Scratch Verbs::scratch_of(const TensorMove& move) const {
  const int64_t which = number(move.tensor, move.micro_batch);
  return {.hop = {.group = Group::kActivations,
                  .visit = move.visit,
                  .tensor_number = static_cast<int32_t>(which),
                  .scratch_extent = static_cast<int32_t>(plan_.tensors[which].offset),
                  .bytes = bytes(move)},
          .content = content_of(move, which)};
}

void Verbs::swap(Verb verb, Scratch what, int64_t at, When when) {
  Hop& hop = what.hop;
  const Range memory = host(at, round_up(hop.bytes, kPlaneAlignmentBytes), what.content);
  const Range extent = scratch(hop.scratch_extent, what.content);
  const bool in = verb == Verb::kSwapIn;
  hop.verb = verb;
  hop.when = when;
  hop.host_offset = at;
  unit.program.emit(hop, {in ? &extent : &memory, 1}, {in ? &memory : &extent, 1});
}

// A seal puts the checksum of what lies in memory beside the extent that it will go to; a verify compares the two.
void Verbs::check(Verb verb, Scratch what, int64_t at) {
  Hop& hop = what.hop;
  const std::array ranges{host(at, round_up(hop.bytes, kPlaneAlignmentBytes), what.content),
                          scratch(hop.scratch_extent, what.content)};
  const bool seals = verb == Verb::kSeal;
  hop.verb = verb;
  hop.host_offset = at;
  unit.program.emit(hop, std::span(ranges).first(seals ? 1 : 2), {seals ? &ranges[1] : &ranges[0], 1});
}

ClosedInHost Verbs::swap_in(ClosedInScratch gradient, int64_t to, When when) {
  swap(Verb::kSwapIn, scratch_of(gradient.chunk), to, when);
  return {{}, gradient.chunk, to, plan_.scratch_extent(gradient.chunk)};
}

SealedInHost Verbs::seal(const ClosedInHost& gradient) {
  check(Verb::kSeal, scratch_of(gradient.chunk), gradient.at);
  return {{}, gradient.chunk, gradient.at};
}

ClosedInScratch Verbs::swap_out(const SealedInHost& gradient) {
  swap(Verb::kSwapOut, scratch_of(gradient.chunk), gradient.at, When::kAlways);
  return {{}, gradient.chunk};
}

UnverifiedTensorInHost Verbs::swap_in(const TensorMove& tensor, int64_t to) {
  swap(Verb::kSwapIn, scratch_of(tensor), to, When::kAlways);
  return {{}, tensor, to};
}

TensorInHost Verbs::verify(UnverifiedTensorInHost tensor) {
  check(Verb::kVerify, scratch_of(tensor.tensor), tensor.at);
  return {{}, tensor.tensor, tensor.at};
}

SealedTensorInHost Verbs::seal(const TensorInHost& tensor) {
  check(Verb::kSeal, scratch_of(tensor.tensor), tensor.at);
  return {{}, tensor.tensor, tensor.at};
}

void Verbs::swap_out(const SealedTensorInHost& tensor) {
  swap(Verb::kSwapOut, scratch_of(tensor.tensor), tensor.at, When::kAlways);
}

// --- the update threads ----------------------------------------------------------------------------------------------

// One fused pass: unscale, clip, AdamW, new weights, checksums. Where no update is pending it only verifies weights
// that have just been read.
UpdatedInHost Verbs::update(UnverifiedRecords records, const ClosedInHost& gradient, When when) {
  const auto& [state, weights] = records;
  const int c = weights.chunk;
  const bool moves = when == When::kSpeculating && plan_.has_other_slot(c);
  const HostSlot to = moves ? plan_.other_slots[c] : HostSlot{state.at, weights.at};
  const std::array fills{record_at(c, Group::kState, to.state), record_at(c, Group::kWeights, to.weights)};
  std::array<Range, 5> reads{record_at(c, Group::kState, state.at), record_at(c, Group::kWeights, weights.at),
                             gradient_in_host(c, gradient.at)};
  size_t count = 3;
  if (gradient.extent >= 0) reads[count++] = scratch(gradient.extent, content(Content::kGradient, c));
  if (when != When::kSpeculating) reads[count++] = control(kScale);  // a speculative update predicts it
  emit_update({.chunk = c,
               .gradient_extent = gradient.extent,
               .state = state.at,
               .weights = weights.at,
               .gradient = gradient.at},
              when, std::span(reads).first(count), fills);
  return {.state = {{}, c, to.state}, .weights = {{}, c, to.weights}};
}

// The same pass by the device, where everything lies already. Checksums are taken of the copies that commits take.
void Verbs::update(const StateOnDevice& state, const ChunkWeightsOnDevice& weights, const ClosedOnDevice& gradient,
                   When when) {
  const int c = state.chunk;
  const std::array fills{state_on_device(c, state.at), kept_on_device(c, weights.at)};
  const std::array reads{fills[0], fills[1], gradient_on_device(c, gradient.at), control(kScale)};
  const size_t count = when == When::kSpeculating ? 3 : 4;  // a speculative update predicts the scale
  emit_update({.chunk = c, .place = Place::kDevice, .state = state.at, .weights = weights.at, .gradient = gradient.at},
              when, std::span(reads).first(count), fills);
}

void Verbs::emit_update(const UpdateOperands& operands, When when, std::span<const Range> reads,
                        std::span<const Range> fills) {
  const int c = operands.chunk;
  unit.updates.push_back(operands);
  unit.program.emit({.verb = Verb::kUpdate,
                     .when = when,
                     .chunk = c,
                     .operands = static_cast<int32_t>(unit.updates.size()) - 1,
                     .bytes = plan_.payload_bytes(c, Group::kState) + plan_.payload_bytes(c, Group::kWeights)},
                    reads, fills);
}

// Of a record: verify compares its checksums with the store's, seal gives the store those of what it will write.
// Neither beside a write of the record, which goes with the checksums that were sealed before it began.
void Verbs::check(Verb verb, const Record& record, int64_t at, When when) {
  const int c = record.chunk;
  const Group group = record.group;
  const Range range = record_at(c, group, at);
  const std::array reads{range, record_in_store(c, group)};
  unit.program.emit({.verb = verb,
                     .when = when,
                     .group = group,
                     .chunk = c,
                     .host_offset = at,
                     .bytes = plan_.payload_bytes(c, group)},
                    reads, {&range, 1});
}

// --- host <-> device -------------------------------------------------------------------------------------------------

void Verbs::upload(const WeightsInHost& weights, int64_t partition_at, When when) {
  const Chunk& piece = chunk(weights.chunk);
  const int64_t to = partition_at + plan_.weights_bytes(piece.first), bytes = plan_.weights_bytes(piece.elements);
  const Range from = record_at(weights.chunk, Group::kWeights, weights.at);
  const Range filled = device(to, bytes, content(Content::kDeviceWeights, piece.partition));
  unit.program.emit({.verb = Verb::kUpload,
                     .when = when,
                     .group = Group::kWeights,
                     .chunk = weights.chunk,
                     .host_offset = weights.at,
                     .device_offset = to,
                     .bytes = bytes},
                    {&from, 1}, {&filled, 1});
}

// Whole records, with what lies between their planes.
void Verbs::upload(const StateInHost& state, const StateOnDevice& to, When when) {
  copy({.verb = Verb::kUpload, .when = when, .group = Group::kState, .chunk = state.chunk},
       record_at(state.chunk, Group::kState, state.at), state_on_device(to.chunk, to.at));
}
UnsealedInHost<Group::kState> Verbs::download(const StateOnDevice& state, int64_t to, When when) {
  copy({.verb = Verb::kDownload, .when = when, .group = Group::kState, .chunk = state.chunk},
       record_at(state.chunk, Group::kState, to), state_on_device(state.chunk, state.at));
  return {{}, state.chunk, to};
}
UnsealedInHost<Group::kWeights> Verbs::download(const ChunkWeightsOnDevice& weights, int64_t to, When when) {
  copy({.verb = Verb::kDownload, .when = when, .group = Group::kWeights, .chunk = weights.chunk},
       record_at(weights.chunk, Group::kWeights, to), kept_on_device(weights.chunk, weights.at));
  return {{}, weights.chunk, to};
}

ClosedInHost Verbs::download(ClosedOnDevice gradient) {
  const int64_t home = plan_.chunks[gradient.chunk].gradient_offset;
  return copy_gradient({.verb = Verb::kDownload}, gradient, home);
}

ClosedInHost Verbs::download(ClosedOnDevice gradient, int64_t to, When when) {
  return copy_gradient({.verb = Verb::kDownload, .when = when}, gradient, to);
}

ClosedInHost Verbs::copy_gradient(Hop hop, const ClosedOnDevice& gradient, int64_t to) {
  const int c = gradient.chunk;
  const Range from = gradient_on_device(c, gradient.at), filled = gradient_in_host(c, to);
  hop.group = Group::kGradient;
  hop.chunk = c;
  hop.host_offset = to;
  hop.device_offset = gradient.at;
  hop.bytes = from.end - from.begin;
  unit.program.emit(hop, {&from, 1}, {&filled, 1});
  return {{}, c, to};
}

// `hop` says what moves and which way.
void Verbs::copy(Hop hop, const Range& in_host, const Range& on_device) {
  const bool up = hop.verb == Verb::kUpload;
  hop.host_offset = in_host.begin;
  hop.device_offset = on_device.begin;
  hop.bytes = on_device.end - on_device.begin;
  unit.program.emit(hop, {up ? &in_host : &on_device, 1}, {up ? &on_device : &in_host, 1});
}

void Verbs::copy_tensor(Verb verb, const TensorMove& move, int64_t host_at) {
  const int64_t which = number(move.tensor, move.micro_batch);
  const Hop hop{
      .verb = verb, .group = Group::kActivations, .visit = move.visit, .tensor_number = static_cast<int32_t>(which)};
  copy(hop, tensor_in_host(move, host_at), tensor_on_device(move));
}

void Verbs::upload(const TensorInHost& tensor, const TensorMove& to) { copy_tensor(Verb::kUpload, to, tensor.at); }
TensorInHost Verbs::download(const TensorMove& tensor, int64_t to) {
  copy_tensor(Verb::kDownload, tensor, to);
  return {{}, tensor, to};
}

// A partition's open gradient on its way between two visits that contribute to it.
void Verbs::upload_open(int visit, int p, int64_t open_at) {
  const Range on_device = open_on_device(p, open_at);
  copy({.verb = Verb::kUpload, .group = Group::kGradient, .visit = visit, .partition = p},
       host(plan_.partition_open(p).offset, partition(p).elements * 4, on_device.content), on_device);
}
void Verbs::download_open(int visit, int p, int64_t open_at) {
  const Range on_device = open_on_device(p, open_at);
  copy({.verb = Verb::kDownload, .group = Group::kGradient, .visit = visit, .partition = p},
       host(plan_.partition_open(p).offset, partition(p).elements * 4, on_device.content), on_device);
}

// --- the caller's thread ---------------------------------------------------------------------------------------------

void Verbs::compute(const ComputeOperands& turn, const std::vector<Range>& reads, const std::vector<Range>& fills) {
  unit.turns.push_back(turn);
  unit.program.emit({.verb = Verb::kCompute,
                     .visit = turn.visit,
                     .micro_batch = turn.micro_batch,
                     .operands = static_cast<int32_t>(unit.turns.size()) - 1},
                    reads, fills);
}

// After the last contribution: scaled, rounded once, its part of the norm taken. A closed chunk lies at the start of
// the fp32 range it came from until it has gone home (or its update has read it there), or at its home on the device.
std::vector<ClosedOnDevice> Verbs::close(int visit, int p, int64_t open_at) {
  std::vector<Range> fills{control(kFirstNormPart + p)};
  std::vector<ClosedOnDevice> closed;
  fills.reserve(1 + static_cast<size_t>(partition(p).chunk_count));
  closed.reserve(static_cast<size_t>(partition(p).chunk_count));
  for (const int c : partition(p).chunks()) {
    const bool stays = plan_.chunks[c].gradient == Home::kDevice;
    const int64_t at = stays ? plan_.chunks[c].gradient_offset : open_at + chunk(c).first * 4;
    fills.push_back(gradient_on_device(c, at));
    closed.push_back({{}, c, at});
  }
  const Range open = open_on_device(p, open_at);
  unit.program.emit(
      {.verb = Verb::kClose, .group = Group::kGradient, .visit = visit, .partition = p, .device_offset = open_at},
      {&open, 1}, fills);
  return closed;
}

void Verbs::clip() {
  const Range parts{Place::kControl, kFirstNormPart, kFirstNormPart + static_cast<int64_t>(model_.partitions.size())};
  const Range scale = control(kScale);
  unit.program.emit({.verb = Verb::kClip}, {&parts, 1}, {&scale, 1});
}

void Verbs::commit() {
  const Range all{Place::kStore, 0, 2 * static_cast<int64_t>(plan_.chunks.size())};
  unit.program.emit({.verb = Verb::kCommit, .when = When::kCommit}, {&all, 1}, {});
}

}  // namespace sluice
