#include "network.hpp"

#include "host_state.hpp"
#include "world_state.hpp"

#include <algorithm>
#include <string>

namespace cordma::sim::detail {
namespace {

network& of(void* context) noexcept { return *static_cast<network*>(context); }

}  // namespace

void network::has_work(void* context, softverbs_host* host) {
  if (host_state* const known = of(context).world_.host_of(host)) known->device_has_work();
}

void network::sent(void* context, const softverbs_end* from, const softverbs_frame* frame) {
  network& self = of(context);
  world_state& w = self.world_;
  host_state* const host = w.host_of(from->host);
  if (host == nullptr) return;
  w.note("sent", *host, frame->source_qpn, frame->destination_qpn, frame->kind, frame->bytes);
  time_point& last = self.last_arrival_[{from->link, from->generation}];
  last = std::max(last + duration{1}, w.now() + w.latency());
  const bool is_lost = frame->may_be_lost != 0 && w.loses();
  w.schedule({.at = last,
              .kind = is_lost ? event_kind::loss : event_kind::arrival,
              .host = host,
              .incarnation = host->incarnation(),
              .end = *from});
}

void network::ended(void* context, const softverbs_end* end) {
  network& self = of(context);
  world_state& w = self.world_;
  softverbs_end peer;
  if (softverbs_peer_end(end, &peer) != 0) {
    if (host_state* const host = w.host_of(peer.host)) {
      // The peer hears of it behind what was sent before.
      time_point& last = self.last_arrival_[{end->link, end->generation}];
      w.schedule({.at = std::max(last + duration{1}, w.now() + w.latency()),
                  .kind = event_kind::link_end,
                  .host = host,
                  .incarnation = host->incarnation(),
                  .end = peer});
    }
  }
  if (host_state* const host = w.host_of(end->host))
    w.schedule({.at = w.now(),
                .kind = event_kind::link_end,
                .host = host,
                .incarnation = host->incarnation(),
                .end = *end});
}

softverbs_host* network::find(void* context, const ibv_gid* gid, std::uint16_t slot) {
  const host_state* const found = of(context).world_.host_at(slot);
  if (found == nullptr || !found->is_running()) return nullptr;
  const ibv_gid own = found->gid();
  return std::equal(std::begin(own.raw), std::end(own.raw), std::begin(gid->raw)) ? found->device()
                                                                                  : nullptr;
}

void network::post(const host_state& from, const host_state& to, time_point& last,
                   callback<void()> f) {
  last = std::max(last + duration{1}, world_.now() + world_.latency());
  world_.schedule(
      {.at = last,
       .kind = event_kind::call,
       .call = [this, a = from.number(), b = to.number(), f = std::move(f)] { arrive(a, b, f); }});
}

void network::arrive(unsigned from, unsigned to, const callback<void()>& f) {
  if (cuts_.contains({from, to})) {
    held_messages_.push_back({from, to, f});
  } else {
    f();
  }
}

void network::cut(const host_state& one, const host_state& other) {
  cuts_.insert({one.number(), other.number()});
  cuts_.insert({other.number(), one.number()});
}

bool network::is_cut(const softverbs_end& from) const {
  softverbs_end peer;
  if (cuts_.empty() || softverbs_peer_end(&from, &peer) == 0) return false;
  const host_state* const one = world_.host_of(from.host);
  const host_state* const other = world_.host_of(peer.host);
  return one != nullptr && other != nullptr && cuts_.contains({one->number(), other->number()});
}

void network::heal() {
  cuts_.clear();
  for (held_message& m : std::exchange(held_messages_, {}))
    world_.schedule({.at = world_.now(), .kind = event_kind::call, .call = std::move(m.f)});
  for (const auto& [from, is_lost] : std::exchange(held_, {})) {
    if (host_state* const host = world_.host_of(from.host))
      world_.schedule({.at = world_.now(),
                       .kind = is_lost ? event_kind::loss : event_kind::arrival,
                       .host = host,
                       .incarnation = host->incarnation(),
                       .end = from});
  }
}

void network::arrive(const softverbs_end& from, bool is_lost) {
  if (is_cut(from)) {
    held_.emplace_back(from, is_lost);
    return;
  }
  if (is_lost) {
    softverbs_lose(&from);
  } else {
    softverbs_deliver(&from);
  }
}

void network::end_link(const softverbs_end& end) { softverbs_end_link(&end); }

}  // namespace cordma::sim::detail
