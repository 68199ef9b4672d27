// Boundary tensors at home on NVMe, and their gradients, on their way through a ring in host memory. Internal to
// engine/step*.cpp; build-time only.
//
// What a visit gives stays in the ring for the next one, and so does a gradient: where tensors are taken by the next
// visit the drive sees each once either way, for its backward, and its gradient never. So nobody waits for the write,
// which stands one visit later: behind the next visit's updates, which in the lanes of the update threads and of the
// drive would otherwise wait for this visit's compute. The backward's reads stand a visit early. What the ring comes
// round to before it was read is written then, and read again.
//
// That takes a ring that holds all that a visit passes. In a smaller one everything is written at once.
#pragma once
#include <cstdint>
#include <deque>
#include <unordered_map>

#include "engine/step_verbs.h"
#include "offload/byte_ring.h"

namespace sluice {

// Of those that the fullest visit takes and gives, in all micro-batches.
int64_t passing_bytes(const ModelSpec& model, const Plan& plan);

class PassingTensors {
 public:
  // All must outlive it.
  PassingTensors(const PlannedModel& planned, Verbs& verbs, UnitKind kind);

  void bring(const TensorMove& tensor);      // to the device
  void take_home(const TensorMove& tensor);  // from there
  // Into the ring, where it is not there already. False: what has still to be read there stands in the way.
  bool read_ahead(const TensorMove& tensor);
  // Writes the tensors that a later visit will read again.
  void write_waiting();

 private:
  struct Entry {
    TensorInHost tensor;
    bool came_back = false;  // from the drive
    bool written = false;    // the drive has it
    bool read = false;       // by a visit, since it is here
    bool wanted = true;      // a visit of this unit has still to read it
  };
  int64_t key(const TensorMove& tensor) const;
  Entry* find(const TensorMove& tensor);
  int64_t make_room(const TensorMove& tensor);
  Entry& enter(TensorInHost tensor);
  size_t leaving(int64_t bytes) const;
  bool still_wanted(const TensorMove& brought) const;
  bool read_once(const TensorMove& tensor) const;
  Entry& read(const TensorMove& tensor);
  void write(Entry& entry);

  const ModelSpec& model_;
  const ModelUses& uses_;
  Verbs& verbs_;
  const bool trains_;
  const bool writes_later_;
  ByteRing ring_;
  std::deque<Entry> entries_;                   // in the order in which the ring comes to them
  size_t first_ = 0;                            // number of the first; the others' follow
  std::unordered_map<int64_t, size_t> number_;  // by key, of the entry that holds the tensor
  size_t next_to_write_ = 0;                    // the first that write_waiting() has to look at
};

}  // namespace sluice
