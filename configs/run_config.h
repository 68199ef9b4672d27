// The configuration of a run: the incumbent's JSON file, read into typed values. Everything is checked here, before any
// memory is taken; each error is one line that names the file, the key's path, the value, and what is allowed.
// Pure functions; any thread.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "configs/param_groups.h"
#include "configs/schedule.h"
#include "core/dtype.h"
#include "cpu_adam/adam.h"
#include "data/options.h"
#include "engine/loss_scale.h"
#include "engine/placement.h"
#include "engine/update_mode.h"
#include "offload/device.h"
#include "swap/io_queue.h"

namespace sluice {

std::string_view name_of(IoBackend backend);  // "auto", "uring", "threads"
std::string_view name_of(DeviceKind device);  // "auto", "cuda", "cpu"

// train = micro x accumulation x ranks (one rank).
struct BatchConfig {
  int64_t train = 0, micro = 0, accumulation = 0;  // samples, samples, micro-batches
};

// The engine's own section. 0 or empty: derived.
struct SluiceConfig {
  DeviceKind device = DeviceKind::kAuto;  // where it computes
  int64_t device_memory_bytes = 0, host_memory_bytes = 0;
  std::vector<std::string> nvme;  // one for each drive; empty: the run's own folder
  int64_t chunk_elements = 0;
  int commit_interval = 0;
  IoBackend io_backend = IoBackend::kAuto;
  int64_t io_block_bytes = 0;  // of a request; 0: 1 MiB, or what the probe of io_backend "auto" finds faster
  int io_depth = 64;           // requests in flight, for each drive
  Placement placement;
  UpdateMode update = UpdateMode::kAuto;
  DType state_dtype = DType::kFp32;                                                // of the moments; bf16: lossy
  enum class Recompute : uint8_t { kAuto, kAlways } recompute = Recompute::kAuto;  // of blocks in the backward
  int64_t loss_tile_tokens = 0;
  int compute_threads = 0, update_threads = 0;
  std::string trace;  // file of the trace of hops; empty: none
};

// What the drives are rated for and how long they are to last. 0: not said.
struct EnduranceConfig {
  double terabytes_written = 0, days = 0;
};

struct RunConfig {
  std::string name;   // of the file, for messages
  std::string model;  // the "model" section as JSON text: its keys are the model's to check
  DataOptions data;   // an empty path: given by --data, or not needed; vocab_size 0: the model's
  BatchConfig batch;
  AdamOptions optimizer;
  std::vector<ParamGroupConfig> param_groups;  // of parameters with hyper-parameters of their own
  ScheduleConfig schedule;
  double gradient_clipping = 0;  // largest norm; 0: none
  Precision precision = Precision::kFp32;
  LossScaleOptions loss_scale;  // fp16: the incumbent's section of that name; else 1
  int64_t steps_per_print = 10;
  std::optional<uint64_t> seed;  // not said: of a resumed run the one that it began with
  uint64_t seed_or_default() const { return seed.value_or(0); }
  EnduranceConfig endurance;
  std::string tensorboard;  // folder of its event files; empty: none are written
  SluiceConfig sluice;
  std::vector<std::string> notes;  // what the file says that is not needed here, or means something else; to be logged
};

// Reads a file and applies overrides, each "path.to.key=value" with the value as JSON or else as a string. Throws
// ConfigError (a file that cannot be read too).
RunConfig load_config(const std::string& path, std::span<const std::string> overrides);
// The same from text; `name` stands in errors where the file's path would.
RunConfig parse_config(const std::string& text, const std::string& name, std::span<const std::string> overrides);

// The file with overrides applied, as a file of its own: its keys in its order, new ones last. Throws as load_config
// where it cannot be read, and does not look at keys and values.
std::string overridden_document(const std::string& path, std::span<const std::string> overrides);

// What the defaults of budgets and threads come from.
struct MachineFacts {
  int64_t available_host_bytes = 0;
  int64_t free_gpu_bytes = 0;  // of the one that computes; 0: host memory plays the device
  int cores = 1;
};
// Fills in budgets (50 % of the available memory for the host; for the device 80 % of what the GPU has free, or where
// host memory plays it another 20 % of that) and threads: the compute has all cores, the update all but one for the
// thread that serves the drives and one for the compute's own.
void fill_defaults(RunConfig& config, const MachineFacts& machine);

// The whole configuration as JSON text: parse_config(to_json(c)) equals c but for the name and the notes, which are
// made of keys that are not written, and its text is the same again.
std::string to_json(const RunConfig& config);

}  // namespace sluice
