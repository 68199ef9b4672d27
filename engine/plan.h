// The plan: for every byte of model state its home, and for every buffer its offset, as a pure value made from the model
// and the byte budgets. Nothing here touches memory, files or clocks.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/geometry.h"
#include "core/ledger.h"
#include "engine/model.h"
#include "engine/placement.h"

namespace sluice {

struct PlanOptions {
  Precision precision = Precision::kBf16;
  DType gradient_dtype = DType::kBf16;  // of closed gradients: the weights' type, or fp32
  int64_t device_bytes = 0;             // hard cap, workspace included
  int64_t host_bytes = 0;               // hard cap on the mapping and our tables
  int64_t workspace_bytes = 0;          // measured, on the device
  int micro_batches = 1;                // gradient accumulation
  int64_t chunk_elements = 0;           // 0: derived from the host budget
  int commit_interval = 0;              // 0: auto (1 when any state's home is NVMe, else 10)
  Placement placement;
};

enum class Home : uint8_t { kDevice, kHost, kNvme };

struct ChunkHomes {
  Home weights = Home::kNvme, state = Home::kNvme, gradient = Home::kHost;
  int64_t weights_offset = -1, state_offset = -1;  // in the host arena where the home is host
  int64_t gradient_offset = -1;                    // in the arena of its home
};

// A ring of bytes: buffers are taken one after the other and wrap; the program's hazards keep users apart.
struct Ring {
  int64_t offset = 0;  // in its arena
  int64_t bytes = 0;
};

struct TensorHome {  // one boundary tensor of one micro-batch
  Home home = Home::kHost;
  int64_t offset = -1;
};

struct MoveRow {  // what a step moves over one link
  std::string link;  // "nvme read", "nvme write", "upload", "download"
  std::string what;  // "weights", "state", "gradient", "activations"
  int64_t bytes = 0;
};
struct UseRow {
  Tier tier;
  std::string use;
  int64_t bytes = 0;
};

class Plan {
 public:
  PlanOptions options;
  Geometry geometry;
  std::vector<ChunkHomes> chunks;
  std::vector<int64_t> kept_offset;  // per partition: its place on the device when it is kept there, else -1
  // tensors[t * micro_batches + m]
  std::vector<TensorHome> tensors;
  // Tensors that several visits take: an fp32 open gradient on the device, per micro-batch; else -1.
  std::vector<int64_t> tensor_open_offset;
  // Partitions that several visits contribute to: an fp32 open gradient that stays on the device; else -1.
  std::vector<int64_t> open_offset;
  Ring device_weights, device_open, device_boundary;
  Ring host_update, host_staging;
  int64_t device_arena_bytes = 0;  // planned part, in front of the workspace
  int64_t workspace_offset = 0;
  int64_t host_arena_bytes = 0;
  int64_t table_bytes = 0;  // programs, records' table, queues: host memory beside the mapping
  int commit_interval = 1;
  int64_t disk_bytes = 0;

  int64_t padded(int chunk, Group group) const;  // bytes of the record in host memory
  std::vector<UseRow> uses() const;       // per tier and use; sums to the arenas and tables
  std::vector<MoveRow> moves() const;     // per step
  std::string table() const;              // what is printed before training starts

 private:
  friend class Planner;
  explicit Plan(Geometry g) : geometry(std::move(g)) {}
};

// Throws ConfigError when the budgets cannot hold it: names the smallest device budget and the smallest host budget that
// would do, each with the other as given (or that none would, and the smallest pair).
Plan make_plan(const ModelSpec& model, const PlanOptions& options);

}  // namespace sluice
