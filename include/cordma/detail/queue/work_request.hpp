#pragma once

#include <cordma/memory/slice.hpp>
#include <cordma/queue/transfer_counters.hpp>
#include <cordma/verbs/access.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cordma {

/// One or several slices, as `gather(…)` or `scatter(…)` makes them. They are kept as const slices,
/// because the queue pair only passes their addresses to the device. `Slice` is the type that the
/// maker required.
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

/// A work request as the send queue reads it, whatever its kind. It refers to what its owner keeps.
struct wr_summary {
  request_kind kind{};
  ibv_wr_opcode opcode{};
  unsigned send_flags = 0;
  std::uint32_t immediate = 0;  ///< The immediate data as it is sent, or the key to invalidate.
  std::span<const const_local_mr_slice> local{};
  const remote_mr_slice* remote = nullptr;  ///< Null unless the operation is one-sided.
  std::uint64_t compare_or_add = 0;
  std::uint64_t swap = 0;
  const struct bind_request* window = nullptr;  ///< Set for a bind, whose slice is only acquired.

  [[nodiscard]] bool is_signaled() const noexcept { return (send_flags & IBV_SEND_SIGNALED) != 0; }
  [[nodiscard]] bool is_read() const noexcept { return kind == request_kind::read; }
  [[nodiscard]] bool is_atomic() const noexcept { return kind == request_kind::atomic; }
  /// Returns true if the request completes a receive of the peer, which may keep it waiting.
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
  std::uint32_t immediate;  // The immediate data as it is sent; 0 if there is none.
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
  std::uint32_t immediate;  // The immediate data as it is sent; 0 if there is none.
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

}  // namespace cordma
