#pragma once

#include <array>
#include <cstddef>
#include <optional>

namespace cordma::detail {

/// Memory that allocators have left for later ones. A simulation makes and destroys hundreds of
/// allocators a second, and the kernel's new pages would take half of the time. \thread one.
class spare_memory {
 public:
  /// Returns the memory of the calling thread's scope; null: allocators ask the kernel.
  [[nodiscard]] static spare_memory* current() noexcept;

  /// Returns zeroed memory, some of which may have no access yet; null: there is none that large.
  void* take(std::size_t bytes) noexcept;
  /// Keeps zeroed memory. False: there is too much.
  bool give(void* at, std::size_t bytes) noexcept;

  /// Returns the index of an arena of jemalloc without memory, if there is one.
  std::optional<unsigned> take_arena() noexcept;
  /// Keeps an arena. False: there are too many.
  bool give_arena(unsigned index) noexcept;

 private:
  static constexpr std::size_t allocators_max = 64;
  struct range {
    void* at = nullptr;
    std::size_t bytes = 0;
  };
  std::array<range, allocators_max> ranges_{};
  std::array<unsigned, allocators_max> arenas_{};
  std::size_t arena_count_ = 0;
};

/// Makes allocators of this thread take spare memory, and leave theirs. Scopes may be nested.
class spare_memory_scope {
 public:
  explicit spare_memory_scope(spare_memory& memory) noexcept;
  spare_memory_scope(spare_memory_scope&&) = delete;
  ~spare_memory_scope();

 private:
  spare_memory* const outer_;
};

}  // namespace cordma::detail
