// Whole transfers over an IoQueue: cut into blocks, kept waiting while the queue is full, resumed where they came up
// short, reported once. Memory is taken at construction; starting and ending a transfer allocates nothing.
//
// One thread at a time, as for IoQueue; interrupt() from any thread.
#pragma once
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "swap/drive.h"
#include "swap/io_queue.h"

namespace sluice {

constexpr int kMaxTransfers = 64;

struct Transfer {
  IoOp op = IoOp::kRead;
  std::byte* memory = nullptr;  // aligned to 4096; a write only reads it
  int64_t offset = 0, bytes = 0;
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
  // The drive must outlive this.
  Transfers(std::unique_ptr<IoQueue> queue, const Drive& drive, int64_t block_bytes);

  // Never blocks. At most kMaxTransfers may be in flight: more is a programmer's error.
  void start(const Transfer& transfer);
  // Ends at once with this error, at the next poll.
  void start_failed(const Transfer& transfer, const std::exception_ptr& error);
  // Pushes what was started, reports what has ended. An interrupt ends the wait.
  size_t poll(std::span<TransferEnd> ends, Wait wait);
  void interrupt() { queue_->interrupt(); }
  int in_flight() const { return kMaxTransfers - static_cast<int>(free_.size()); }
  const IoQueue& queue() const { return *queue_; }

  static int64_t memory_bytes(int depth);

 private:
  struct Active {
    Transfer transfer;
    int64_t cut = 0;  // bytes given to blocks so far
    int blocks = 0;   // in flight
    std::exception_ptr error;
  };
  struct Block {
    int transfer = 0, stalls = 0;
    std::byte* memory = nullptr;
    int64_t offset = 0, bytes = 0;
  };
  // Indices in first-in-first-out order.
  class Line {
   public:
    bool empty() const { return count_ == 0; }
    int front() const { return items_[first_]; }
    void push(int item) { items_[(first_ + count_++) % kMaxTransfers] = item; }
    void pop() { first_ = (first_ + 1) % kMaxTransfers, --count_; }

   private:
    int items_[kMaxTransfers] = {};
    unsigned first_ = 0, count_ = 0;
  };

  int take_slot(const Transfer& transfer);
  void fill_queue();
  void submit(int block);
  void handle(const IoCompletion& completion);
  bool resume(Block& block, int64_t moved);
  void finish_block(int block, const std::exception_ptr& error);
  std::exception_ptr error_of(const Block& block, int error_number) const;
  size_t take_ended(std::span<TransferEnd> ends);

  const Drive& drive_;
  int64_t block_bytes_;
  std::vector<Active> active_;
  std::vector<int> free_;
  Line waiting_, ended_;
  std::vector<Block> blocks_;
  std::vector<int> free_blocks_;
  std::unique_ptr<IoQueue> queue_;  // last: its end waits for what still uses the callers' memory
};

}  // namespace sluice
