// A queue that wraps a real one and does to it what drives, kernels and power cuts do: fails, moves less, comes late or
// in another order, or ends the process in the middle of its traffic. For tests of everything that stands on an
// IoQueue:
//
//   auto faults = std::make_shared<Faults>();
//   faults->list = {{.op = IoOp::kWrite, .nth = 3, .error_number = EIO}};
//   options.store.make_queue = faulty_queue_factory(faults);
//
// One thread at a time, as for IoQueue; a test may look at the counts while the queue is idle.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "swap/io_queue.h"

namespace sluice {

struct Fault {
  enum class Counts : uint8_t { kOneOp, kAllOps };
  IoOp op = IoOp::kRead;
  int64_t nth = 0;                 // which request of that op, from 0, over the life of Faults
  int64_t times = 1;               // this one and the next times - 1 of that op
  int64_t at = -1;                 // >= 0: of these, the ones that begin at this byte of a file
  int error_number = 0;            // != 0: completes with -error_number and moves nothing
  int64_t short_bytes = -1;        // >= 0: only so many bytes move
  int64_t wrong_byte = -1;         // >= 0: a bit of this byte (modulo the request's size) is another one
  Counts counts = Counts::kOneOp;  // kAllOps: nth counts requests of every op
};

enum class Order : uint8_t { kAsFinished, kReversed, kShuffled };

struct Faults {
  // Plan.
  std::vector<Fault> list;
  Order order =
      Order::kAsFinished;  // kReversed, kShuffled: completions are held back until all in flight have finished
  uint64_t seed = 1;       // of kShuffled
  // Errors are told of once this is false again and somebody interrupts the queue. Null: at once. Any thread's.
  std::shared_ptr<std::atomic<bool>> keep_errors_back{};
  // The n-th poll (from 0) throws an IoError, as that of a queue that breaks. -1: none.
  int64_t poll_that_throws = -1;
  // SIGKILL to this process once so many bytes of reads and writes have moved; the request in which that happens moves
  // its first sectors only. -1: never.
  int64_t kill_after_bytes = -1;
  // SIGKILL in place of the n-th superblock write (from 1; that of commit(0) is the first after creation): its table is
  // durable, it is not. 0: never.
  int64_t kill_at_superblock = 0;

  // What happened so far.
  int64_t reads = 0, writes = 0, syncs = 0;  // requests
  int64_t polls = 0;
  int64_t read_bytes = 0, written_bytes = 0;
  int64_t superblock_writes = 0;
};

std::unique_ptr<IoQueue> make_faulty_queue(std::unique_ptr<IoQueue> inner, std::shared_ptr<Faults> faults);
IoQueueFactory faulty_queue_factory(std::shared_ptr<Faults> faults, IoQueueFactory inner = make_io_queue);

}  // namespace sluice
