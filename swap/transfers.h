// Whole transfers over an IoQueue: spread over drives, cut into blocks, kept waiting while the queue is full, resumed
// where they came up short, reported once. Memory is taken at construction; starting and ending a transfer allocates
// nothing.
//
// Every drive has its own share of the queue, a lane of reads and one of writes: a slow drive holds back no other, and
// a read that comes behind any number of writes has the next block of its drive that falls free.
//
// One thread at a time, as for IoQueue; interrupt() from any thread.
#pragma once
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "core/fifo.h"
#include "swap/drive.h"
#include "swap/io_queue.h"
#include "swap/record_store.h"

namespace sluice {

// What is moved lies in `extents`, at most one a drive, one after the other in memory. A sync: extents of no bytes.
struct Transfer {
  IoOp op = IoOp::kRead;
  std::byte* memory = nullptr;  // aligned to 4096; a write only reads it
  uint64_t tag = 0;
  uint32_t owner = 0;  // comes back with the end, as the tag does
};

struct TransferEnd {
  uint64_t tag = 0;
  uint32_t owner = 0;
  std::exception_ptr error;  // IoError: the first block's that failed
};

class Transfers {
 public:
  // The drives must outlive this. Each gets an equal share of the queue's depth.
  Transfers(std::unique_ptr<IoQueue> queue, std::span<const Drive> drives, int64_t block_bytes);

  // Never blocks. At most kMaxTransfers may be in flight: more is a programmer's error.
  void start(const Transfer& transfer, std::span<const Extent> extents);
  // Ends at once with this error, at the next poll.
  void start_failed(const Transfer& transfer, const std::exception_ptr& error);
  // Pushes what was started, reports what has ended. An interrupt ends the wait.
  size_t poll(std::span<TransferEnd> ends, Wait wait);
  // From its start to its end, with nothing else in flight. Throws its error.
  void run_now(const Transfer& transfer, std::span<const Extent> extents);
  void interrupt() { queue_->interrupt(); }
  int in_flight() const { return kMaxTransfers - static_cast<int>(free_.size()); }
  const IoQueue& queue() const { return *queue_; }

  // queue_depth: of all drives together.
  static int64_t memory_bytes(int drives, int queue_depth);

 private:
  struct Active {
    Transfer transfer;
    int parts = 0;  // not yet ended
    std::exception_ptr error;
  };
  // A transfer's extent on one drive.
  struct Part {
    std::byte* memory = nullptr;
    Extent extent;
    int64_t cut = 0;  // bytes given to blocks so far
    int blocks = 0;   // in flight
    IoOp op = IoOp::kRead;
    bool all_cut = false;
  };
  struct Block {
    int part = 0, stalls = 0, retries = 0;
    std::byte* memory = nullptr;
    int64_t offset = 0, bytes = 0;
  };
  // One drive's parts that wait for blocks, and the blocks that are free.
  struct Lanes {
    Fifo<int> reads{kMaxTransfers}, writes{kMaxTransfers};  // syncs go with the writes
    IoOp last = IoOp::kWrite;
    std::vector<int> free_blocks;
  };

  int take_slot(const Transfer& transfer);
  size_t part_of(int slot, int drive) const { return static_cast<size_t>(slot) * drives_.size() + drive; }
  int slot_of(int part) const { return part / static_cast<int>(drives_.size()); }
  void fill_queue();
  void cut_block(Lanes& lanes, Fifo<int>& line);
  void submit(int block);
  void handle(const IoCompletion& completion);
  bool resume(Block& block, int64_t moved);
  void finish_block(int block, const std::exception_ptr& error);
  std::exception_ptr error_of(const Block& block, int error_number) const;
  size_t take_ended(std::span<TransferEnd> ends);

  std::span<const Drive> drives_;
  int64_t block_bytes_;
  std::vector<Active> active_;      // by slot
  std::vector<int> free_;           // slots
  std::vector<Part> parts_;         // by slot, then by drive
  std::vector<Lanes> lanes_;        // by drive
  Fifo<int> ended_{kMaxTransfers};  // slots
  std::vector<Block> blocks_;
  std::unique_ptr<IoQueue> queue_;  // last: its end waits for what still uses the callers' memory
};

}  // namespace sluice
