// The executor runs a program: one thread owns all hop state, starts each lane's hops in list order as their
// predecessors end, and learns of ends through one completion queue. Compute hops run on the caller's thread; the
// executor only releases them.
//
// Uploads, downloads and compute wait for each other on the device (DeviceOrder), not here: such a hop is started as
// soon as those before it on the device have been started, and the caller may be several compute hops ahead of what the
// device has done. All others, and the clip, which the host does, start when their predecessors have ended.
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
  // Has this hop something to do now? All its predecessors have ended, or on the device been started. A hop of the
  // device's that has not may be asked about again.
  virtual bool due(const Hop& hop) const = 0;
  // It is due, and starts now: once in a unit.
  virtual void starting(const Hop& hop) = 0;
  // Starts an update, verify or seal hop on the update threads; its end is told by Executor::ended(). Must not block.
  virtual void start_update(int hop_number, const Hop& hop) = 0;
  // What the commit hop commits.
  virtual const StepState& commit_state() = 0;
  // For people: "swap_in h.3 state 12", of "state".
  virtual TraceLabel hop_label(const Hop& hop) const = 0;
};

// How many of a lane's hops may be in flight at once; `update_hops` is the update lane's (Executor::Parts). Compute
// that the device has not come to yet is not counted.
int in_flight_limit(Lane lane, int update_hops);
// Of the update lane for each of its threads: one that runs, one that is ready.
constexpr int kUpdateHopsPerThread = 2;

// What the lanes did in one unit.
struct UnitTimes {
  std::array<int64_t, kLaneCount> busy_ns{};     // at least one hop under way whose predecessors have ended
  std::array<int64_t, kLaneCount> exposed_ns{};  // of it, while no compute was
  std::array<int64_t, kLaneCount> bytes{};       // payload
  std::array<std::array<int64_t, kGroupCount>, kLaneCount> group_bytes{};
  int64_t drive_busy_ns = 0;  // reads or writes under way, or both
  int64_t elapsed_ns = 0;
};

class Executor final : private CopySink {
 public:
  struct Parts {
    RecordStore* store = nullptr;
    Device* device = nullptr;
    const Arena* host = nullptr;
    LaneWork* work = nullptr;
    std::unique_ptr<TraceWriter> trace;  // null: none; begun once there is a store: what is refused keeps its file
    int update_hops = 4;                 // at most this many in flight
    int max_hops = 0;                    // of any program that will run
  };
  explicit Executor(Parts parts);
  // Before the first begin(), where Parts had none: what has threads is there before a store is replaced.
  void set_store(RecordStore& store);
  ~Executor() override;  // waits for what is under way; never throws

  // Starts a unit. The program must outlive it; no unit may be running. kRehearsed: swap_out goes to slots that hold
  // nothing (RecordStore::rehearse_write).
  // Calls::kNone: the compute lane is abandoned from the start.
  enum class Writes : uint8_t { kKept, kRehearsed };
  enum class Calls : uint8_t { kOfCompute, kNone };
  void begin(const Program& program, Writes writes = Writes::kKept, Calls calls = Calls::kOfCompute);
  // Caller's side of a compute-lane hop, in list order: blocks until it may be computed, on the device after what it
  // waits for there; throws the unit's error. leave(): all its compute has been called for.
  void enter(int hop);
  void leave(int hop);
  // The caller gives up, inside a compute hop, which ends with that, or between two: compute hops not yet run are
  // passed over and all else runs to its end, so that updates and commit of the step before are complete. Call finish()
  // next.
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

  static int64_t bytes_per_hop() { return sizeof(HopState) + 2 * sizeof(int64_t); }  // of Parts::max_hops

 private:
  struct LaneState {
    std::span<const int32_t> hops;
    size_t next = 0;  // the first hop that has not started
    int in_flight = 0, limit = 1;
    int under_way = 0;  // of those in flight: their predecessors have ended
    struct DeviceWork {
      int32_t hop = -1;
      uint64_t number = 0;
    };
    std::array<DeviceWork, Device::kMaxCopies> on_device;  // in flight there; hop -1: none
    bool is_empty() const { return in_flight == 0 && under_way == 0; }
  };
  struct HopState {
    enum class Stage : uint8_t { kWaiting, kStarted, kUnderWay, kEnded } stage = Stage::kWaiting;
    enum class OnDevice : uint8_t { kNo, kYes } on_device = OnDevice::kNo;  // among its lane's
    int32_t waiting = 0;                                                    // predecessors that keep it from starting
    int32_t unended = 0;                                                    // predecessors not yet ended
  };
  // Of a hop, told by another thread. kOnDevice: its compute is in flight there; kTakenBack: it was released and will
  // not be entered.
  struct Told {
    int32_t hop;
    enum class What : uint8_t { kEnded, kOnDevice, kTakenBack } what;
    uint64_t number = 0;                 // kOnDevice
    std::exception_ptr error = nullptr;  // kEnded
  };

  void copied(uint64_t tag, std::exception_ptr error) noexcept override;
  void run();
  void run_unit();
  bool start_ready();
  bool due(const Hop& hop);
  bool caller_is_free();
  void pass_time(int64_t now);
  void begin_work(int hop, int64_t now);
  void take_back(int hop);
  void start(int hop);
  void start_or_fail(int hop);
  DeviceOrder order_on_device(int hop);
  void note_device_work(int hop, uint64_t number);
  LaneState& lane_of(int hop) { return lanes_[static_cast<int>(program_->hops()[hop].lane())]; }
  static LaneState::DeviceWork& device_work(LaneState& lane, int hop);
  void start_copy(int hop, CopyLane lane);
  void start_transfer(int hop);
  void release_compute(int hop);
  void complete(int hop, const std::exception_ptr& error);
  void settle(int hop, int64_t now);
  bool take_told();
  void poll_store(Wait wait);
  bool idle() const;
  void fail(const std::exception_ptr& error);
  void take_back_released();
  void tell(Told told);
  void wake();

  Parts parts_;
  const Program* program_ = nullptr;
  Writes writes_ = Writes::kKept;
  std::vector<HopState> states_;
  std::array<LaneState, kLaneCount> lanes_;
  int remaining_ = 0;                       // hops not ended
  std::vector<int64_t> begin_ns_, end_ns_;  // per hop; 0: it had nothing to do
  UnitTimes times_;
  int64_t counted_until_ns_ = 0;  // of busy times
  int64_t unit_begin_ns_ = 0;
  std::vector<Told> taken_;   // being handled
  bool store_broke_ = false;  // its poll() threw, by which a unit has failed

  std::mutex mutex_;  // guards what follows
  std::condition_variable caller_wakes_, thread_wakes_;
  std::vector<Told> told_;
  bool asleep_ = false;  // the executor waits, or is about to, with nothing told: who tells something wakes it
  static constexpr int kNone = -1, kBeingTakenBack = -2;
  int released_ = kNone;        // the compute hop that may run
  DeviceOrder released_after_;  // ... after these
  bool entered_ = false;        // ... and the caller is in it
  int leaving_ = kNone;         // the compute hop that the caller comes out of, unless it has ended
  bool running_ = false;        // a unit is under way
  bool abandoned_ = false, stop_ = false;
  std::exception_ptr error_;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace sluice
