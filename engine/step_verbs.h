// The verbs of a step and the tokens they take and give. Internal to engine/step*.cpp; build-time only.
//
// A token says where bytes are and what is true of them. Only Verbs makes tokens: its verbs, which take what must be
// true before them and return what is true after them, and, for what rests at home, its functions named for that, which
// take the caller's word for it. So what a verb brought from NVMe cannot go to the device before it is verified, nor
// what one brought from the device to the store before it is sealed: that does not compile. Each verb emits one hop
// with the ranges it reads and fills; who reads what another has overwritten meanwhile is found as the program is built
// (offload/hazards.h).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/errors.h"
#include "engine/plan.h"
#include "engine/step.h"
#include "offload/program.h"

namespace sluice {

class Token {
 public:
  Token(Token&&) = default;  // not copied
  Token& operator=(Token&&) = default;

 private:
  friend class Verbs;
  Token() = default;
};
// A chunk's record of one group, in the store.
template <Group kGroup>
struct InStore : Token {
  int chunk = -1;
  Prefetched prefetched = Prefetched::kNo;
};
// ... in the host arena, at home or in a buffer (`at` says which), with checksums that the store knows.
template <Group kGroup>
struct InHost : Token {
  int chunk = -1;
  int64_t at = 0;
};
using StateInHost = InHost<Group::kState>;
using WeightsInHost = InHost<Group::kWeights>;
// ... as it came from NVMe, or at home: only verify, or an update, which verifies what has come, may follow.
template <Group kGroup>
struct UnverifiedInHost : Token {
  int chunk = -1;
  int64_t at = 0;
};
using UnverifiedState = UnverifiedInHost<Group::kState>;
using UnverifiedWeights = UnverifiedInHost<Group::kWeights>;
// ... as it came from the device: only seal may follow.
template <Group kGroup>
struct UnsealedInHost : Token {
  int chunk = -1;
  int64_t at = 0;
};
// What an update takes, and what it leaves.
struct UnverifiedRecords {
  UnverifiedState state;
  UnverifiedWeights weights;
};
struct UpdatedInHost {
  StateInHost state;
  WeightsInHost weights;
};
// Bytes of other kinds in the host arena.
struct ClosedInHost : Token {
  int chunk = -1;
  int64_t at = 0;
  int extent = -1;  // that it was read from: the update verifies it; -1: it came from the device
};
struct SealedInHost : Token {  // its checksum is known: it may go to its scratch extent
  int chunk = -1;
  int64_t at = 0;
};
struct ClosedInScratch : Token {
  int chunk = -1;
};
struct ClosedOnDevice : Token {
  int chunk = -1;
  int64_t at = 0;
};
// Not tokens: where a visit's partitions lie on the device, one offset each.
struct WeightsOnDevice {
  std::vector<int64_t> at;
};
struct OpenOnDevice {
  std::vector<int64_t> at;
};
// Tokens again: one chunk's records at home on the device.
struct StateOnDevice : Token {
  int chunk = -1;
  int64_t at = 0;
};
struct ChunkWeightsOnDevice : Token {  // its weights, in the partition that is kept there
  int chunk = -1;
  int64_t at = 0;
};
struct RecordsOnDevice {
  StateOnDevice state;
  ChunkWeightsOnDevice weights;
};

// What is meant to lie in a range, for the program's check that nobody reads what another has overwritten.
enum class Content : uint64_t {
  kState = 1,
  kWeights,
  kDeviceWeights,
  kGradient,
  kTensor,
  kTensorGradient,
  kOpen,
  kGraph
};

// One boundary tensor of one micro-batch, as its visit sees it; with kOpen the fp32 sum of its gradients.
struct TensorMove {
  int visit = 0, tensor = 0, micro_batch = 0;
  int64_t device_at = 0;
  Content content = Content::kTensor;
};
struct TensorInHost : Token {
  TensorMove tensor;
  int64_t at = 0;
};
struct UnverifiedTensorInHost : Token {
  TensorMove tensor;
  int64_t at = 0;
};
struct SealedTensorInHost : Token {
  TensorMove tensor;
  int64_t at = 0;
};

class Verbs {
 public:
  Verbs(const ModelSpec& model, const Plan& plan) : model_(model), plan_(plan) {}

  // What rests at home, by the plan: a chunk's records in the store,
  template <Group kGroup>
  InStore<kGroup> in_store(int chunk, Prefetched prefetched = Prefetched::kNo) const {
    return {{}, chunk, prefetched};
  }
  // in host memory, where the store knows their checksums,
  template <Group kGroup>
  InHost<kGroup> at_home(int chunk) const {
    return {{}, chunk, home_of(chunk, kGroup)};
  }
  // ... before an update that verifies them,
  template <Group kGroup>
  UnverifiedInHost<kGroup> unverified_at_home(int chunk) const {
    return {{}, chunk, home_of(chunk, kGroup)};
  }
  // ... or as an update that the store was not told of has left them,
  template <Group kGroup>
  UnsealedInHost<kGroup> unsealed_at_home(int chunk) const {
    return {{}, chunk, home_of(chunk, kGroup)};
  }
  // and on the device; its closed gradient; and a tensor.
  RecordsOnDevice records_on_device(int chunk) const {
    return {.state = {{}, chunk, plan_.chunks[chunk].state_offset},
            .weights = {{}, chunk, plan_.kept_weights_offset(chunk)}};
  }
  ClosedInHost closed_at_home(int chunk) const { return {{}, chunk, plan_.chunks[chunk].gradient_offset}; }
  ClosedOnDevice closed_on_device(int chunk) const { return {{}, chunk, plan_.chunks[chunk].gradient_offset}; }
  ClosedInScratch closed_in_scratch(int chunk) const { return {{}, chunk}; }
  TensorInHost tensor_at_home(const TensorMove& tensor) const { return {{}, tensor, home_of(tensor).offset}; }

  // host <-> NVMe
  template <Group kGroup>
  UnverifiedInHost<kGroup> swap_in(const InStore<kGroup>& record, int64_t to, When when) {
    swap(Verb::kSwapIn, Record{record.chunk, kGroup, record.prefetched}, to, when);
    return {{}, record.chunk, to};
  }
  template <Group kGroup>
  void swap_out(const InHost<kGroup>& record, When when) {
    swap(Verb::kSwapOut, Record{record.chunk, kGroup}, record.at, when);
  }
  // ... scratch extents
  ClosedInHost swap_in(ClosedInScratch gradient, int64_t to, When when);
  ClosedInScratch swap_out(const SealedInHost& gradient);
  UnverifiedTensorInHost swap_in(const TensorMove& tensor, int64_t to);
  void swap_out(const SealedTensorInHost& tensor);

  // the update threads
  UpdatedInHost update(UnverifiedRecords records, const ClosedInHost& gradient, When when);
  void update(const StateOnDevice& state, const ChunkWeightsOnDevice& weights, const ClosedOnDevice& gradient,
              When when);
  template <Group kGroup>
  InHost<kGroup> verify(const UnverifiedInHost<kGroup>& record, When when) {
    check(Verb::kVerify, Record{record.chunk, kGroup}, record.at, when);
    return {{}, record.chunk, record.at};
  }
  template <Group kGroup>
  InHost<kGroup> seal(const UnsealedInHost<kGroup>& record, When when) {
    check(Verb::kSeal, Record{record.chunk, kGroup}, record.at, when);
    return {{}, record.chunk, record.at};
  }
  TensorInHost verify(UnverifiedTensorInHost tensor);
  SealedInHost seal(const ClosedInHost& gradient);
  SealedTensorInHost seal(const TensorInHost& tensor);

  // host <-> device
  void upload(const WeightsInHost& weights, int64_t partition_at, When when);
  void upload(const StateInHost& state, const StateOnDevice& to, When when);
  UnsealedInHost<Group::kState> download(const StateOnDevice& state, int64_t to, When when);
  UnsealedInHost<Group::kWeights> download(const ChunkWeightsOnDevice& weights, int64_t to, When when);
  void upload(const TensorInHost& tensor, const TensorMove& to);
  ClosedInHost download(ClosedOnDevice gradient);                         // to its home
  ClosedInHost download(ClosedOnDevice gradient, int64_t to, When when);  // on its way to the update, or to NVMe
  TensorInHost download(const TensorMove& tensor, int64_t to);
  void upload_open(int visit, int partition, int64_t open_at);
  void download_open(int visit, int partition, int64_t open_at);

  // the caller's thread
  void compute(const ComputeOperands& turn, const std::vector<Range>& reads, const std::vector<Range>& fills);
  std::vector<ClosedOnDevice> close(int visit, int partition, int64_t open_at);
  void clip();

  void commit();

  // Ranges of what a turn reads and fills.
  Range weights_on_device(int partition, int64_t at) const;
  Range open_on_device(int partition, int64_t at) const;
  Range tensor_on_device(const TensorMove& tensor) const;
  Range graph_on_device(const ComputeOperands& turn) const;

  // Of a buffer in host memory, as large as transfers need it.
  int64_t tensor_buffer_bytes(const TensorMove& tensor) const;
  TensorHome home_of(const TensorMove& tensor) const;  // Content::kOpen: of the sum of its contributions
  int64_t number(int tensor, int micro_batch) const {
    return int64_t{tensor} * plan_.options.micro_batches + micro_batch;
  }

  const Chunk& chunk(int c) const { return plan_.geometry.chunks()[c]; }
  const Partition& partition(int p) const { return plan_.geometry.partitions()[p]; }

  UnitProgram unit;

 private:
  // What lies in a scratch extent, and what its hops say of themselves but for verb and place in host memory.
  struct Scratch {
    Hop hop;
    uint64_t content = 0;
  };
  // Of a chunk, in the store.
  struct Record {
    int chunk = -1;
    Group group = Group::kState;
    Prefetched prefetched = Prefetched::kNo;
  };
  int64_t home_of(int chunk, Group group) const {
    const ChunkHomes& homes = plan_.chunks[chunk];
    SLUICE_CHECK((group == Group::kState ? homes.state : homes.weights) == Home::kHost, "at home elsewhere");
    return group == Group::kState ? homes.state_offset : homes.weights_offset;
  }
  Scratch scratch_of(int chunk) const;
  Scratch scratch_of(const TensorMove& tensor) const;
  void swap(Verb verb, Scratch what, int64_t at, When when);
  void check(Verb verb, Scratch what, int64_t at);
  void swap(Verb verb, const Record& record, int64_t at, When when);
  void emit_update(const UpdateOperands& operands, When when, std::span<const Range> reads,
                   std::span<const Range> fills);
  void check(Verb verb, const Record& record, int64_t at, When when);
  ClosedInHost copy_gradient(Hop hop, const ClosedOnDevice& gradient, int64_t to);
  void copy_tensor(Verb verb, const TensorMove& tensor, int64_t host_at);
  void copy(Hop hop, const Range& in_host, const Range& on_device);
  int64_t bytes(const TensorMove& tensor) const;
  static uint64_t content_of(const TensorMove& tensor, int64_t number);
  Range record_at(int c, Group group, int64_t at) const;
  Range gradient_in_host(int c, int64_t at) const;
  Range tensor_in_host(const TensorMove& tensor, int64_t at) const;
  Range gradient_on_device(int c, int64_t at) const;
  Range state_on_device(int c, int64_t at) const;
  Range kept_on_device(int c, int64_t at) const;

  const ModelSpec& model_;
  const Plan& plan_;
};

}  // namespace sluice
