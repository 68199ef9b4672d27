// The executor runs a program: one thread owns all hop state, starts each lane's hops in list order as their
// predecessors end, and learns of ends through one completion queue. Compute hops run on the caller's thread; the
// executor only releases them.
//
// A failing hop ends the unit: nothing further starts, what is under way is waited for, and the error comes out of the
// caller's next call. No allocation while a unit runs.
#pragma once
#include <array>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/arena.h"
#include "core/trace.h"
#include "offload/device.h"
#include "offload/program.h"
#include "swap/record_store.h"

namespace sluice {

// What the executor asks of the engine, on the executor's thread.
class LaneWork {
 public:
  virtual ~LaneWork() = default;
  // Has this hop something to do now? All its predecessors have ended.
  virtual bool due(const Hop& hop) = 0;
  // Starts an update, verify or seal hop on the update threads; its end is told by Executor::ended(). Must not block.
  virtual void start_update(int hop_number, const Hop& hop) = 0;
  // What the commit hop commits.
  virtual const StepState& commit_state() = 0;
  // For people: "swap_in h.3 state 12".
  virtual std::string hop_name(const Hop& hop) const = 0;
};

// How many of a lane's hops may be in flight at once; `update_hops` is the update lane's (Executor::Parts).
int in_flight_limit(Lane lane, int update_hops);
// Of the update lane for each of its threads: one that runs, one that is ready.
constexpr int kUpdateHopsPerThread = 2;

// What the lanes did in one unit.
struct UnitTimes {
  std::array<int64_t, kLaneCount> busy_ns{};     // at least one hop under way
  std::array<int64_t, kLaneCount> exposed_ns{};  // of it, while no compute was
  std::array<int64_t, kLaneCount> bytes{};       // payload
  int64_t group_bytes[kLaneCount][kGroupCount] = {};
  int64_t elapsed_ns = 0;
};

class Executor final : private CopySink {
 public:
  struct Parts {
    RecordStore* store = nullptr;
    Device* device = nullptr;
    const Arena* host = nullptr;
    LaneWork* work = nullptr;
    std::unique_ptr<TraceWriter> trace;  // null: none
    int update_hops = 4;                 // at most this many in flight
    int max_hops = 0;                    // of any program that will run
  };
  explicit Executor(Parts parts);
  ~Executor() override;  // waits for what is under way; never throws

  // Starts a unit. The program must outlive it; no unit may be running. kRehearsed: swap_out goes to slots that hold
  // nothing (RecordStore::rehearse_write).
  enum class Writes : uint8_t { kKept, kRehearsed };
  void begin(const Program& program, Writes writes = Writes::kKept);
  // Caller's side of a compute-lane hop, in list order: blocks until it may run; throws the unit's error.
  void enter(int hop);
  void leave(int hop);
  // The caller gives up, inside a compute hop or between two: compute hops not yet run are passed over and all else
  // runs to its end, so that updates and commit of the step before are complete. Call finish() next.
  void abandon();
  // Waits until every hop has ended. Throws the unit's error. The store is the caller's until the next begin().
  const UnitTimes& finish();
  // When each hop of the last unit began and ended. Between finish() and the next begin(), and name_rows() before it.
  void write_trace(TraceWriter& to) const;
  static void name_rows(TraceWriter& to);  // one row a lane
  // Ends the trace of all units. No unit may be running. Throws IoError if anything of it could not be written.
  void close_trace();

  // End of an update hop. Any thread.
  void ended(int hop, std::exception_ptr error) noexcept;

  int64_t memory_bytes() const;

 private:
  struct LaneState {
    std::span<const int32_t> hops;
    size_t next = 0;  // the first hop that has not started
    int in_flight = 0, limit = 1;
  };
  struct End {
    int32_t hop;
    std::exception_ptr error;
  };

  void copied(uint64_t tag, std::exception_ptr error) noexcept override;
  void run();
  void run_unit();
  bool start_ready();
  void pass_time(int64_t now);
  void start(int hop);
  void start_or_fail(int hop);
  void start_copy(int hop, CopyLane lane);
  void start_transfer(int hop);
  void release_compute(int hop);
  void complete(int hop, const std::exception_ptr& error);
  void settle(int hop);
  bool take_ends();
  bool poll_store(Wait wait);
  bool idle() const;
  void fail(const std::exception_ptr& error);
  void take_back_released();

  Parts parts_;
  const Program* program_ = nullptr;
  Writes writes_ = Writes::kKept;
  std::vector<int32_t> waiting_;  // predecessors not yet ended, per hop
  std::array<LaneState, kLaneCount> lanes_;
  int remaining_ = 0;                       // hops not ended
  std::vector<int64_t> begin_ns_, end_ns_;  // per hop; 0: it had nothing to do
  UnitTimes times_;
  int64_t counted_until_ns_ = 0;  // of busy times
  int64_t unit_begin_ns_ = 0;
  std::vector<End> taken_;  // ends being handled

  std::mutex mutex_;  // guards what follows
  std::condition_variable caller_wakes_, thread_wakes_;
  std::vector<End> ends_;
  int released_ = -1;     // the compute hop that may run
  bool entered_ = false;  // ... and the caller is in it
  bool running_ = false;  // a unit is under way
  bool abandoned_ = false, stop_ = false;
  std::exception_ptr error_;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace sluice
