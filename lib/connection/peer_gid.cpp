#include "peer_gid.hpp"

#include "base/failures.hpp"
#include "verbs/gid.hpp"

#include <algorithm>
#include <optional>

namespace cordma::detail {

bool is_own_address(host_calls& host, const ibv_gid& gid) {
  return std::ranges::any_of(host.own_addresses(), [&](const socket_address& own) {
    const std::optional<ibv_gid> one = verbs::gid_of(*own.data());
    return one && verbs::same_gid(*one, gid);
  });
}

namespace {

bool is_of_bootstrap(const connection_state& state, const ibv_gid& gid) {
  if (state.peer.is_loopback())
    return state.has_own_gid(gid) || is_own_address(state.executor.reactor().host(), gid);
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
