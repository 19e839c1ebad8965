#pragma once

#include <cordma/agent/agent_options.hpp>
#include <cordma/coro/scheduler.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/verbs/access.hpp>
#include <cordma/verbs/queue_pair_attributes.hpp>

#include <chrono>
#include <cstdint>
#include <optional>

namespace cordma {

class shared_receives;

/// Finds a peer whose host died while the connection was idle: RC itself only notices that while
/// something is in flight. After `interval` without a request of ours, a 0-byte WRITE is posted;
/// one that has not completed after `misses` further intervals ends the connection. Besides,
/// the kernel asks the peer's host by TCP keepalive on the bootstrap socket, in whole seconds, even
/// when `enabled` is false: it is all there is for a peer that grants no writes.
struct heartbeat_options {
  bool enabled = true;
  std::chrono::milliseconds interval{1000};  ///< At least 1 ms.
  unsigned misses = 3;                       ///< At least 1.
};

struct connection_changes;

/// What each connection is made with, on either side. Checked against the device when it is used.
struct CORDMA_EXPORT connection_options {
  /// All of it, but for `port`, `gid_index` and `rd_atomic_max` that say nothing.
  operator connection_changes() const noexcept;  // NOLINT: given in its place.

  std::uint8_t port = 0;  ///< Of the device; 0: the first that is ACTIVE.
  /// A row of the port's GID table. None: the best for the bootstrap socket's address.
  std::optional<std::uint32_t> gid_index{};
  std::uint16_t pkey_index = 0;
  verbs::queue_pair_capabilities capabilities{};
  /// A pool of the same runtime's that the data queue pair takes its receives from
  /// (`runtime::share_receives`); `capabilities` then says nothing about receives, and only what
  /// works by a `message_handler` gets messages. Null: receives of its own. It outlives the
  /// connections, their closing, and messages of theirs that are kept. \thread the runtime's.
  shared_receives* receives_from = nullptr;
  /// What the peer may do to memory whose rkey it knows. Without `remote_write` the peer's
  /// heartbeat is TCP's. Atomics are taken out on a device that has none; an agent needs
  /// `remote_read`, and adds it.
  verbs::access remote_access =
      verbs::access::remote_write | verbs::access::remote_read | verbs::access::remote_atomic;
  /// READs and atomics at once, in each direction; none: the device's best. The connection gets the
  /// smaller of both sides' numbers. An agent needs one.
  std::optional<std::uint32_t> rd_atomic_max{};

  // How a lost peer shows while something is in flight (docs/errors.md has the formula):
  // 4.096 us * 2^timeout * (retry_cnt + 1) = 1.88 s. Soft-RoCE takes a retry_cnt of 7 for "for
  // ever".
  std::uint8_t timeout = 16;
  std::uint8_t retry_cnt = 6;
  /// A peer without a posted receive: (rnr_retry + 1) tries, 61 ms apart.
  std::uint8_t rnr_retry = 6;
  std::uint8_t min_rnr_timer = 25;

  heartbeat_options heartbeat{};
  /// Lending and borrowing memory; when either side has none, the connection has none.
  agent_options agent{};
  /// For the whole of `connect`: TCP, handshake, queue pair.
  std::chrono::milliseconds connect_timeout{5000};
  /// How long `close` waits, first for requests in flight, then for the peer; and how long a
  /// dropped connection waits for its flushes.
  std::chrono::milliseconds close_deadline{2000};
};

/// What some connections have otherwise than the others of their runtime, whose defaults stay for
/// what is not named:
///
///     rt.connect(server, {.connect_timeout = 1s, .heartbeat = {{.interval = 100ms}}});
///
/// A group, as the heartbeat is, is given whole. A `connection_options` in its place gives
/// everything: start from `runtime::connection_defaults()` to keep some of them.
struct connection_changes {
  std::optional<std::uint8_t> port{};
  std::optional<std::uint32_t> gid_index{};
  std::optional<std::uint16_t> pkey_index{};
  std::optional<verbs::queue_pair_capabilities> capabilities{};
  std::optional<shared_receives*> receives_from{};
  std::optional<verbs::access> remote_access{};
  std::optional<std::uint32_t> rd_atomic_max{};
  std::optional<std::uint8_t> timeout{};
  std::optional<std::uint8_t> retry_cnt{};
  std::optional<std::uint8_t> rnr_retry{};
  std::optional<std::uint8_t> min_rnr_timer{};
  std::optional<heartbeat_options> heartbeat{};
  std::optional<agent_options> agent{};
  std::optional<std::chrono::milliseconds> connect_timeout{};
  std::optional<std::chrono::milliseconds> close_deadline{};
};

/// `defaults`, but for what `changes` names.
CORDMA_EXPORT connection_options changed(connection_options defaults,
                                         const connection_changes& changes) noexcept;

}  // namespace cordma
