// First in, first out, with room for a fixed number: nothing is allocated after construction. Not synchronised.
#pragma once
#include <cstddef>
#include <utility>
#include <vector>

#include "core/errors.h"

namespace sluice {

template <class T>
class Fifo {
 public:
  explicit Fifo(int capacity) : items_(static_cast<size_t>(capacity)) {}
  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == items_.size(); }
  const T& front() const { return items_[first_]; }  // requires !empty()
  void push(T item) {
    SLUICE_CHECK(!full(), "more than a queue has room for");
    items_[(first_ + count_++) % items_.size()] = std::move(item);
  }
  T pop() {
    SLUICE_CHECK(!empty(), "nothing is in the queue");
    T item = std::move(items_[first_]);
    first_ = (first_ + 1) % items_.size();
    --count_;
    return item;
  }

 private:
  std::vector<T> items_;
  size_t first_ = 0, count_ = 0;
};

}  // namespace sluice
