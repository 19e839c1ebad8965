#pragma once

#include <cordma/detail/base/export.hpp>
#include <cordma/detail/queue/work_request.hpp>
#include <cordma/memory/slice.hpp>
#include <cordma/verbs/access.hpp>

#include <endian.h>
#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace cordma {

namespace verbs {
class memory_region;
class memory_window;
}  // namespace verbs

/// What can be asked of one send-queue request (ibv_post_send(3)).
struct request_flags {
  /// Starts only when the READs and atomics posted before it have ended.
  bool fence = false;
  /// The peer's completion queue, if armed for solicited events only, reports its receive.
  bool solicited = false;
  /// False saves the completion entry of a request that is posted (not awaited): it ends with a
  /// later signaled one on the same queue pair, and holds its slot and its memory until then.
  bool signaled = true;

  /// As the device reads it.
  [[nodiscard]] constexpr unsigned to_verbs() const noexcept {
    return unsigned{fence} * IBV_SEND_FENCE | unsigned{solicited} * IBV_SEND_SOLICITED |
           unsigned{signaled} * IBV_SEND_SIGNALED;
  }
};

// What a queue pair can be asked to do, as values: not bound to a queue pair, owning nothing.
// `conn.write(…)` awaits one; `conn.post(write(…))` and `conn.post_all(…)` post them. Every one
// gives the number of bytes it moved, the atomics the value before.

/// The next receive of the peer gets these bytes.
inline send_request<1> send(const const_local_mr_slice& local, request_flags flags = {}) noexcept {
  return {local, IBV_WR_SEND, 0, flags.to_verbs()};
}
template <std::size_t N>
send_request<N> send(const std::array<const_local_mr_slice, N>& local,
                     request_flags flags = {}) noexcept {
  return {local, IBV_WR_SEND, 0, flags.to_verbs()};
}
/// The same, with 32 bits that arrive beside the bytes.
inline send_request<1> send_with_imm(const const_local_mr_slice& local, std::uint32_t immediate,
                                     request_flags flags = {}) noexcept {
  return {local, IBV_WR_SEND_WITH_IMM, htobe32(immediate), flags.to_verbs()};
}
template <std::size_t N>
send_request<N> send_with_imm(const std::array<const_local_mr_slice, N>& local,
                              std::uint32_t immediate, request_flags flags = {}) noexcept {
  return {local, IBV_WR_SEND_WITH_IMM, htobe32(immediate), flags.to_verbs()};
}

/// Copies local bytes to the start of `remote`, which must have room for them.
inline write_request<1> write(const const_local_mr_slice& local, const remote_mr_slice& remote,
                              request_flags flags = {}) noexcept {
  return {local, remote, IBV_WR_RDMA_WRITE, 0, flags.to_verbs()};
}
template <std::size_t N>
write_request<N> write(const std::array<const_local_mr_slice, N>& local,
                       const remote_mr_slice& remote, request_flags flags = {}) noexcept {
  return {local, remote, IBV_WR_RDMA_WRITE, 0, flags.to_verbs()};
}
/// The same, and then completes one receive of the peer with 32 bits; its buffer is not written.
inline write_request<1> write_with_imm(const const_local_mr_slice& local,
                                       const remote_mr_slice& remote, std::uint32_t immediate,
                                       request_flags flags = {}) noexcept {
  return {local, remote, IBV_WR_RDMA_WRITE_WITH_IMM, htobe32(immediate), flags.to_verbs()};
}
template <std::size_t N>
write_request<N> write_with_imm(const std::array<const_local_mr_slice, N>& local,
                                const remote_mr_slice& remote, std::uint32_t immediate,
                                request_flags flags = {}) noexcept {
  return {local, remote, IBV_WR_RDMA_WRITE_WITH_IMM, htobe32(immediate), flags.to_verbs()};
}

/// Fills local memory from the start of `remote`.
inline read_request<1> read(const local_mr_slice& local, const remote_mr_slice& remote,
                            request_flags flags = {}) noexcept {
  return {local, remote, flags.to_verbs()};
}
template <std::size_t N>
read_request<N> read(const std::array<local_mr_slice, N>& local, const remote_mr_slice& remote,
                     request_flags flags = {}) noexcept {
  return {local, remote, flags.to_verbs()};
}

/// Swaps the 8 bytes at `remote` (8-aligned, a word in the byte order of the peer's host) for
/// `desired` when they equal `expected`. Gives the value before: it was swapped if that equals
/// `expected`. Atomic against other atomics of the same device (`device_limits::atomic`).
inline atomic_request compare_swap(const remote_mr_slice& remote, std::uint64_t expected,
                                   std::uint64_t desired, request_flags flags = {}) noexcept {
  return {IBV_WR_ATOMIC_CMP_AND_SWP, remote, expected, desired, flags.to_verbs()};
}
/// Adds to the 8 bytes at `remote`, wrapping at 2^64. Gives the value before.
inline atomic_request fetch_add(const remote_mr_slice& remote, std::uint64_t addend,
                                request_flags flags = {}) noexcept {
  return {IBV_WR_ATOMIC_FETCH_AND_ADD, remote, addend, 0, flags.to_verbs()};
}

/// Lets the peer of the queue pair that this is posted on reach `local`, which lies in `region`,
/// for `granted` (of remote_read, remote_write, remote_atomic), by the key that it gives. `window`
/// is not bound; when this has completed it must be told (`memory_window::bound`). What the device
/// would refuse is refused before it is posted, since a failed bind breaks the connection:
/// errc::out_of_range outside `region`; errc::wrong_protection_domain; errc::access_denied when
/// `region` was registered without mw_bind or, for writes and atomics, without local_write, or when
/// `granted` says more than it can. Region, window and memory stay until it has completed, the
/// memory for as long as the window is bound.
CORDMA_EXPORT bind_request bind(const verbs::memory_window& window,
                                const verbs::memory_region& region,
                                const const_local_mr_slice& local, verbs::access granted,
                                request_flags flags = {}) noexcept;
/// Ends a window of this queue pair: when it has completed, its key reaches nothing any more.
inline invalidate_request invalidate(std::uint32_t rkey, request_flags flags = {}) noexcept {
  return {rkey, flags.to_verbs()};
}

}  // namespace cordma
