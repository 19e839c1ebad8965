#pragma once

#include "chunk_store.hpp"
#include "jemalloc.hpp"

#include "base/spare_memory.hpp"

namespace cordma {

/// A jemalloc arena whose memory is a chunk store's. \thread any.
class registered_arena {
 public:
  /// \errors errc::not_supported: a jemalloc that would put its own data into registered memory.
  explicit registered_arena(chunk_store& chunks);
  /// Frees everything that was allocated; no thread cache may hold any of it.
  ~registered_arena();
  registered_arena(registered_arena&&) = delete;

  /// Returns the flags for mallocx and dallocx.
  [[nodiscard]] int flags() const noexcept { return MALLOCX_ARENA(index_); }
  /// Returns unused pages to the store.
  void purge();

 private:
  /// Extent hooks, which find their store by their own address.
  struct hooks : extent_hooks_t {
    chunk_store* chunks;
  };
  static const extent_hooks_t table;

  struct control_name {
    char text[48];
  };
  [[nodiscard]] control_name control(const char* name) const noexcept;
  void destroy() noexcept;

  /// Makes an arena that another allocator has left this one's.
  [[nodiscard]] bool adopt() noexcept;
  /// Leaves the arena to a later allocator.
  [[nodiscard]] bool leave() const noexcept;

  hooks hooks_;
  unsigned index_ = 0;
  detail::spare_memory* const spare_;  ///< null: none
};

}  // namespace cordma
