#include "peer_gid.hpp"

#include "base/failures.hpp"
#include "verbs/gid.hpp"

#include <ifaddrs.h>

#include <cerrno>
#include <memory>

namespace cordma::detail {

bool is_own_address(const ibv_gid& gid) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw_errno(errno, "getifaddrs");
  const std::unique_ptr<ifaddrs, decltype([](ifaddrs* all) { ::freeifaddrs(all); })> owner{list};
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    const std::optional<ibv_gid> own = verbs::gid_of(*one->ifa_addr);
    if (own && verbs::same_gid(*own, gid)) return true;
  }
  return false;
}

namespace {

bool is_of_bootstrap(const connection_state& state, const ibv_gid& gid) {
  if (state.peer.is_loopback()) return state.has_own_gid(gid) || is_own_address(gid);
  const std::optional<ibv_gid> address = verbs::gid_of(*state.peer.data());
  return address && verbs::same_gid(*address, gid);
}

}  // namespace

task<> admit_peer_gid(connection_state& state, const handshake::hello& theirs) {
  if (theirs.layer != handshake::link_layer::ethernet || is_of_bootstrap(state, theirs.gid))
    co_return;
  if (state.options().allow_foreign_gid) co_return co_await state.resolve(theirs.gid);
  throw_failure(
      errc::refused, "handshake",
      detail_text("the peer comes from %s and names the GID %s, which is not its address; "
                  "if it should, set allow_foreign_gid on the other side",
                  state.peer.to_string().c_str(), verbs::to_string(theirs.gid).c_str()));
}

}  // namespace cordma::detail
