#pragma once

#include <cordma/detail/base/export.hpp>
#include <cordma/detail/queue/work_request.hpp>
#include <cordma/memory/slice.hpp>
#include <cordma/verbs/access.hpp>

#include <endian.h>
#include <infiniband/verbs.h>

#include <cstdint>

namespace cordma {

namespace verbs {
class memory_region;
class memory_window;
}  // namespace verbs

/// Options of one send-queue request (ibv_post_send(3)).
struct request_flags {
  /// Starts the request only when the earlier READs and atomics have ended: it sends what they have
  /// brought.
  bool fence = false;
  /// Makes the peer's completion queue, if armed for solicited events only, report the receive.
  bool solicited = false;
  /// False saves the CQE of a request that is posted, not awaited. An unsignaled request ends with
  /// a later signaled one of the queue pair, and keeps its slot and memory until then.
  bool signaled = true;

  /// Returns the flags in the form that the device reads.
  [[nodiscard]] constexpr unsigned to_verbs() const noexcept {
    return unsigned{fence} * IBV_SEND_FENCE | unsigned{solicited} * IBV_SEND_SOLICITED |
           unsigned{signaled} * IBV_SEND_SIGNALED;
  }
};

// The functions below describe requests to a queue pair as values, which own nothing and are bound
// to no queue pair. `conn.write(…)` awaits one; `conn.post(write(…))` and `conn.post_all(…)` post
// them. Each request gives the number of bytes it moved; an atomic gives the value before.
//
// Local memory is a `local_mr`, a slice, or what `gather` (for `read`: `scatter`) combines.

/// Sends these bytes to the next receive of the peer.
auto send(const auto& local, request_flags flags = {}) noexcept {
  return detail::data_request_of<request_kind::send>(local, detail::no_remote{}, IBV_WR_SEND,
                                                     flags.to_verbs());
}
/// Sends these bytes, with 32 bits of immediate data beside them.
auto send_with_imm(const auto& local, std::uint32_t immediate, request_flags flags = {}) noexcept {
  return detail::data_request_of<request_kind::send>(
      local, detail::no_remote{}, IBV_WR_SEND_WITH_IMM, flags.to_verbs(), htobe32(immediate));
}

/// Copies local bytes to the start of `remote`, which must have room for them.
auto write(const auto& local, const remote_mr_slice& remote, request_flags flags = {}) noexcept {
  return detail::data_request_of<request_kind::write>(local, remote, IBV_WR_RDMA_WRITE,
                                                      flags.to_verbs());
}
/// Writes as `write` does, then completes one receive of the peer with 32 bits of immediate data.
/// The receive's buffer is not written.
auto write_with_imm(const auto& local, const remote_mr_slice& remote, std::uint32_t immediate,
                    request_flags flags = {}) noexcept {
  return detail::data_request_of<request_kind::write>(local, remote, IBV_WR_RDMA_WRITE_WITH_IMM,
                                                      flags.to_verbs(), htobe32(immediate));
}

/// Fills local memory from the start of `remote`.
auto read(auto&& local, const remote_mr_slice& remote, request_flags flags = {}) noexcept {
  return detail::data_request_of<request_kind::read, local_mr_slice>(
      local, remote, IBV_WR_RDMA_READ, flags.to_verbs());
}

/// Swaps the 8 bytes at `remote` for `desired` if they equal `expected`. `remote` is 8-aligned and
/// holds a word in the byte order of the peer's host. The request gives the value before; the swap
/// happened if that equals `expected`. The operation is atomic against other atomics of the same
/// device (`device_limits::atomic`).
inline atomic_request compare_swap(const remote_mr_slice& remote, std::uint64_t expected,
                                   std::uint64_t desired, request_flags flags = {}) noexcept {
  return {IBV_WR_ATOMIC_CMP_AND_SWP, remote, expected, desired, flags.to_verbs()};
}
/// Adds to the 8 bytes at `remote`, wrapping at 2^64. The request gives the value before.
inline atomic_request fetch_add(const remote_mr_slice& remote, std::uint64_t addend,
                                request_flags flags = {}) noexcept {
  return {IBV_WR_ATOMIC_FETCH_AND_ADD, remote, addend, 0, flags.to_verbs()};
}

/// Replaces the 8 bytes at `remote`, which is 8-aligned, by `value` in the byte order of this host.
/// The peer's processor and other requests see the whole word or nothing of it (IBTA vol. 1, annex
/// A19). The request needs the right to write, and counts as a READ towards `rd_atomic_max`. It
/// gives the number of bytes, 8.
/// \errors errc::not_supported: the device has no ATOMIC WRITE (`device_limits::atomic_write`).
inline detail::atomic_write_request atomic_write(const remote_mr_slice& remote, std::uint64_t value,
                                                 request_flags flags = {}) noexcept {
  return {{IBV_WR_ATOMIC_WRITE, remote, value, 0, flags.to_verbs()}};
}

/// Binds `window` to `local`, which lies in `region`. The peer of the queue pair may then reach
/// `local` by the key that the request gives. Through a type-1 window the peers of all queue pairs
/// of the domain may. `granted` is a subset of remote_read, remote_write and remote_atomic. A
/// type-2 window may be zero_based, and must be unbound. Call `memory_window::bound` when its
/// request has completed. A bind of a type-1 window ends the one before. A bind of no bytes does
/// that alone.
///
/// cordma refuses, before posting, what the device would refuse, because a failed bind breaks the
/// connection. Region, window and memory stay until the request has completed, and the memory for
/// as long as the window is bound. A type-1 window stays until the key was read.
/// \errors errc::out_of_range: `local` is outside `region`. errc::wrong_protection_domain.
///   errc::access_denied: `granted` exceeds the rights of `region`, `region` was registered without
///   mw_bind, or without local_write for writes and atomics.
CORDMA_EXPORT bind_request bind(const verbs::memory_window& window,
                                const verbs::memory_region& region,
                                const const_local_mr_slice& local, verbs::access granted,
                                request_flags flags = {}) noexcept;
/// Ends a window of this queue pair: once the request has completed, the key reaches nothing.
inline invalidate_request invalidate(std::uint32_t rkey, request_flags flags = {}) noexcept {
  return {rkey, flags.to_verbs()};
}

}  // namespace cordma
