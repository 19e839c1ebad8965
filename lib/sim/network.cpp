#include "network.hpp"

#include "host_state.hpp"
#include "world_state.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

namespace cordma::sim::detail {
network::flow& network::flow_of(const softverbs_end& from, unsigned from_host) {
  const auto [found, is_new] = flow_of_end_.try_emplace({from.link, from.generation});
  if (is_new) found->second = &flows_.emplace_back();
  flow& made = *found->second;
  made.end = from;
  made.from = from_host;
  if (made.to == 0) {
    softverbs_end peer;
    if (softverbs_peer_end(&from, &peer) != 0)
      if (const host_state* const to = world_.host_of(peer.host)) made.to = to->number();
  }
  return made;
}

void network::sent(host_state& host, const softverbs_end& from, const softverbs_frame& sent) {
  flow& f = flow_of(from, host.number());
  frame next{.number = ++frames_};
  world_.note("sends frame {} of kind {} to qp {}, {} bytes", host, next.number, sent.kind,
              sent.destination_qpn, sent.bytes);
  if (sent.is_rnr_nak != 0 && world_.forbids_receiver_not_ready())
    world_.find("a message to qp " + std::to_string(sent.source_qpn) + " of host " + host.name() +
                " met no receive");
  f.last_arrival = std::max(f.last_arrival + duration{1}, world_.now() + world_.frame_latency());
  if (sent.may_be_lost != 0) {
    next.is_lost = world_.loses();
    next.late = world_.lateness();
    next.is_doubled = world_.doubles();
  }
  f.in_flight.push_back(next);
  world_.schedule({.at = f.last_arrival,
                   .host = &host,
                   .incarnation = host.incarnation(),
                   .end = from,
                   .kind = event_kind::arrival});
}

void network::ended(host_state& own, const softverbs_end& end) {
  softverbs_end peer;
  host_state* const host =
      softverbs_peer_end(&end, &peer) != 0 ? world_.host_of(peer.host) : nullptr;
  if (host != nullptr) {
    // The peer hears of it behind what was sent before.
    flow& f = flow_of(end, own.number());
    f.last_arrival = std::max(f.last_arrival + duration{1}, world_.now() + world_.latency());
    world_.schedule({.at = f.last_arrival,
                     .host = host,
                     .incarnation = host->incarnation(),
                     .end = peer,
                     .number = own.number(),
                     .kind = event_kind::link_end});
  }
  world_.schedule({.at = world_.now(),
                   .host = &own,
                   .incarnation = own.incarnation(),
                   .end = end,
                   .number = own.number(),
                   .kind = event_kind::link_end});
}

void network::post(const host_state& from, const host_state& to, time_point& last,
                   callback<void()> f) {
  last = std::max(last + duration{1}, world_.now() + world_.latency());
  world_.call_at(last,
                 [this, a = from.number(), b = to.number(), f = std::move(f)] { arrive(a, b, f); });
}

void network::arrive(unsigned from, unsigned to, const callback<void()>& f) {
  if (is_cut(from, to)) {
    held_messages_.push_back({from, to, f});
  } else {
    f();
  }
}

void network::cut(const host_state& from, const host_state& to) {
  cuts_.insert({from.number(), to.number()});
}

void network::heal() {
  cuts_.clear();
  // In one event: the messages of a socket stay in order.
  if (!held_messages_.empty())
    world_.call_at(world_.now(), [this, held = std::exchange(held_messages_, {})] {
      for (const held_message& m : held) arrive(m.from, m.to, m.f);
    });
  for (flow& f : flows_) {
    host_state* const host = world_.host_at(f.from);
    for (; f.held > 0; --f.held)
      world_.schedule({.at = world_.now(),
                       .host = host,
                       .incarnation = host->incarnation(),
                       .end = f.end,
                       .kind = event_kind::arrival});
  }
  for (event& e : std::exchange(held_ends_, {})) {
    e.at = world_.now();
    world_.schedule(e);
  }
}

void network::forget(const host_state& gone) {
  std::erase_if(flow_of_end_, [&](const auto& one) { return one.second->from == gone.number(); });
  for (flow& f : flows_) {
    if (f.from != gone.number()) continue;
    f.in_flight.clear();
    f.held = 0;
  }
  std::erase_if(held_ends_, [&](const event& e) { return e.host == &gone; });
}

void network::arrive(const softverbs_end& from) {
  const auto found = flow_of_end_.find({from.link, from.generation});
  if (found == flow_of_end_.end()) return;
  flow& f = *found->second;
  if (f.hurried > 0) {
    --f.hurried;
  } else if (is_cut(f.from, f.to)) {
    ++f.held;
  } else {
    take_next(f);
  }
}

void network::take_next(flow& f) {
  const frame next = f.in_flight.front();
  f.in_flight.pop_front();
  if (const host_state* const to = world_.host_at(f.to))
    world_.note(either(next.is_lost, "loses frame {}", "gets frame {}"), *to, next.number);
  if (next.is_lost) return softverbs_lose(&f.end);
  if (next.late > duration{} || next.is_doubled) {
    if (softverbs_copy* const copy = softverbs_copy_frame(&f.end)) {
      inject_later(f, copy, next.late > duration{} ? next.late : world_.latency());
      if (next.late > duration{}) return softverbs_lose(&f.end);
    }
  }
  softverbs_deliver(&f.end);
}

void network::inject_later(const flow& f, softverbs_copy* copy, duration by) {
  host_state* const sender = world_.host_at(f.from);
  const std::shared_ptr<softverbs_copy> owned{copy, &softverbs_free_copy};
  world_.call_at(world_.now() + by, [=, end = f.end, incarnation = sender->incarnation()] {
    if (sender->incarnation() == incarnation) softverbs_inject(&end, owned.get());
  });
}

bool network::hurry(const host_state& to) {
  for (flow& f : flows_) {
    if (f.to != to.number() || f.in_flight.empty() || is_cut(f.from, f.to)) continue;
    ++f.hurried;
    take_next(f);
    return true;
  }
  return false;
}

void network::end_link(const event& e) {
  if (is_cut(e.number, e.host->number())) {
    held_ends_.push_back(e);
    return;
  }
  softverbs_end_link(&e.end);
  e.host->take_news();
}

}  // namespace cordma::sim::detail
