#pragma once

#include <cordma/memory/slice.hpp>
#include <cordma/queue/transfer_counters.hpp>
#include <cordma/verbs/access.hpp>

#include <endian.h>
#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

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

/// One or several slices, as `gather(…)` or `scatter(…)` makes them. Kept as const ones, since the
/// queue pair only names them to the device; `Slice` is what the maker had to have.
template <class Slice, std::size_t N>
struct slice_list {
  slice_list(const Slice& slice) noexcept
    requires(N == 1)
      : slices{slice} {}                                  // NOLINT
  slice_list(const std::array<Slice, N>& all) noexcept {  // NOLINT
    for (std::size_t i = 0; i < N; ++i) slices[i] = all[i];
  }
  std::array<const_local_mr_slice, N> slices;
};

/// One work request as the send queue reads it, whatever its kind. Names what its owner keeps.
struct wr_summary {
  request_kind kind{};
  ibv_wr_opcode opcode{};
  unsigned send_flags = 0;
  std::uint32_t immediate = 0;  ///< As it is sent; the key that is invalidated.
  std::span<const const_local_mr_slice> local{};
  const remote_mr_slice* remote = nullptr;  ///< Null: no one-sided operation.
  std::uint64_t compare_or_add = 0;
  std::uint64_t swap = 0;
  const struct bind_request* window = nullptr;  ///< Of a bind, whose slice is only held.

  [[nodiscard]] bool is_signaled() const noexcept { return (send_flags & IBV_SEND_SIGNALED) != 0; }
  [[nodiscard]] bool is_read() const noexcept { return kind == request_kind::read; }
  [[nodiscard]] bool is_atomic() const noexcept { return kind == request_kind::atomic; }
  /// Whether it completes a receive of the peer's, which may keep it waiting.
  [[nodiscard]] bool takes_receive() const noexcept {
    return kind == request_kind::send || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  }
};

namespace detail {

template <std::size_t N>
std::size_t bytes_of(const std::array<const_local_mr_slice, N>& slices) noexcept {
  std::size_t bytes = 0;
  for (const const_local_mr_slice& slice : slices) bytes += slice.size_bytes();
  return bytes;
}

}  // namespace detail

template <std::size_t N>
struct send_request {
  using value_type = std::size_t;
  static constexpr request_kind kind = request_kind::send;
  static constexpr std::size_t sge_count = N;

  slice_list<const_local_mr_slice, N> local;
  ibv_wr_opcode opcode;
  std::uint32_t immediate;  // As it is sent; 0: it has none.
  unsigned send_flags;

  [[nodiscard]] wr_summary summary() const noexcept {
    return {.kind = kind,
            .opcode = opcode,
            .send_flags = send_flags,
            .immediate = immediate,
            .local = local.slices};
  }
  [[nodiscard]] value_type value() const noexcept { return detail::bytes_of(local.slices); }
};

template <std::size_t N>
struct write_request {
  using value_type = std::size_t;
  static constexpr request_kind kind = request_kind::write;
  static constexpr std::size_t sge_count = N;

  slice_list<const_local_mr_slice, N> local;
  remote_mr_slice remote;
  ibv_wr_opcode opcode;
  std::uint32_t immediate;  // As it is sent; 0: it has none.
  unsigned send_flags;

  [[nodiscard]] wr_summary summary() const noexcept {
    return {.kind = kind,
            .opcode = opcode,
            .send_flags = send_flags,
            .immediate = immediate,
            .local = local.slices,
            .remote = &remote};
  }
  [[nodiscard]] value_type value() const noexcept { return detail::bytes_of(local.slices); }
};

template <std::size_t N>
struct read_request {
  using value_type = std::size_t;
  static constexpr request_kind kind = request_kind::read;
  static constexpr std::size_t sge_count = N;

  slice_list<local_mr_slice, N> local;
  remote_mr_slice remote;
  unsigned send_flags;

  [[nodiscard]] wr_summary summary() const noexcept {
    return {.kind = kind,
            .opcode = IBV_WR_RDMA_READ,
            .send_flags = send_flags,
            .local = local.slices,
            .remote = &remote};
  }
  [[nodiscard]] value_type value() const noexcept { return detail::bytes_of(local.slices); }
};

struct atomic_request {
  using value_type = std::uint64_t;
  static constexpr request_kind kind = request_kind::atomic;
  static constexpr std::size_t sge_count = 1;

  ibv_wr_opcode opcode;
  remote_mr_slice remote;
  std::uint64_t compare_or_add;
  std::uint64_t swap = 0;
  unsigned send_flags;

  [[nodiscard]] wr_summary summary() const noexcept {
    return {.kind = kind,
            .opcode = opcode,
            .send_flags = send_flags,
            .remote = &remote,
            .compare_or_add = compare_or_add,
            .swap = swap};
  }
};

struct bind_request {
  using value_type = std::uint32_t;
  static constexpr request_kind kind = request_kind::bind;
  static constexpr std::size_t sge_count = 1;

  slice_list<const_local_mr_slice, 1> local;
  ibv_mr* region;
  verbs::access region_access;
  ibv_mw* window;
  std::uint32_t rkey;
  verbs::access granted;
  unsigned send_flags;

  [[nodiscard]] wr_summary summary() const noexcept {
    return {.kind = kind,
            .opcode = IBV_WR_BIND_MW,
            .send_flags = send_flags,
            .local = local.slices,
            .window = this};
  }
  [[nodiscard]] value_type value() const noexcept { return rkey; }
};

struct invalidate_request {
  using value_type = std::uint32_t;
  static constexpr request_kind kind = request_kind::invalidate;
  static constexpr std::size_t sge_count = 1;

  std::uint32_t rkey;
  unsigned send_flags;

  [[nodiscard]] wr_summary summary() const noexcept {
    return {.kind = kind, .opcode = IBV_WR_LOCAL_INV, .send_flags = send_flags, .immediate = rkey};
  }
  [[nodiscard]] value_type value() const noexcept { return rkey; }
};

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
bind_request bind(const verbs::memory_window& window, const verbs::memory_region& region,
                  const const_local_mr_slice& local, verbs::access granted,
                  request_flags flags = {}) noexcept;
/// Ends a window of this queue pair: when it has completed, its key reaches nothing any more.
inline invalidate_request invalidate(std::uint32_t rkey, request_flags flags = {}) noexcept {
  return {rkey, flags.to_verbs()};
}

}  // namespace cordma
