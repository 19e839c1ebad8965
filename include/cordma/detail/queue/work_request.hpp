#pragma once

#include <cordma/memory/slice.hpp>
#include <cordma/queue/transfer_counters.hpp>
#include <cordma/verbs/access.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace cordma {

namespace detail {

/// Where a request goes whose queue pair has several destinations. A datagram's is a queue pair;
/// over XRC it is a receive queue of the target's domain.
struct request_destination {
  ibv_ah* path = nullptr;  ///< Null over XRC.
  std::uint32_t number = 0;
  std::uint32_t qkey = 0;
};

}  // namespace detail

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
  const detail::request_destination* to = nullptr;  ///< Set for a datagram, and over XRC.

  [[nodiscard]] bool is_signaled() const noexcept { return (send_flags & IBV_SEND_SIGNALED) != 0; }
  [[nodiscard]] bool is_read() const noexcept { return kind == request_kind::read; }
  [[nodiscard]] bool is_atomic() const noexcept { return kind == request_kind::atomic; }
  [[nodiscard]] bool is_atomic_write() const noexcept { return opcode == IBV_WR_ATOMIC_WRITE; }
  /// Returns true if the request completes a receive of the peer, which may keep it waiting. A
  /// datagram waits for nobody: where no receive is posted, it is lost.
  [[nodiscard]] bool takes_receive() const noexcept {
    const bool is_datagram = to != nullptr && to->path != nullptr;
    return (kind == request_kind::send && !is_datagram) || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  }
};

namespace detail {
struct no_remote {};
}  // namespace detail

/// A SEND, WRITE or READ of N slices. They are kept as const slices, because the queue pair only
/// passes their addresses to the device.
template <request_kind Kind, std::size_t N>
struct data_request {
  using value_type = std::size_t;
  static constexpr request_kind kind = Kind;
  static constexpr std::size_t sge_count = N;
  static constexpr bool is_one_sided = Kind != request_kind::send;

  std::array<const_local_mr_slice, N> local;
  [[no_unique_address]] std::conditional_t<is_one_sided, remote_mr_slice, detail::no_remote> remote;
  ibv_wr_opcode opcode;
  unsigned send_flags;
  std::uint32_t immediate = 0;  // The immediate data as it is sent.

  [[nodiscard]] wr_summary summary() const noexcept {
    const remote_mr_slice* there = nullptr;
    if constexpr (is_one_sided) there = &remote;
    return {.kind = kind,
            .opcode = opcode,
            .send_flags = send_flags,
            .immediate = immediate,
            .local = local,
            .remote = there};
  }
  [[nodiscard]] value_type value() const noexcept {
    std::size_t bytes = 0;
    for (const const_local_mr_slice& slice : local) bytes += slice.size_bytes();
    return bytes;
  }
};
template <std::size_t N>
using send_request = data_request<request_kind::send, N>;
template <std::size_t N>
using write_request = data_request<request_kind::write, N>;
template <std::size_t N>
using read_request = data_request<request_kind::read, N>;

namespace detail {

template <class Slice, std::size_t N>
std::array<const_local_mr_slice, N> listed(const std::array<Slice, N>& slices) noexcept {
  std::array<const_local_mr_slice, N> list;
  for (std::size_t i = 0; i < N; ++i) list[i] = slices[i];
  return list;
}
/// Makes a request of `local`: memory that converts to a `Slice`, or an array of such slices.
/// Anything else gives a one-line compile error.
template <request_kind Kind, class Slice = const_local_mr_slice, class Local>
auto data_request_of(Local& local, const auto& remote, ibv_wr_opcode opcode, unsigned send_flags,
                     std::uint32_t immediate = 0) noexcept {
  constexpr bool is_one = std::convertible_to<Local&, Slice>;
  constexpr bool is_memory = is_one || requires { listed<Slice>(local); };
  static_assert(is_memory,
                "requests take registered memory: a local_mr (not const where it is read into), a "
                "slice of one, gather() or scatter(); rpc's message_stream sends any bytes");
  if constexpr (is_memory && !is_one) {
    constexpr std::size_t count = std::tuple_size_v<std::remove_const_t<Local>>;
    return data_request<Kind, count>{listed<Slice>(local), remote, opcode, send_flags, immediate};
  } else if constexpr (is_memory) {
    return data_request<Kind, 1>{{local}, remote, opcode, send_flags, immediate};
  } else {
    return data_request<Kind, 1>{};
  }
}

}  // namespace detail

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

namespace detail {

/// An atomic that gives no value of before.
struct atomic_write_request : atomic_request {
  using value_type = std::size_t;
  [[nodiscard]] static constexpr value_type value() noexcept { return sizeof(std::uint64_t); }
};

}  // namespace detail

struct bind_request {
  using value_type = std::uint32_t;
  static constexpr request_kind kind = request_kind::bind;
  static constexpr std::size_t sge_count = 1;

  std::array<const_local_mr_slice, 1> local;
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
            .local = local,
            .window = this};
  }
  /// The device chooses the key of a type-1 window.
  [[nodiscard]] value_type value() const noexcept {
    return window->type == IBV_MW_TYPE_1 ? window->rkey : rkey;
  }
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
