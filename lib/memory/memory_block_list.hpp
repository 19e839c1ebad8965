#pragma once

#include <cordma/memory/memory_block.hpp>

#include <cstddef>
#include <utility>

namespace cordma {

/// Blocks between two lives, linked through themselves. Callers lock.
class memory_block_list {
 public:
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  void push(memory_block& block) noexcept {
    block.next_free_ = std::exchange(first_, &block);
    ++size_;
  }
  memory_block& pop() noexcept {
    --size_;
    return *std::exchange(first_, first_->next_free_);
  }
  /// Moves blocks to `other` until `left` are left.
  void move_to(memory_block_list& other, std::size_t left) noexcept {
    while (size_ > left) other.push(pop());
  }

 private:
  memory_block* first_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace cordma
