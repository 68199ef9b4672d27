// Runs the blocks of a launch on the host as a GPU may: so many at once, each from one barrier to the next, in an order
// drawn from a seed in which a third of them are slow. Each is a thread, of which one at a time runs.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <semaphore>
#include <thread>
#include <vector>

#include "offload/device_kernels.h"

namespace sluice {

// All blocks that have started wait, and no other may start.
struct NoBlockCanGoOn {};

class ResidentBlock {
 public:
  explicit ResidentBlock(int64_t number) : number_(number) {}
  int64_t number() const { return number_; }

  // Threads one after another, on their way back to the first, which no kernel may notice.
  template <class Work>
  void threads(const Work& work) const {
    for (int thread = kernels::kBlockThreads - 1; thread >= 0; --thread) work(thread);
    pause(State::kGoesOn);
  }
  uint32_t next(uint32_t* counter) const { return (*counter)++; }
  void tell(uint32_t* word, uint32_t bits) const { *word |= bits; }
  bool told(const uint32_t* word, uint32_t bits) const { return (*word & bits) == bits; }
  template <class Condition>
  void wait(const Condition& condition) const {
    for (int thread = kernels::kBlockThreads - 1; thread >= 0; --thread) {
      while (!condition(thread)) pause(State::kWaits);
    }
    pause(State::kGoesOn);
  }

 private:
  template <class>
  friend class ResidentBlocks;
  enum class State : uint8_t { kGoesOn, kWaits, kEnded };

  void pause(State state) const {
    state_ = state;
    paused_.release();
    turn_.acquire();
    if (given_up_) throw NoBlockCanGoOn();
  }

  const int64_t number_;
  mutable State state_ = State::kGoesOn;
  mutable std::binary_semaphore turn_{0}, paused_{0};
  bool slow_ = false, given_up_ = false;
  std::thread thread_;
};

// Block: ResidentBlock, or what derives from it.
template <class Block>
class ResidentBlocks {
 public:
  ResidentBlocks(int64_t blocks, int64_t at_once, uint64_t seed)
      : not_started_(static_cast<size_t>(blocks)), at_once_(static_cast<size_t>(at_once)), random_(seed) {
    std::iota(not_started_.begin(), not_started_.end(), 0);
    std::ranges::shuffle(not_started_, random_);
  }

  // Calls run(block) for every block. Throws NoBlockCanGoOn.
  template <class Run>
  void run(const Run& run_block) {
    while (!not_started_.empty() || !blocks_.empty()) {
      Block* block = next_block(run_block);
      if (block == nullptr) give_up();
      block->turn_.release();
      block->paused_.acquire();
      if (block->state_ != State::kWaits) waiting_.clear();
      if (block->state_ == State::kWaits) waiting_.push_back(block);
      if (block->state_ == State::kEnded) end(block);
    }
  }

 private:
  using State = ResidentBlock::State;

  // One that runs and may have something new to see, or one that starts; null: there is none.
  template <class Run>
  Block* next_block(const Run& run_block) {
    const bool may_start = !not_started_.empty() && blocks_.size() < at_once_;
    std::vector<Block*> ready, slow;
    for (const auto& block : blocks_) {
      if (std::ranges::find(waiting_, block.get()) != waiting_.end()) continue;
      (block->slow_ ? slow : ready).push_back(block.get());
    }
    if ((ready.empty() && !may_start) || random_() % 64 == 0) ready.insert(ready.end(), slow.begin(), slow.end());
    const size_t drawn = random_() % std::max<size_t>(1, ready.size() + (may_start ? 1 : 0));
    if (drawn < ready.size()) return ready[drawn];
    return may_start ? start(run_block) : nullptr;
  }

  template <class Run>
  Block* start(const Run& run_block) {
    blocks_.push_back(std::make_unique<Block>(not_started_.back()));
    not_started_.pop_back();
    Block* const block = blocks_.back().get();
    block->slow_ = random_() % 3 == 0;
    block->thread_ = std::thread([block, &run_block] {
      block->turn_.acquire();
      try {
        run_block(*block);
      } catch (const NoBlockCanGoOn&) {
      }
      block->state_ = State::kEnded;
      block->paused_.release();
    });
    return block;
  }

  void end(const Block* block) {
    const auto at = std::ranges::find(blocks_, block, &std::unique_ptr<Block>::get);
    (*at)->thread_.join();
    blocks_.erase(at);
  }

  [[noreturn]] void give_up() {
    for (const auto& block : blocks_) {
      block->given_up_ = true;
      block->turn_.release();
      block->thread_.join();
    }
    throw NoBlockCanGoOn();
  }

  std::vector<int64_t> not_started_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<const Block*> waiting_;  // since another block last went on
  size_t at_once_;
  std::mt19937_64 random_;
};

}  // namespace sluice
