#pragma once

#include <cordma/agent/agent_options.hpp>
#include <cordma/base/time.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/verbs/access.hpp>
#include <cordma/verbs/queue_pair_attributes.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace cordma {

class credentials;
class shared_receives;

namespace verbs {
class xrc_domain;
}

/// The path that a connection's packets take through a network. Both sides use the same values,
/// whichever side names them (docs/connecting.md).
///
/// A value that both sides must share fails the handshake with errc::incompatible_peer if they name
/// different ones; if one side names it, both use it. A value that a client proposes is used unless
/// the listener names another.
struct fabric_options {
  std::optional<std::uint8_t> service_level{};  ///< Shared, 0 to 15. Unset on both sides: 0.
  /// Path MTU, shared, at most the active MTU of both ports. Unset on both sides: the smaller one.
  std::optional<ibv_mtu> mtu{};
  // The next three are the GRH's: a route by LID, within one InfiniBand subnet, has none.
  std::optional<std::uint8_t> traffic_class{};  ///< Proposed; RoCE's DSCP and ECN. Unset: 0.
  std::optional<std::uint32_t> flow_label{};    ///< Proposed, 20 bits. Unset: 0.
  /// Proposed, 1 to 255. Unset: 64. On RoCE a kernel may take the route's instead.
  std::optional<std::uint8_t> hop_limit{};
  std::optional<ibv_rate> static_rate{};  ///< Proposed. Unset: IBV_RATE_MAX, the port's rate.
};

struct connection_changes;

/// Options of each connection, on either side. They are checked against the device at first use.
struct CORDMA_EXPORT connection_options {
  /// Finds a peer whose host died while the connection was idle: RC notices that only while
  /// something is in flight. After `interval` without a request of this side, the heartbeat posts a
  /// 0-byte WRITE. The connection ends if the WRITE has not completed after `misses` further
  /// intervals. Over UC, where a WRITE has no answer, and over XRC the heartbeat is a frame of the
  /// agents in each interval.
  ///
  /// The kernel also probes the peer's host by TCP keepalive on the bootstrap socket, in whole
  /// seconds, even when `enabled` is false. If the peer grants no writes, keepalive is the only
  /// probe; without a socket (rdma_cm, information) it is a frame of the agents.
  struct heartbeat_options {
    bool enabled = true;
    time_span interval = std::chrono::seconds{1};  ///< At least 1 ms.
    unsigned misses = 3;                           ///< At least 1.
  };

  /// Converts all options that are set; `port` 0 is unset. Null `credentials` are unset, too: such
  /// options never take the runtime's away.
  operator connection_changes() const noexcept;  // NOLINT: given in its place.

  std::uint8_t port = 0;  ///< Port of the device; 0: the first that is ACTIVE.
  /// Row of the port's GID table. None: the best for the bootstrap socket's address.
  std::optional<std::uint32_t> gid_index{};
  /// Row of the port's P_Key table. None: row 0. Both sides' P_Keys must be of one partition, and
  /// one of them a full member (IBTA 10.9.3).
  std::optional<std::uint16_t> pkey_index{};
  fabric_options fabric{};
  /// RC, or UC: SENDs and WRITEs only, of which a lost one is lost. Or one half of XRC, which sends
  /// to the pools of a whole host (docs/xrc.md). Remote memory, streams and calls need RC
  /// (docs/connecting.md). Both sides must have the same, of XRC the other half.
  verbs::queue_pair_type transport = verbs::queue_pair_type::rc;
  /// Domain of an XRC target (`runtime::open_xrc_domain`), which outlives the connection.
  verbs::xrc_domain* xrc_domain = nullptr;
  verbs::queue_pair_capabilities capabilities{};
  /// Pool of the same runtime (`runtime::share_receives`), which supplies the data queue pair's
  /// receives. `capabilities` then says nothing about receives, and a stream, a client or a server
  /// of calls gets the messages, or `shared_receives::next_message`. Null: the queue pair has
  /// receives of its own. The pool outlives the connections, their closing, and their messages that
  /// are kept. \thread the runtime's.
  shared_receives* receives_from = nullptr;
  /// Receives that the data queue pair has before the peer may send: a message that comes before
  /// the program has accepted the connection finds one. Each has `preposted_bytes` of memory, which
  /// lives as long as the connection. The program takes the messages as its own receives', and
  /// gives a buffer back by `post_recv(message.slices)`. At most `capabilities.recv_wr_max`; not
  /// beside `receives_from`, nor for a stream, a client or a server of calls.
  std::uint32_t preposted = 0;
  std::size_t preposted_bytes = 4096;  ///< At most 2 GiB. 0: for WRITEs with immediate data.
  /// Access that the peer has to memory whose rkey it knows. Without `remote_write` the peer's
  /// heartbeat is TCP's. Atomics are removed on a device without them; an agent needs
  /// `remote_read`, and adds it.
  verbs::access remote_access =
      verbs::access::remote_write | verbs::access::remote_read | verbs::access::remote_atomic;
  /// READs and atomics at once, in each direction; none: the device's best. The connection gets the
  /// smaller of both sides' numbers. An agent needs one.
  std::optional<std::uint32_t> rd_atomic_max{};

  // A lost peer shows, while something is in flight, after (docs/errors.md has the formula): 4.096
  // us * 2^timeout * (retry_cnt + 1) = 1.88 s. Soft-RoCE takes a retry_cnt of 7 for "for ever".
  std::uint8_t timeout = 16;
  std::uint8_t retry_cnt = 6;
  /// Retries when the peer has posted no receive: (rnr_retry + 1) tries, 61 ms apart.
  std::uint8_t rnr_retry = 6;
  std::uint8_t min_rnr_timer = 25;

  heartbeat_options heartbeat{};
  /// Options for lending and borrowing memory; if either side has no agent, the connection has
  /// none.
  agent_options agent{};
  /// The key or certificates that this side shows, and asks for (docs/security.md). Null:
  /// nothing. Both sides must have the same kind; both need an agent. The credentials outlive the
  /// connections.
  const cordma::credentials* credentials = nullptr;
  /// Lets a listener have no credentials although strangers can reach it: its address is neither
  /// loopback's nor a Unix socket's. Everybody may connect then. No other call looks at it.
  bool insecure = false;
  /// The peer is another program than cordma, connected by rdma_cm. There is one queue pair and no
  /// agent. The only handshake is rdma_cm's: its private data is the first 56 bytes of
  /// `private_data`, in an answer all of it.
  bool plain = false;
  /// Takes a peer whose GID is not the address that its bootstrap comes from: hosts that have a
  /// network of its own for RDMA. The device sends to that GID, whoever has it.
  bool allow_foreign_gid = false;
  /// Bytes of the program's own, which the peer gets in the handshake: `connection_request` on the
  /// accepting side, `connection::peer_private_data` on both.
  std::array<std::byte, 64> private_data{};
  /// Deadline of the whole `connect`: TCP, handshake, queue pair.
  time_span connect_timeout = std::chrono::seconds{5};
  /// Time that `close` waits, first for requests in flight, then for the peer. A dropped connection
  /// waits as long for its flushes.
  time_span close_timeout = std::chrono::seconds{2};
};

/// Options that differ from the runtime's defaults; options that are not named keep the defaults:
///
///     rt.connect(server, {.connect_timeout = 1s, .heartbeat = {{.interval = 100ms}}});
///
/// A group, such as the heartbeat, is given whole; of `fabric` each member that is set. A
/// `connection_options` in its place gives everything that is not unset in it: start from
/// `runtime::connection_defaults()` to keep more of them. To connect without the runtime's
/// credentials, say `.credentials = nullptr` here.
struct connection_changes {
  std::optional<std::uint8_t> port{};
  std::optional<std::uint32_t> gid_index{};
  std::optional<std::uint16_t> pkey_index{};
  fabric_options fabric{};
  std::optional<verbs::queue_pair_type> transport{};
  std::optional<verbs::xrc_domain*> xrc_domain{};
  std::optional<verbs::queue_pair_capabilities> capabilities{};
  std::optional<shared_receives*> receives_from{};
  std::optional<std::uint32_t> preposted{};
  std::optional<std::size_t> preposted_bytes{};
  std::optional<verbs::access> remote_access{};
  std::optional<std::uint32_t> rd_atomic_max{};
  std::optional<std::uint8_t> timeout{};
  std::optional<std::uint8_t> retry_cnt{};
  std::optional<std::uint8_t> rnr_retry{};
  std::optional<std::uint8_t> min_rnr_timer{};
  std::optional<connection_options::heartbeat_options> heartbeat{};
  std::optional<agent_options> agent{};
  std::optional<const cordma::credentials*> credentials{};
  std::optional<bool> insecure{};
  std::optional<bool> plain{};
  std::optional<bool> allow_foreign_gid{};
  std::optional<std::array<std::byte, 64>> private_data{};
  std::optional<time_span> connect_timeout{};
  std::optional<time_span> close_timeout{};
};

/// Returns `defaults`, with the options that `changes` names replaced.
CORDMA_EXPORT connection_options changed(connection_options defaults,
                                         const connection_changes& changes) noexcept;

}  // namespace cordma
