#pragma once

#include <cordma/detail/base/export.hpp>
#include <cordma/memory/mr_allocator.hpp>

#include <cstddef>
#include <memory>
#include <memory_resource>
#include <new>
#include <span>
#include <type_traits>

namespace cordma {

/// Registered memory for containers: `std::pmr::vector<float> v{&resource}`, and
/// `resource.slice(std::span{v})` names its elements in a request. Memory that a container returns
/// while a request in flight names it is freed at the request's completion.
/// \thread any, all at once.
/// \cost one map element per allocation of a container.
class CORDMA_EXPORT mr_resource final : public std::pmr::memory_resource {
 public:
  /// Makes a resource; `from` must outlive it.
  explicit mr_resource(mr_allocator& from);
  /// Destroys the resource; its containers must have returned all memory.
  ~mr_resource() override;
  mr_resource(mr_resource&&) = delete;

  /// Returns the slice of `objects`, which lie in one allocation of the resource. The slice is
  /// valid until the container returns the memory. \errors errc::out_of_range: some objects do not
  /// lie in it.
  template <class T>
    requires(std::is_trivially_copyable_v<T> && !std::is_const_v<T>)
  [[nodiscard]] local_mr_slice slice(std::span<T> objects) const {
    return slice_of(objects.data(), objects.size_bytes());
  }
  template <class T>
    requires(std::is_trivially_copyable_v<T>)
  [[nodiscard]] const_local_mr_slice slice(std::span<const T> objects) const {
    return slice_of(objects.data(), objects.size_bytes());
  }

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* at, std::size_t bytes, std::size_t alignment) override;
  [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override {
    return this == &other;
  }
  [[nodiscard]] local_mr_slice slice_of(const void* at, std::size_t bytes) const;

  struct allocations;
  mr_allocator* from_;
  const std::unique_ptr<allocations> allocations_;
};

/// A standard allocator over an `mr_resource`, which must outlive its containers. Unlike
/// `std::pmr::polymorphic_allocator`, the allocator moves with a container that is moved, assigned
/// or swapped, and so does the memory.
template <class T>
class mr_std_allocator {
 public:
  using value_type = T;
  using propagate_on_container_copy_assignment = std::true_type;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  explicit mr_std_allocator(mr_resource& resource) noexcept : resource_{&resource} {}
  template <class Other>
  mr_std_allocator(const mr_std_allocator<Other>& other) noexcept : resource_{other.resource()} {}

  [[nodiscard]] T* allocate(std::size_t count) {
    if (count > PTRDIFF_MAX / sizeof(T)) throw std::bad_array_new_length{};
    return static_cast<T*>(resource_->allocate(count * sizeof(T), alignof(T)));
  }
  void deallocate(T* at, std::size_t count) noexcept {
    resource_->deallocate(at, count * sizeof(T), alignof(T));
  }
  [[nodiscard]] mr_resource* resource() const noexcept { return resource_; }

  template <class Other>
  friend bool operator==(const mr_std_allocator& a, const mr_std_allocator<Other>& b) noexcept {
    return a.resource() == b.resource();
  }

 private:
  mr_resource* resource_;
};

}  // namespace cordma
