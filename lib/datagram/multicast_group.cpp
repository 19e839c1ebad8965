#include "multicast_group.hpp"

#include "base/failures.hpp"
#include "connection/bootstrap_services.hpp"
#include "datagram_state.hpp"
#include "ip_group.hpp"

#include <cerrno>
#include <utility>

namespace cordma::detail {

void multicast_group::attach(verbs::queue_pair& to) {
  to.attach(address_.path.gid, address_.path.lid);
  attached_ = &to;
}

void multicast_group::leave() noexcept {
  unlink();
  if (attached_ != nullptr) {
    try {
      attached_->detach(address_.path.gid, address_.path.lid);
    } catch (...) {
      // The device is gone, and the group with it; or there is no memory to tell what failed.
    }
    attached_ = nullptr;
  }
  ip_.reset();
  subnet_.reset();
}

std::optional<failure> multicast_group::why_lost() const noexcept {
  return subnet_ != nullptr ? subnet_->why_ended() : std::nullopt;
}

ibv_gid datagram_state::mgid_of(const socket_address& ip_group) const {
  if (port_.is_ethernet()) return detail::mgid_of(ip_group, gid_.type);
  return detail::mgid_of(ip_group, verbs::gid_type::ib,
                         resources_.ctx.query_pkey(port_.number, pkey_index_));
}

void datagram_state::check_group(const ibv_gid& mgid) const {
  if (!is_multicast(mgid)) {
    throw_errno(EINVAL, "join",
                detail_text("%s is no multicast group; an MGID begins with ff",
                            verbs::to_string(mgid).c_str()));
  }
  // RoCE v2 sends one version of IP from each GID.
  if (gid_.type != verbs::gid_type::roce_v2 || is_mapped_ip4(mgid) == is_mapped_ip4(gid_.gid))
    return;
  throw_errno(
      EINVAL, "join",
      detail_text("%s is of another version of IP than the socket's GID %s; open the socket "
                  "with the gid_index of an address of the group's version",
                  verbs::to_string(mgid).c_str(), verbs::to_string(gid_.gid).c_str()));
}

multicast_group* datagram_state::find_group(const datagram_address& of, bool send_only) noexcept {
  return groups_.find([&](const multicast_group& one) { return one.is_for(of, send_only); });
}

task<counted_ref<multicast_group>> datagram_state::join(counted_ref<datagram_state> self,
                                                        ibv_gid mgid, bool send_only) {
  check_open(*self.get(), "join");
  self->check_group(mgid);
  if (self->port_.is_ethernet()) co_return self->join_ip_group(mgid, send_only);
  co_return co_await self->join_subnet_group(mgid, send_only);
}

counted_ref<multicast_group> datagram_state::join_ip_group(const ibv_gid& mgid, bool send_only) {
  datagram_address address;
  address.path = verbs::address_vector::by_gid(mgid, 0);
  address.qpn = datagram_address::multicast_qpn;
  address.qkey = address_.qkey;
  if (auto* const known = find_group(address, send_only)) return counted_ref{*known};
  counted_ref made{*new multicast_group{address, send_only}};
  if (!send_only) {
    const bool has_ip = gid_.type == verbs::gid_type::roce_v2 && gid_.netdev_ifindex != 0;
    if (has_ip) made->keep(detail::join_ip_group(mgid, gid_.netdev_ifindex));
    made->attach(qp_->verbs());
  }
  groups_.push_back(*made.get());
  note(&datagram_counters::groups_joined, &datagram_totals::groups_joined);
  return made;
}

task<counted_ref<multicast_group>> datagram_state::join_subnet_group(ibv_gid mgid, bool send_only) {
  const std::uint16_t pkey = resources_.ctx.query_pkey(port_.number, pkey_index_);
  auto member = std::make_unique<cm::datagram_id>(resources_.bootstraps.cm_events());
  const cm::datagram_peer told = co_await member->join(cm::any_address{gid_.gid, pkey},
                                                       cm::any_address{mgid, pkey}, send_only);
  check_open(*this, "join");
  const datagram_address address = address_of(told);
  if (!send_only && address.qkey != address_.qkey) {
    throw_failure(
        errc::refused, "join",
        detail_text("the group's Q_Key is %#x, and the socket's %#x: the device would drop "
                    "what the group is sent; open the socket with qkey %#x",
                    address.qkey, address_.qkey, address.qkey));
  }
  if (auto* const known = find_group(address, send_only)) {
    if (known->why_lost()) known->keep(std::move(member));
    co_return counted_ref{*known};
  }
  counted_ref made{*new multicast_group{address, send_only}};
  made->keep(std::move(member));
  if (!send_only) made->attach(qp_->verbs());
  groups_.push_back(*made.get());
  note(&datagram_counters::groups_joined, &datagram_totals::groups_joined);
  co_return made;
}

}  // namespace cordma::detail
