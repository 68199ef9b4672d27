// What the update threads do with one chunk: one pass of the optimizer that sums what came from NVMe and what goes back
// on its way, so that memory is read once. Of a chunk at home on the device they call its optimizer. Safe for several
// chunks at once from several threads.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "cpu_adam/adam.h"
#include "cpu_adam/adam_out_of_place.h"
#include "cpu_adam/adam_sums.h"
#include "engine/parameter_groups.h"
#include "engine/plan.h"
#include "engine/step.h"
#include "offload/device.h"
#include "swap/record_checksums.h"
#include "swap/record_store.h"

namespace sluice {

// What is to be done with every chunk in one unit.
struct UpdateOrder {
  enum class Update : uint8_t { kNone, kPending } update = Update::kNone;
  enum class Commit : uint8_t { kNotDue, kDue } commit = Commit::kNotDue;
  // Without an update: of weights at home on NVMe, which a drain does not read.
  enum class Weights : uint8_t { kRead, kNotRead } weights = Weights::kRead;
  // kOnlyTaken: of made-up bytes, neither compared nor kept; the time is all that is wanted.
  enum class Checksums : uint8_t { kUsed, kOnlyTaken } checksums = Checksums::kUsed;
  // kOtherSlot: of a chunk that has two, out of place.
  enum class To : uint8_t { kSameSlot, kOtherSlot } to = To::kSameSlot;
  std::span<const AdamStep> steps;  // one for each group of parameters; they outlive the unit
};

// CRC32C of a scratch extent's content, seeded by its number: a misdirected read of equal content is caught.
uint32_t scratch_sum(int extent, std::span<const std::byte> bytes);

class UpdatePass {
 public:
  // All must outlive it. `host` is the start of the host arena.
  struct Parts {
    const ModelSpec& model;
    const Plan& plan;
    const ParameterGroups& groups;
    RecordStore& store;
    Device& device;
    std::byte* host = nullptr;
  };
  explicit UpdatePass(const Parts& parts);

  // Throws CorruptionError (nothing has been written back then) or NumericsError, naming chunk and parameter.
  void run(const UpdateOperands& operands, const UpdateOrder& order) const;
  void verify(RecordId record, const std::byte* bytes, UpdateOrder::Checksums checksums) const;
  // Checksums of a record in memory, into the store's table.
  void sum(RecordId record, const std::byte* bytes, UpdateOrder::Checksums checksums) const;

 private:
  const std::string& name_of_block(uint32_t chunk) const;
  // Of a gradient that came from a scratch extent; one that came from the device has no sum.
  void expect_gradient(const UpdateOperands& operands, uint32_t found) const;
  void run_on_device(const UpdateOperands& operands, const UpdateOrder& order) const;
  // Calls `update` for the runs of a chunk's elements that share hyper-parameters, in order, with where each begins.
  template <typename Update>
  void for_each_run(const UpdateOperands& operands, const UpdateOrder& order, Update update) const;
  AdamPlanes planes_at(const UpdateOperands& operands, int64_t first) const;
  [[noreturn]] void report_non_finite(const UpdateOperands& operands) const;

  const ModelSpec& model_;
  const Plan& plan_;
  const ParameterGroups& groups_;
  RecordStore& store_;
  Device& device_;
  std::byte* host_;
  SummingAdamKernel kernel_;
  OutOfPlaceAdamKernel out_of_place_;
};

}  // namespace sluice
