#include "swap/transfers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "core/errors.h"
#include "core/geometry.h"
#include "core/machine_advice.h"

namespace sluice {
namespace {

constexpr int kMostRetries = 16;  // of a block whose queue has given up trying; while it makes no progress

const char* name_of(IoOp op) {
  if (op == IoOp::kSync) return "fdatasync";
  return op == IoOp::kRead ? "read" : "write";
}

std::string advice_for(int error_number, std::string_view go_on) {
  const auto then_go_on = [go_on](std::string_view first) { return fmt::format("{}; then {}", first, go_on); };
  switch (error_number) {
    case ENOSPC:
      return then_go_on("make room on the drive");
    case EROFS:
    case EACCES:
    case EPERM:
      return then_go_on("the drive or the file has become read-only (dmesg or lsattr says why): make it writable");
    case EINTR:
    case EAGAIN:
      return fmt::format("the system has turned the request away every time it was tried (dmesg may say why): {}",
                         go_on);
    case 0:
      return then_go_on("has the file been cut short? bring back the whole one");
    default:
      return then_go_on(advice_of_machine(error_number, "look at the drive's health (dmesg)"));
  }
}

}  // namespace

Transfers::Transfers(std::unique_ptr<IoQueue> queue, std::span<const Drive> drives, int64_t block_bytes)
    : drives_(drives), block_bytes_(block_bytes), queue_(std::move(queue)) {
  SLUICE_CHECK(block_bytes > 0 && block_bytes % kPlaneAlignmentBytes == 0 && block_bytes <= (int64_t{1} << 30),
               "block_bytes must be a multiple of 4096 up to 1 GiB");
  SLUICE_CHECK(queue_ != nullptr, "make_queue made none");
  const int share = queue_->depth() / static_cast<int>(drives.size());
  SLUICE_CHECK(share > 0, "a queue with less than one request for each drive");
  active_.resize(kMaxTransfers);
  free_.reserve(kMaxTransfers);
  for (int i = kMaxTransfers - 1; i >= 0; --i) free_.push_back(i);
  parts_.resize(kMaxTransfers * drives.size());
  blocks_.resize(static_cast<size_t>(share) * drives.size());
  lanes_.resize(drives.size());
  for (int drive = 0, block = 0; drive < static_cast<int>(drives.size()); ++drive) {
    std::vector<int>& free_blocks = lanes_[static_cast<size_t>(drive)].free_blocks;
    free_blocks.reserve(static_cast<size_t>(share));
    for (int i = 0; i < share; ++i) free_blocks.push_back(block++);
  }
}

int64_t Transfers::memory_bytes(int drives, int queue_depth) {
  // The queue's own part: an io_uring's two rings (powers of two, completions twice as many) and a request a slot.
  constexpr int64_t kQueueBytesPerRequest = 64 * 2 + 16 * 4 + static_cast<int64_t>(sizeof(IoRequest)) + 16;
  constexpr int64_t kQueueBytes = 4096;
  constexpr auto kFifoBytes = kMaxTransfers * static_cast<int64_t>(sizeof(int));
  constexpr auto kSlotsBytes = kMaxTransfers * static_cast<int64_t>(sizeof(Active) + sizeof(int)) + kFifoBytes;
  constexpr auto kLanesBytes = static_cast<int64_t>(sizeof(Lanes) + kMaxTransfers * sizeof(Part)) + 2 * kFifoBytes;
  return static_cast<int64_t>(sizeof(Transfers)) + kSlotsBytes + drives * kLanesBytes +
         queue_depth * (static_cast<int64_t>(sizeof(Block) + sizeof(int)) + kQueueBytesPerRequest) + kQueueBytes;
}

int Transfers::take_slot(const Transfer& transfer) {
  SLUICE_CHECK(!free_.empty(), "more than 64 transfers of a store in flight");
  const int slot = free_.back();
  free_.pop_back();
  active_[static_cast<size_t>(slot)] = {.transfer = transfer, .parts = 0, .error = nullptr};
  return slot;
}

void Transfers::start(const Transfer& transfer, std::span<const Extent> extents) {
  SLUICE_CHECK(!extents.empty(), "a transfer without a place");
  const int slot = take_slot(transfer);
  std::byte* memory = transfer.memory;
  for (const Extent& extent : extents) {
    SLUICE_CHECK(transfer.op == IoOp::kSync || (extent.bytes > 0 && extent.bytes % kPlaneAlignmentBytes == 0 &&
                                                reinterpret_cast<uintptr_t>(memory) % kPlaneAlignmentBytes == 0),
                 "a transfer's bytes and memory must be multiples of 4096");
    const size_t part = part_of(slot, extent.drive);
    parts_[part] = {.memory = memory, .extent = extent, .cut = 0, .blocks = 0, .op = transfer.op, .all_cut = false};
    Lanes& lanes = lanes_[static_cast<size_t>(extent.drive)];
    (transfer.op == IoOp::kRead ? lanes.reads : lanes.writes).push(static_cast<int>(part));
    ++active_[static_cast<size_t>(slot)].parts;
    memory += extent.bytes;
  }
  fill_queue();
}

void Transfers::start_failed(const Transfer& transfer, const std::exception_ptr& error) {
  const int slot = take_slot(transfer);
  active_[static_cast<size_t>(slot)].error = error;
  ended_.push(slot);
}

// Cuts what waits, in its order, while there is room; reads and writes of a drive take turns.
void Transfers::fill_queue() {
  for (Lanes& lanes : lanes_) {
    while (!lanes.free_blocks.empty() && !(lanes.reads.empty() && lanes.writes.empty())) {
      const bool reads = lanes.writes.empty() || (lanes.last == IoOp::kWrite && !lanes.reads.empty());
      lanes.last = reads ? IoOp::kRead : IoOp::kWrite;
      cut_block(lanes, reads ? lanes.reads : lanes.writes);
    }
  }
}

void Transfers::cut_block(Lanes& lanes, Fifo<int>& line) {
  Part& part = parts_[static_cast<size_t>(line.front())];
  const int block = lanes.free_blocks.back();
  lanes.free_blocks.pop_back();
  const int64_t bytes = part.op == IoOp::kSync ? 0 : std::min(block_bytes_, part.extent.bytes - part.cut);
  blocks_[static_cast<size_t>(block)] = {.part = line.front(),
                                         .stalls = 0,
                                         .retries = 0,
                                         .memory = part.memory + part.cut,
                                         .offset = part.extent.offset + part.cut,
                                         .bytes = bytes};
  part.cut += bytes;
  ++part.blocks;
  part.all_cut = part.cut == part.extent.bytes;
  if (part.all_cut) line.pop();
  submit(block);
}

void Transfers::submit(int block) {
  const Block& b = blocks_[static_cast<size_t>(block)];
  const Part& part = parts_[static_cast<size_t>(b.part)];
  queue_->submit({.op = part.op,
                  .file = drives_[static_cast<size_t>(part.extent.drive)].file(),
                  .memory = b.memory,
                  .bytes = static_cast<uint32_t>(b.bytes),
                  .offset = static_cast<uint64_t>(b.offset),
                  .tag = static_cast<uint64_t>(block)});
}

std::exception_ptr Transfers::error_of(const Block& block, int error_number) const {
  const Part& part = parts_[static_cast<size_t>(block.part)];
  const Drive& drive = drives_[static_cast<size_t>(part.extent.drive)];
  const bool moves = part.op != IoOp::kSync;
  return std::make_exception_ptr(IoError({.action = name_of(part.op),
                                          .path = drive.name(),
                                          .offset = moves ? block.offset : -1,
                                          .bytes = moves ? block.bytes : -1,
                                          .error_number = error_number,
                                          .reason = error_number == 0 ? "it moved nothing twice in a row" : "",
                                          .advice = advice_for(error_number, drive.words().go_on)}));
}

// Moves the block's start to the first byte that is missing, down to the drive's alignment. False: no progress for the
// second time in a row.
bool Transfers::resume(Block& block, int64_t moved) {
  const int drive = parts_[static_cast<size_t>(block.part)].extent.drive;
  const int64_t alignment = drives_[static_cast<size_t>(drive)].alignment_bytes();
  const int64_t whole = moved / alignment * alignment;
  block.stalls = whole > 0 ? 0 : block.stalls + 1;
  if (whole > 0) block.retries = 0;
  block.memory += whole;
  block.offset += whole;
  block.bytes -= whole;
  return block.stalls < 2;
}

void Transfers::handle(const IoCompletion& completion) {
  const int index = static_cast<int>(completion.tag);
  Block& block = blocks_[static_cast<size_t>(index)];
  const bool is_transient = completion.result == -EINTR || completion.result == -EAGAIN;
  if (is_transient && block.retries++ < kMostRetries) return submit(index);
  if (completion.result < 0) return finish_block(index, error_of(block, static_cast<int>(-completion.result)));
  if (completion.result >= block.bytes) return finish_block(index, nullptr);
  if (resume(block, completion.result)) return submit(index);
  finish_block(index, error_of(block, 0));
}

void Transfers::finish_block(int block, const std::exception_ptr& error) {
  const int index = blocks_[static_cast<size_t>(block)].part;
  Part& part = parts_[static_cast<size_t>(index)];
  Active& active = active_[static_cast<size_t>(slot_of(index))];
  Lanes& lanes = lanes_[static_cast<size_t>(part.extent.drive)];
  lanes.free_blocks.push_back(block);
  --part.blocks;
  if (error && !active.error) active.error = error;
  if (error && !part.all_cut) {  // only the first in line has been cut in part: cut no more of it
    Fifo<int>& line = part.op == IoOp::kRead ? lanes.reads : lanes.writes;
    SLUICE_CHECK(!line.empty() && line.front() == index, "a transfer cut out of turn");
    line.pop();
    part.all_cut = true;
  }
  if (part.all_cut && part.blocks == 0 && --active.parts == 0) ended_.push(slot_of(index));
}

size_t Transfers::take_ended(std::span<TransferEnd> ends) {
  size_t count = 0;
  while (count < ends.size() && !ended_.empty()) {
    const int slot = ended_.pop();
    Active& active = active_[static_cast<size_t>(slot)];
    ends[count++] = {
        .tag = active.transfer.tag, .owner = active.transfer.owner, .error = std::exchange(active.error, nullptr)};
    free_.push_back(slot);
  }
  return count;
}

void Transfers::run_now(const Transfer& transfer, std::span<const Extent> extents) {
  SLUICE_CHECK(in_flight() == 0, "other transfers are in flight");
  start(transfer, extents);
  TransferEnd end;
  while (poll({&end, 1}, Wait::kUntilOne) == 0) {
  }
  if (end.error) std::rethrow_exception(end.error);
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
