#pragma once

#include "wire/frame.hpp"

#include <netinet/in.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace softverbs {

/// Where a QP lives: which host, which process on it.
struct node_address {
  in6_addr host{};  ///< all zero: this host
  std::uint16_t slot = 0;
  friend bool operator==(const node_address&, const node_address&) noexcept;
};

enum class sent : std::uint8_t {
  yes,
  full,  ///< no room now: the QP was put on the link's waiting list and will be kicked
  down,  ///< no such process, or it is gone
};

/// The way to one other process. One that we opened carries our requests out and their answers in;
/// one that we accepted, the reverse: a pair of processes that talk both ways has two. Type-stable:
/// a link that died is used again for another peer, under a new `generation`.
class link {
 public:
  /// Reserves room for one frame, so that its payload can be copied straight into the ring; the
  /// frame is sent by commit(). Holds the link's tx lock in between. `waiter` is the local QP
  /// number to kick on `full`.
  struct frame_room {
    sent result;
    std::byte* payload;
  };
  frame_room reserve(const frame_header& header, std::uint32_t waiter) noexcept;
  void commit() noexcept;
  void cancel() noexcept;  ///< instead of commit(): nothing is sent

  [[nodiscard]] const node_address& peer() const noexcept;
  [[nodiscard]] std::uint32_t generation() const noexcept;
  [[nodiscard]] bool up() const noexcept;

  /// Responder side, under `rx`: this QP has acks or answers to send once the batch was drained.
  void answer_later(std::uint32_t local_qpn) noexcept;
};

}  // namespace softverbs
