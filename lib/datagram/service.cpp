#include "base/failures.hpp"
#include "cm/datagram_id.hpp"
#include "connection/addresses.hpp"
#include "connection/bootstrap_services.hpp"
#include "datagram_state.hpp"

#include <cerrno>
#include <memory>
#include <string>
#include <utility>

// Addresses by rdma_cm, for those who know a host and a port (SIDR, IBTA 12.11).

namespace cordma::detail {
namespace {

void check_qkey(const datagram_address& own) {
  constexpr std::uint32_t told = datagram_address::rdma_cm_qkey;
  if (own.qkey == told) return;
  throw_failure(errc::refused, "publish",
                detail_text("the socket's Q_Key is %#x, and rdma_cm tells everybody %#x: open the "
                            "socket with qkey %#x",
                            own.qkey, told, told));
}

/// \errors EINVAL: `where` is a Unix socket's, which rdma_cm cannot reach.
void check_reachable(const endpoint& where, const char* call) {
  if (where.kind != endpoint::bootstrap::unix_socket) return;
  throw_errno(EINVAL, call,
              detail_text("%s: rdma_cm takes a host and a port", where.to_string().c_str()));
}

}  // namespace

endpoint datagram_state::publish(const endpoint& local) {
  check_qkey(address_);
  check_reachable(local, "publish");
  const socket_address where = listening_address(resources_.executor, local);
  const auto listen = [&](const socket_address& at) {
    published_ = std::make_unique<cm::datagram_listener>(resources_.bootstraps.cm_events(), at,
                                                         qp_->verbs());
  };
  if (published_ == nullptr || published_->local_address().port() != where.port()) {
    listen(where);
  } else if (const socket_address former = published_->local_address(); !(former == where)) {
    // A wildcard and another address exclude each other at one port.
    published_.reset();
    try {
      listen(where);
    } catch (...) {
      listen(former);
      throw;
    }
  }
  endpoint made = endpoint_of(published_->local_address());
  made.kind = endpoint::bootstrap::rdma_cm;
  return made;
}

task<datagram_address> datagram_state::resolve(counted_ref<datagram_state> self, endpoint server) {
  failure last{};
  check_reachable(server, "resolve");
  for (const socket_address& to : addresses_of(self->resources_.executor, server)) {
    check_open(*self.get(), "resolve");
    cm::datagram_id id{self->resources_.bootstraps.cm_events()};
    const result<cm::datagram_peer> found = co_await as_result(id.resolve(to));
    if (found.is_cancelled()) throw cancelled{};
    if (found.has_value()) {
      self->check_port(id, to);
      co_return address_of(*found);
    }
    last = found.failure();
  }
  throw error{last};
}

void datagram_state::check_port(const cm::datagram_id& id, const socket_address& to) const {
  const std::string own{resources_.ctx.name()};
  if (id.device_name() == own && id.port() == port_.number) return;
  throw_failure(
      errc::no_device, "resolve",
      detail_text("device %.*s, port %u, leads to %s, and the socket is on %s, port %u: "
                  "open one there",
                  int(id.device_name().size()), id.device_name().data(), unsigned{id.port()},
                  to.to_string().c_str(), own.c_str(), unsigned{port_.number}));
}

}  // namespace cordma::detail
