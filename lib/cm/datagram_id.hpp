#pragma once

#include "cm_event.hpp"
#include "event_channel.hpp"

#include <cordma/base/error.hpp>
#include <cordma/base/time.hpp>
#include <cordma/coro/event.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/io/socket_address.hpp>

#include <rdma/rdma_cma.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace cordma::cm {

/// Bytes of an address that rdma_cm takes: IPv4, IPv6 or AF_IB.
struct any_address {
  sockaddr_storage bytes{};

  any_address() noexcept = default;
  explicit any_address(const socket_address& ip) noexcept;
  /// An address of AF_IB: a port's GID, or a multicast group's MGID.
  any_address(const ibv_gid& gid, std::uint16_t pkey) noexcept;
};

/// An identifier of RDMA_PS_UDP, for one look-up or one multicast group. Destroying it leaves the
/// group. No task of it may be running then. \thread the channel's executor's.
class datagram_id final : public event_target {
 public:
  /// \errors an errno of rdma_create_id(3).
  explicit datagram_id(event_channel& channel);
  datagram_id(const datagram_id&) = delete;
  datagram_id& operator=(const datagram_id&) = delete;
  ~datagram_id();

  /// Asks the server at `to` for the queue pair that takes its datagrams (SIDR, IBTA 12.11).
  /// rdma_cm gives up after a minute or so: use `with_timeout`.
  /// \errors ECONNREFUSED: nobody answers for that port; ETIMEDOUT; ENODEV and others of
  ///   `id::resolve`.
  task<datagram_peer> resolve(socket_address to);
  /// Joins a multicast group on the port that has the address `own`. Attaches no queue pair.
  /// \errors an errno of rdma_join_multicast(3); what the subnet manager refuses: EINVAL.
  task<datagram_peer> join(any_address own, any_address group, bool send_only);

  /// Returns why a group that was joined is one no longer; nothing while it is.
  [[nodiscard]] const std::optional<failure>& why_ended() const noexcept { return why_ended_; }
  /// The device and port that were found; "" and 0 before.
  [[nodiscard]] std::string_view device_name() const noexcept;
  [[nodiscard]] std::uint8_t port() const noexcept { return id_->port_num; }

  void on_event(const cm_event& event) noexcept override;

 private:
  /// Waits for the event that answers the present call. \errors why the identifier ended.
  task<> answered();

  const char* call_ = "rdma_create_id";
  socket_address target_;
  std::optional<any_address> joined_;
  std::optional<failure> why_ended_;
  datagram_peer told_;
  event answer_;
  owned_id id_;
};

}  // namespace cordma::cm
