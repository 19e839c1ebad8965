#pragma once

#include "cm/address.hpp"
#include "cm/channel.hpp"
#include "cm/path_record.hpp"
#include "cm/transport.hpp"

#include <cstdint>
#include <list>
#include <memory>

namespace softverbs::cm {

class machine;

/// An identifier's state by what its program did (the kernel's rdma_cm_state). Commands change the
/// state, as does the end of a connection: connect → disconnect. Resolving is done at once, so
/// there is no state for it.
enum class id_state : std::uint8_t {
  idle,
  bound,
  address_resolved,
  route_resolved,
  connect,
  disconnect,
  listen,
};

/// The state of a connection's exchange of messages (the kernel's ib_cm_state); `none` before the
/// first message. Commands, the peer's messages and the clock change the state. See allowed() for
/// the edges.
enum class cm_state : std::uint8_t {
  none,
  idle,  ///< over: rejected, timed out, or answered (datagrams)
  listen,
  request_sent,
  request_received,
  reply_sent,
  reply_received,
  established,
  disconnect_sent,
  disconnect_received,
  timewait,
  sidr_request_sent,
  sidr_request_received,
};
[[nodiscard]] bool allowed(id_state from, id_state to) noexcept;
[[nodiscard]] bool allowed(cm_state from, cm_state to) noexcept;

/// A multicast group that an identifier has joined.
struct membership {
  std::uint32_t number = 0;  ///< the program's handle
  std::uint32_t events_reported = 0;
  identifier* of = nullptr;
  std::uint64_t user = 0;
  ibv_gid group{};
};

/// A request that came while the listener's backlog was full.
struct waiting_request final : conversation::user {
  waiting_request(identifier& of, std::unique_ptr<conversation> with, const message& what)
      : listener{of}, from{std::move(with)}, request{what} {
    from->set_user(*this);
  }
  void on_message(const message&) noexcept override;  ///< the peer withdraws
  void on_end(int error) noexcept override;

  identifier& listener;
  std::unique_ptr<conversation> from;
  message request;
};

/// A program's rdma_cm_id. The mutex of the room guards it.
struct identifier final : conversation::user {
  using time = node_service::time;

  identifier(machine& of, channel& in, std::uint32_t assigned) noexcept
      : owner{of}, reports_to{&in}, number{assigned} {}

  void on_message(const message&) noexcept override;
  void on_end(int error) noexcept override;

  void enter(id_state next) noexcept;
  void enter(cm_state next) noexcept;
  [[nodiscard]] bool is_datagram() const noexcept { return qp_type == IBV_QPT_UD; }
  [[nodiscard]] ibv_gid source_gid() const noexcept { return source.gid(); }
  [[nodiscard]] ibv_gid destination_gid() const noexcept;

  machine& owner;
  channel* reports_to;
  channel* told_in = nullptr;  ///< the channel in which its connect request waits to be read
  const std::uint32_t number;  ///< the program's handle
  std::uint64_t user = 0;      ///< 0: its events are dropped
  std::uint32_t events_reported = 0;
  std::uint16_t space = 0;
  ibv_qp_type qp_type = IBV_QPT_RC;

  id_state state = id_state::idle;
  cm_state exchange = cm_state::none;
  time deadline = time::max();  ///< end of timewait, or of the wait for an answer to a message
  std::chrono::milliseconds answer_time{0};  ///< for all sends of one message

  address source;
  address destination;
  address target;  ///< where a wildcard destination leads; none: not resolved here
  bool has_device = false;
  bool has_path = false;
  path route;
  std::unique_ptr<binding> name;
  std::unique_ptr<conversation> talk;  ///< null: not yet, or ended, or nobody listens yet
  message request;                     ///< the request that was sent, to send it again
  time search_ends{};                  ///< at this time, the search for a listener fails

  // Options.
  std::uint8_t service_type = 0;
  bool reuse = false;
  bool family_only = false;
  bool family_only_set = false;
  bool ack_timeout_set = false;
  std::uint8_t ack_timeout = 0;

  // Members of a listener.
  int backlog = 0;       ///< how many more connect requests may wait as events
  int waiting_room = 0;  ///< how many may wait in `waiting`
  std::list<waiting_request> waiting;

  // Members of a connection.
  std::uint32_t local_qpn = 0;
  std::uint32_t remote_qpn = 0;
  std::uint32_t local_psn = 0;   ///< the PSN of the peer's first packet
  std::uint32_t remote_psn = 0;  ///< the PSN of our first packet
  std::uint32_t qkey = 0;
  std::uint8_t srq = 0;
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry_count = 0;
  std::uint8_t path_mtu = IBV_MTU_4096;
  std::uint8_t queue_timeout = 0;  ///< the queue pair's: 4.096 us * 2^n
  rdma_ucm_ece ece{};

  std::list<membership> groups;
};

}  // namespace softverbs::cm
