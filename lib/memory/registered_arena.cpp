#include "registered_arena.hpp"

#include "base/failures.hpp"

#include <cordma/detail/base/assert.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace cordma {
namespace {

/// Argument of experimental.arenas_create_ext, which jemalloc.h of 5.3 does not declare.
struct arena_config {
  extent_hooks_t* hooks;
  bool metadata_use_hooks;
};

constexpr ssize_t never = -1;  // Decay time, in milliseconds.

/// Returns what keeps arenas; null: nothing does. With opt.retain, an arena keeps extents, whose
/// chunks go.
detail::spare_memory* spare_arenas() {
  detail::spare_memory* const spare = detail::spare_memory::current();
  return spare == nullptr || jemalloc::get<bool>("opt.retain") ? nullptr : spare;
}

}  // namespace

// Pages stay backed and registered as long as their chunk. Hooks that would change that refuse
// (true); hooks that only record accept (false).
const extent_hooks_t registered_arena::table{
    .alloc = [](extent_hooks_t* self, void* wanted, std::size_t bytes, std::size_t alignment,
                bool* zero, bool* commit, unsigned) -> void* {
      if (wanted != nullptr) return nullptr;  // Growing in place is refused: chunks do not grow.
      void* const at = static_cast<hooks*>(self)->chunks->take(bytes, alignment);
      if (at == nullptr) return nullptr;
      if (*zero) std::memset(at, 0, bytes);
      *commit = true;
      return at;
    },
    .dalloc = [](extent_hooks_t* self, void* at, std::size_t bytes, bool, unsigned) -> bool {
      static_cast<hooks*>(self)->chunks->give_back(at, bytes);
      return false;
    },
    .destroy = [](extent_hooks_t* self, void* at, std::size_t bytes, bool,
                  unsigned) { static_cast<hooks*>(self)->chunks->give_back(at, bytes); },
    .commit = [](extent_hooks_t*, void*, std::size_t, std::size_t, std::size_t, unsigned) -> bool {
      return false;
    },
    .decommit = [](extent_hooks_t*, void*, std::size_t, std::size_t, std::size_t,
                   unsigned) -> bool { return true; },
    .purge_lazy = [](extent_hooks_t*, void*, std::size_t, std::size_t, std::size_t,
                     unsigned) -> bool { return true; },
    .purge_forced = [](extent_hooks_t*, void*, std::size_t, std::size_t, std::size_t,
                       unsigned) -> bool { return true; },
    .split = [](extent_hooks_t*, void*, std::size_t, std::size_t, std::size_t, bool,
                unsigned) -> bool { return false; },
    // A request for registered memory names one key: no extent may cross a chunk's end.
    .merge = [](extent_hooks_t* self, void* a, std::size_t, void* b, std::size_t, bool, unsigned)
        -> bool { return !static_cast<hooks*>(self)->chunks->in_one_chunk(a, b); },
};

registered_arena::registered_arena(chunk_store& chunks)
    : hooks_{table, &chunks}, spare_{spare_arenas()} {
  if (adopt()) return;
  arena_config config{&hooks_, false};
  std::size_t bytes = sizeof index_;
  const char* const create = "experimental.arenas_create_ext";
  if (const int error = jemalloc::mallctl(create, &index_, &bytes, &config, sizeof config)) {
    if (error == EAGAIN) {
      detail::throw_failure(errc::limit_exceeded, create,
                            "jemalloc has 4094 arenas in a process, and each mr_allocator takes "
                            "one: share allocators, or destroy some");
    }
    detail::throw_failure(errc::not_supported, create,
                          "jemalloc 5.3 or later is needed, with its experimental controls: use "
                          "-Djemalloc=private",
                          {"errno", std::uint64_t(error)});
  }
  try {
    // Freed memory never returns to the store by itself, and is reused, whatever its size.
    jemalloc::set(control("dirty_decay_ms").text, never);
    jemalloc::set(control("muzzy_decay_ms").text, never);
    jemalloc::set(control("oversize_threshold").text, ~std::size_t{0} >> 1);
    // With opt.retain, jemalloc keeps freed extents, and asks for ever more at a time.
    if (jemalloc::get<bool>("opt.retain"))
      jemalloc::set(control("retain_grow_limit").text, chunks.chunk_bytes());
    // jemalloc's own data, made with the arena, must not have come from the hooks.
    if (chunks.count().registrations != 0) {
      detail::throw_failure(errc::not_supported, create,
                            "jemalloc put its own data into registered memory");
    }
  } catch (...) {
    destroy();
    throw;
  }
}

registered_arena::~registered_arena() {
  if (!leave()) destroy();
}

bool registered_arena::adopt() noexcept {
  const std::optional<unsigned> left = spare_ == nullptr ? std::nullopt : spare_->take_arena();
  if (!left) return false;
  index_ = *left;
  extent_hooks_t* own = &hooks_;
  const int error = jemalloc::mallctl(control("extent_hooks").text, nullptr, nullptr, &own,
                                      sizeof(extent_hooks_t*));
  CORDMA_ASSERT(error == 0, "jemalloc refuses the hooks of an arena");
  return true;
}

bool registered_arena::leave() const noexcept {
  if (spare_ == nullptr) return false;
  for (const char* const call : {"reset", "purge"})
    if (jemalloc::mallctl(control(call).text, nullptr, nullptr, nullptr, 0) != 0) return false;
  return spare_->give_arena(index_);
}

void registered_arena::destroy() noexcept {
  const int error = jemalloc::mallctl(control("destroy").text, nullptr, nullptr, nullptr, 0);
  CORDMA_ASSERT(error == 0, "jemalloc keeps an arena whose hooks go");
}

void registered_arena::purge() { jemalloc::call(control("purge").text); }

registered_arena::control_name registered_arena::control(const char* name) const noexcept {
  control_name made;
  std::snprintf(made.text, sizeof made.text, "arena.%u.%s", index_, name);
  return made;
}

}  // namespace cordma
