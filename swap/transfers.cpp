#include "swap/transfers.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "core/errors.h"
#include "core/geometry.h"

namespace sluice {
namespace {

const char* name_of(IoOp op) {
  if (op == IoOp::kSync) return "fdatasync";
  return op == IoOp::kRead ? "read" : "write";
}

std::string advice_for(int error_number) {
  constexpr const char* kResume = "training can go on from the last committed step (--resume)";
  if (error_number == ENOSPC || error_number == EDQUOT) return std::string("make room on the drive; ") + kResume;
  if (error_number == 0) return std::string("has the file been cut short? ") + kResume;
  return std::string("look at the drive's health (dmesg); ") + kResume;
}

}  // namespace

Transfers::Transfers(std::unique_ptr<IoQueue> queue, const Drive& drive, int64_t block_bytes)
    : drive_(drive), block_bytes_(block_bytes), queue_(std::move(queue)) {
  SLUICE_CHECK(block_bytes > 0 && block_bytes % kPlaneAlignmentBytes == 0 && block_bytes <= (int64_t{1} << 30),
               "block_bytes must be a multiple of 4096 up to 1 GiB");
  active_.resize(kMaxTransfers);
  free_.reserve(kMaxTransfers);
  for (int i = kMaxTransfers - 1; i >= 0; --i) free_.push_back(i);
  blocks_.resize(static_cast<size_t>(queue_->depth()));
  free_blocks_.reserve(blocks_.size());
  for (int i = queue_->depth() - 1; i >= 0; --i) free_blocks_.push_back(i);
}

int64_t Transfers::memory_bytes(int depth) {
  // The queue's own part: an io_uring's two rings (powers of two, completions twice as many) and a request a slot.
  constexpr int64_t kQueueBytesPerRequest = 64 * 2 + 16 * 4 + static_cast<int64_t>(sizeof(IoRequest)) + 16;
  constexpr int64_t kQueueBytes = 4096;
  return kMaxTransfers * static_cast<int64_t>(sizeof(Active) + sizeof(int)) + static_cast<int64_t>(sizeof(Transfers)) +
         depth * (static_cast<int64_t>(sizeof(Block) + sizeof(int)) + kQueueBytesPerRequest) + kQueueBytes;
}

int Transfers::take_slot(const Transfer& transfer) {
  SLUICE_CHECK(!free_.empty(), "more than 64 transfers of a store in flight");
  const int slot = free_.back();
  free_.pop_back();
  active_[static_cast<size_t>(slot)] = {.transfer = transfer, .cut = 0, .blocks = 0, .error = nullptr};
  return slot;
}

void Transfers::start(const Transfer& transfer) {
  SLUICE_CHECK(transfer.op == IoOp::kSync || (transfer.bytes > 0 && transfer.bytes % kPlaneAlignmentBytes == 0 &&
                                              reinterpret_cast<uintptr_t>(transfer.memory) % kPlaneAlignmentBytes == 0),
               "a transfer's bytes and memory must be multiples of 4096");
  waiting_.push(take_slot(transfer));
  fill_queue();
}

void Transfers::start_failed(const Transfer& transfer, const std::exception_ptr& error) {
  const int slot = take_slot(transfer);
  active_[static_cast<size_t>(slot)].error = error;
  ended_.push(slot);
}

// Cuts the transfers that wait, in their order, while the queue has room.
void Transfers::fill_queue() {
  while (!waiting_.empty() && !free_blocks_.empty()) {
    const int slot = waiting_.front();
    Active& active = active_[static_cast<size_t>(slot)];
    const Transfer& transfer = active.transfer;
    const int block = free_blocks_.back();
    free_blocks_.pop_back();
    const int64_t part = transfer.op == IoOp::kSync ? 0 : std::min(block_bytes_, transfer.bytes - active.cut);
    blocks_[static_cast<size_t>(block)] = {.transfer = slot,
                                           .stalls = 0,
                                           .memory = transfer.memory + active.cut,
                                           .offset = transfer.offset + active.cut,
                                           .bytes = part};
    active.cut += part;
    ++active.blocks;
    if (transfer.op == IoOp::kSync || active.cut == transfer.bytes) waiting_.pop();
    submit(block);
  }
}

void Transfers::submit(int block) {
  const Block& b = blocks_[static_cast<size_t>(block)];
  queue_->submit({.op = active_[static_cast<size_t>(b.transfer)].transfer.op,
                  .file = drive_.file(),
                  .memory = b.memory,
                  .bytes = static_cast<uint32_t>(b.bytes),
                  .offset = static_cast<uint64_t>(b.offset),
                  .tag = static_cast<uint64_t>(block)});
}

std::exception_ptr Transfers::error_of(const Block& block, int error_number) const {
  const IoOp op = active_[static_cast<size_t>(block.transfer)].transfer.op;
  const bool moves = op != IoOp::kSync;
  return std::make_exception_ptr(IoError({.action = name_of(op),
                                          .path = drive_.path().string(),
                                          .offset = moves ? block.offset : -1,
                                          .bytes = moves ? block.bytes : -1,
                                          .error_number = error_number,
                                          .advice = advice_for(error_number)}));
}

// Moves the block's start to the first byte that is missing, down to the drive's alignment. False: no progress for the
// second time in a row.
bool Transfers::resume(Block& block, int64_t moved) {
  const int64_t whole = moved / drive_.alignment_bytes() * drive_.alignment_bytes();
  block.stalls = whole > 0 ? 0 : block.stalls + 1;
  block.memory += whole;
  block.offset += whole;
  block.bytes -= whole;
  return block.stalls < 2;
}

void Transfers::handle(const IoCompletion& completion) {
  const int index = static_cast<int>(completion.tag);
  Block& block = blocks_[static_cast<size_t>(index)];
  if (completion.result == -EINTR || completion.result == -EAGAIN) return submit(index);
  if (completion.result < 0) return finish_block(index, error_of(block, static_cast<int>(-completion.result)));
  if (completion.result >= block.bytes) return finish_block(index, nullptr);
  if (resume(block, completion.result)) return submit(index);
  finish_block(index, error_of(block, 0));
}

void Transfers::finish_block(int block, const std::exception_ptr& error) {
  const int slot = blocks_[static_cast<size_t>(block)].transfer;
  Active& active = active_[static_cast<size_t>(slot)];
  free_blocks_.push_back(block);
  --active.blocks;
  const bool whole = active.transfer.op == IoOp::kSync || active.cut == active.transfer.bytes;
  if (error && !active.error) {
    active.error = error;
    if (!whole) {  // only the first in line has been cut in part: cut no more of it
      SLUICE_CHECK(!waiting_.empty() && waiting_.front() == slot, "a transfer cut out of turn");
      waiting_.pop();
      active.cut = active.transfer.bytes;
    }
  } else if (!whole) {
    return;
  }
  if (active.blocks == 0) ended_.push(slot);
}

size_t Transfers::take_ended(std::span<TransferEnd> ends) {
  size_t count = 0;
  while (count < ends.size() && !ended_.empty()) {
    const int slot = ended_.front();
    ended_.pop();
    Active& active = active_[static_cast<size_t>(slot)];
    ends[count++] = {
        .tag = active.transfer.tag, .owner = active.transfer.owner, .error = std::exchange(active.error, nullptr)};
    free_.push_back(slot);
  }
  return count;
}

size_t Transfers::poll(std::span<TransferEnd> ends, Wait wait) {
  for (;;) {
    fill_queue();
    queue_->flush();
    const bool waits = wait == Wait::kUntilOne && ended_.empty();
    std::array<IoCompletion, 32> completions;
    const size_t count = queue_->poll(completions, waits ? Wait::kUntilOne : Wait::kNo);
    for (size_t i = 0; i < count; ++i) handle(completions[i]);
    if (count > 0) {
      fill_queue();
      queue_->flush();
    }
    const size_t ended = take_ended(ends);
    if (ended > 0 || wait == Wait::kNo || count == 0) return ended;
  }
}

}  // namespace sluice
