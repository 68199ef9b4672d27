// A record store to be measured, and bare requests on its very files. The files lose their names as soon as they are
// made, and signals wait until they have: nothing is left however the process ends, unless it is killed just then.
#pragma once
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/checksum_lane.h"
#include "bench/record_ring.h"
#include "bench/timed_queue.h"
#include "core/arena.h"
#include "core/geometry.h"
#include "swap/bare_io.h"
#include "swap/record_store.h"

namespace sluice {

enum class IoPattern : uint8_t { kSequential, kChunks, kMixed };
enum class Verify : uint8_t { kOff, kOn };
enum class Direction : uint8_t { kRead, kWrite, kBoth };

struct IoStoreOptions {
  std::vector<std::filesystem::path> folders;  // absolute
  int64_t size_bytes = 0;                      // of all records
  int64_t record_bytes = int64_t{64} << 20;    // of the largest
  int64_t block_bytes = 0;
  int depth = 0;  // requests in flight, for each drive
  IoPattern pattern = IoPattern::kChunks;
  IoBackend backend = IoBackend::kAuto;
  Verify verify = Verify::kOn;
  Throttle throttle{};
  Log log{};  // why the store falls back to threads
  const StoreWords* words = &kPlainWords;
};

struct PassEnd {
  int64_t bytes = 0, ns = 0, cpu_ns = 0;  // cpu: of the whole process
};

class IoStore {
 public:
  explicit IoStore(const IoStoreOptions& options);
  ~IoStore();
  IoStore(IoStore&&) = delete;

  // Every record once. kBoth: every record is read, verified and written to its other slot, as an update does.
  // Checksums are computed and compared as in training. Request times are those of the last pass.
  PassEnd run(Direction direction);
  // The same bytes by bare requests as large as the store's largest, with as many in flight, to and from the same
  // memory; each drive has the share that the store gives it.
  PassEnd run_bare_requests(Direction direction);
  void commit();

  const RequestTimes& times() const { return times_; }
  std::string describe() const { return store_->describe(); }
  int64_t largest_record_bytes() const { return largest_bytes_; }
  int64_t largest_request_bytes() const { return std::min(options_.block_bytes, largest_bytes_); }

 private:
  struct Slot {
    RecordId record;
    int64_t at = 0;  // in the memory
    enum class Use : uint8_t { kFree, kReading, kChecking, kWriting } use = Use::kFree;
    Direction direction = Direction::kRead;
  };
  void make_store();
  StoreOptions store_options(std::span<const std::filesystem::path> folders);
  void open_files(std::span<const std::filesystem::path> folders);
  // False: no room yet.
  bool start(RecordId record, Direction direction);
  // Of a transfer, or of the checksums of a slot: what comes next.
  void finish(int slot);
  // On the checksum lane: what was read is compared, what will be written is summed.
  void check(int slot);
  RecordLayout layout_of(RecordId record) const;
  std::byte* memory_of(int slot) const { return memory_.at(slots_[static_cast<size_t>(slot)].at); }

  IoStoreOptions options_;
  Geometry geometry_;
  std::vector<RecordId> order_;
  int64_t largest_bytes_ = 0, record_bytes_ = 0;
  int64_t step_ = 0;
  Arena memory_;
  RecordRing ring_{0};  // of it
  std::vector<Slot> slots_;
  std::vector<int> free_slots_, checked_;
  RequestTimes times_, bare_times_;
  std::vector<int> files_;  // of the store, for bare requests; by drive
  std::unique_ptr<RecordStore> store_;
  std::unique_ptr<IoQueue> bare_queue_;  // io_uring where it can be had, whatever the store uses
  std::unique_ptr<ChecksumLane> lane_;   // last: it uses the above
};

}  // namespace sluice
