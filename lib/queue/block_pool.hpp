#pragma once

#include <cstddef>
#include <memory_resource>
#include <new>
#include <utility>

namespace cordma {

/// Blocks of one size beside each other, which come back to the pool. An allocation that fails
/// changes nothing: after one, libstdc++'s unsynchronized_pool_resource crashes. \thread one.
class block_pool final : public std::pmr::memory_resource {
 private:
  struct free_block {
    free_block* next;
  };
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    if (free_ == nullptr) return memory_.allocate(bytes, alignment);
    return std::exchange(free_, free_->next);
  }
  void do_deallocate(void* block, std::size_t /*bytes*/, std::size_t /*alignment*/) override {
    free_ = ::new (block) free_block{free_};
  }
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  std::pmr::monotonic_buffer_resource memory_;
  free_block* free_ = nullptr;
};

}  // namespace cordma
