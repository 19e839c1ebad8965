#pragma once

#include <cordma/detail/coro/frame_cache.hpp>

#include <cstdint>

namespace cordma::sim::detail {

class host_state;

/// Lets an allocation fail in a block, which is a step of a host: one by operator new, of the
/// program or the library. Those of softverbs and of the simulation never fail. With a sanitizer of
/// clang none does, because operator new is the sanitizer's.
class allocation_scope {
 public:
  /// \param countdown  the last of so many fails; 0: none. It is 0 when one has failed.
  allocation_scope(host_state& host, std::uint64_t& countdown) noexcept;
  allocation_scope(const allocation_scope&) = delete;
  ~allocation_scope();
};

/// While it lives, each frame of a coroutine is an allocation: the thread keeps none for reuse.
class fresh_frames {
 public:
  fresh_frames() noexcept;
  fresh_frames(const fresh_frames&) = delete;
  ~fresh_frames();

 private:
  const decltype(frame_cache::detail::lists) kept_;
  const frame_cache::detail::thread_state state_;
};

}  // namespace cordma::sim::detail
