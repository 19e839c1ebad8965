#pragma once

#include "connection/connection_resources.hpp"
#include "queue/callback_queue_pair.hpp"
#include "route_cache.hpp"

#include <cordma/coro/task.hpp>
#include <cordma/datagram/datagram_socket.hpp>
#include <cordma/verbs/device.hpp>
#include <cordma/verbs/gid.hpp>

#include <optional>

namespace cordma::detail {

/// A socket of datagrams: its queue pair, and the routes that it has. Searches for routes keep the
/// state beyond the socket's end. \thread the executor's.
class datagram_state final : public counted {
 public:
  /// \errors as `runtime::open_datagram`.
  datagram_state(const connection_resources& resources, const datagram_options& options);

  /// Sets destination and route, if there is a route. Returns false if there is none.
  bool route_to(const datagram_address& to, datagram_destination& destination,
                counted_ref<route>& path) noexcept;
  /// Makes the route to `to` known, and keeps the state meanwhile.
  /// \errors as `verbs::address_handle`; errc::closed.
  static task<> find_route(counted_ref<datagram_state> self, datagram_address to);
  /// Ends everything that waits, and destroys what the device has.
  void close() noexcept;
  [[nodiscard]] bool is_closed() const noexcept { return !qp_.has_value(); }

  [[nodiscard]] const datagram_address& address() const noexcept { return address_; }
  [[nodiscard]] std::size_t payload_max() const noexcept { return payload_max_; }
  [[nodiscard]] callback_queue_pair& qp() noexcept { return *qp_; }
  [[nodiscard]] const datagram_counters& counters() const noexcept { return counters_; }

 private:
  [[nodiscard]] verbs::address_vector own_path(const datagram_address& to) const noexcept;

  const connection_resources resources_;
  const verbs::port_info port_;
  const verbs::gid_entry gid_;
  const std::size_t payload_max_;
  datagram_counters counters_;
  route_cache routes_;
  std::optional<callback_queue_pair> qp_;
  datagram_address address_;
};

}  // namespace cordma::detail
