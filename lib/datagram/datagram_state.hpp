#pragma once

#include "cm/datagram_listener.hpp"
#include "connection/bootstrap_services.hpp"
#include "connection/connection_resources.hpp"
#include "multicast_group.hpp"
#include "queue/callback_queue_pair.hpp"
#include "route_cache.hpp"

#include <cordma/coro/task.hpp>
#include <cordma/datagram/datagram_socket.hpp>
#include <cordma/detail/base/assert.hpp>
#include <cordma/detail/base/counter.hpp>
#include <cordma/verbs/device.hpp>
#include <cordma/verbs/gid.hpp>

#include <memory>
#include <optional>

namespace cordma::detail {

/// A socket of datagrams: its queue pair, and the routes that it has. Searches for routes keep the
/// state beyond the socket's end. \thread the executor's.
class datagram_state final : public counted {
 public:
  /// \errors as `runtime::open_datagram`.
  datagram_state(const connection_resources& resources, const datagram_options& options);

  /// Sets destination and route, if there is a route. Returns false if there is none.
  bool route_to(const datagram_address& to, request_destination& destination,
                counted_ref<route>& path) noexcept;
  /// Makes the route to `to` known, and keeps the state meanwhile.
  /// \errors as `verbs::address_handle`; errc::closed.
  static task<> find_route(counted_ref<datagram_state> self, datagram_address to);
  /// Answers who asks by rdma_cm. \errors as `datagram_socket::publish`.
  endpoint publish(const endpoint& local);
  /// Asks by rdma_cm, and keeps the state meanwhile. \errors as `datagram_socket::resolve`.
  static task<datagram_address> resolve(counted_ref<datagram_state> self, endpoint server);
  /// Returns the MGID of an IP group on the socket's port.
  [[nodiscard]] ibv_gid mgid_of(const socket_address& ip_group) const;
  /// Joins a group, and keeps the state meanwhile. \errors as `datagram_socket::join`.
  static task<counted_ref<multicast_group>> join(counted_ref<datagram_state> self, ibv_gid group,
                                                 bool send_only);
  /// Ends everything that waits, leaves all groups, and destroys what the device has.
  void close() noexcept;
  [[nodiscard]] bool is_closed() const noexcept { return !qp_.has_value(); }

  [[nodiscard]] const datagram_address& address() const noexcept { return address_; }
  [[nodiscard]] std::size_t payload_max() const noexcept { return payload_max_; }
  [[nodiscard]] callback_queue_pair& qp() noexcept { return *qp_; }
  [[nodiscard]] const datagram_counters& counters() const noexcept { return counters_; }
  /// Counts for the socket, and for its runtime.
  void note(std::uint64_t datagram_counters::* own, counter datagram_totals::* all,
            std::uint64_t count = 1) noexcept {
    counters_.*own += count;
    (totals_.*all).add(count);
  }

 private:
  /// \errors errc::no_device: `id` has found a way from another port.
  void check_port(const cm::datagram_id& id, const socket_address& to) const;
  /// \errors EINVAL: no group's, or of another version of IP than the socket's GID.
  void check_group(const ibv_gid& mgid) const;
  [[nodiscard]] multicast_group* find_group(const datagram_address& of, bool send_only) noexcept;
  /// Makes a route, of which the Ethernet address is known. \errors as `verbs::address_handle`.
  void make_route(const verbs::address_vector& path);
  /// Joins on an InfiniBand port, where the subnet manager gives LID and Q_Key.
  task<counted_ref<multicast_group>> join_subnet_group(ibv_gid mgid, bool send_only);
  counted_ref<multicast_group> join_ip_group(const ibv_gid& mgid, bool send_only);
  [[nodiscard]] verbs::address_vector own_path(const datagram_address& to) const noexcept;

  const connection_resources resources_;
  const verbs::port_info port_;
  const verbs::gid_entry gid_;
  const std::size_t payload_max_;
  datagram_counters counters_;
  datagram_totals& totals_;
  route_cache routes_;
  const std::uint16_t pkey_index_;
  intrusive_list<multicast_group> groups_;
  std::optional<callback_queue_pair> qp_;
  std::unique_ptr<cm::datagram_listener> published_;
  datagram_address address_;
};

inline datagram_state& state_of(const counted_ref<datagram_state>& socket) noexcept {
  CORDMA_ASSERT(bool{socket}, "used a datagram socket that was moved from");
  return *socket.get();
}
/// \errors errc::closed.
void check_open(const datagram_state& socket, const char* call = "send_to");
/// Returns the address that rdma_cm tells.
datagram_address address_of(const cm::datagram_peer& told) noexcept;

}  // namespace cordma::detail
