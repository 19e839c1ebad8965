#pragma once

#include <cstddef>
#include <utility>

namespace cordma {

/// A list of blocks between two generations, linked through themselves. Callers lock.
template <class Block>
class block_list {
 public:
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  void push(Block& block) noexcept {
    block.next_free_ = std::exchange(first_, &block);
    ++size_;
  }
  Block& pop() noexcept {
    --size_;
    return *std::exchange(first_, first_->next_free_);
  }

 private:
  Block* first_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace cordma
