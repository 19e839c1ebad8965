#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace softverbs {

/// The use of a queue's memory: the low half of a `resource_type`. The high half is 0, the kernel's
/// number of an unknown driver.
enum class queue_resource : std::uint64_t { queue_pair, receive_queue, completion_queue };

/// The program's functions for the memory of queues: ibv_alloc_parent_domain(3).
struct domain_memory {
  ibv_pd* pd = nullptr;  ///< the parent domain
  void* pd_context = nullptr;
  void* (*alloc)(ibv_pd*, void*, std::size_t, std::size_t, std::uint64_t) = nullptr;
  void (*free)(ibv_pd*, void*, void*, std::uint64_t) = nullptr;

  /// Null: the default memory is wanted. \errors std::bad_alloc
  [[nodiscard]] void* take(std::size_t bytes, std::size_t alignment, queue_resource what) const {
    void* const memory = alloc(pd, pd_context, bytes, alignment, static_cast<std::uint64_t>(what));
    if (memory == nullptr) throw std::bad_alloc{};
    return memory == IBV_ALLOCATOR_USE_DEFAULT ? nullptr : memory;
  }
  void give_back(void* memory, queue_resource what) const noexcept {
    free(pd, pd_context, memory, static_cast<std::uint64_t>(what));
  }
};

/// The entries of a queue, in default memory or in the program's; zeros at first.
template <class T>
class queue_array {
  static_assert(std::is_trivially_destructible_v<T>);

 public:
  queue_array() noexcept = default;
  /// `from`: null for default memory. \errors std::bad_alloc
  queue_array(std::size_t count, const domain_memory* from, queue_resource what) : what_{what} {
    if (from != nullptr && count != 0) entries_ = from->take(count * sizeof(T), alignof(T), what);
    if (entries_ != nullptr)
      from_ = from;
    else
      entries_ = ::operator new(count * sizeof(T), std::align_val_t{alignof(T)});
    count_ = count;
    std::uninitialized_value_construct_n(begin(), count);
  }
  queue_array(queue_array&& other) noexcept { swap(other); }
  queue_array& operator=(queue_array&& other) noexcept {
    swap(other);
    return *this;
  }
  ~queue_array() {
    if (from_ != nullptr)
      from_->give_back(entries_, what_);
    else
      ::operator delete(entries_, std::align_val_t{alignof(T)});
  }

  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] T& operator[](std::size_t at) noexcept { return begin()[at]; }
  [[nodiscard]] const T& operator[](std::size_t at) const noexcept {
    return static_cast<const T*>(entries_)[at];
  }

 private:
  [[nodiscard]] T* begin() const noexcept { return static_cast<T*>(entries_); }
  void swap(queue_array& other) noexcept {
    std::swap(entries_, other.entries_);
    std::swap(count_, other.count_);
    std::swap(from_, other.from_);
    std::swap(what_, other.what_);
  }

  void* entries_ = nullptr;
  std::size_t count_ = 0;
  const domain_memory* from_ = nullptr;  ///< null: default memory
  queue_resource what_{};
};

}  // namespace softverbs
