#pragma once

#include "chunk_store.hpp"
#include "jemalloc.hpp"

#include <string>

namespace cordma {

/// A jemalloc arena whose memory is a chunk store's. Thread: any.
class registered_arena {
 public:
  /// \errors errc::not_supported: a jemalloc that would put its own data into registered memory.
  explicit registered_arena(chunk_store& chunks);
  /// All that was allocated goes, and no thread cache may hold anything of it.
  ~registered_arena();
  registered_arena(const registered_arena&) = delete;
  registered_arena& operator=(const registered_arena&) = delete;

  /// For mallocx and sdallocx.
  [[nodiscard]] int flags() const noexcept { return MALLOCX_ARENA(index_); }
  /// Gives the pages of which nothing is in use back to the store.
  void purge();

 private:
  /// The hooks find their store by their own address.
  struct hooks : extent_hooks_t {
    chunk_store* chunks;
  };
  static const extent_hooks_t table;

  [[nodiscard]] std::string control(const char* name) const;
  void verify() const;

  hooks hooks_;
  unsigned index_ = 0;
};

}  // namespace cordma
