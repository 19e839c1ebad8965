#include "abi/entry.hpp"
#include "abi/simulated_host.hpp"
#include "node/gid_table.hpp"
#include "node/node.hpp"

#include <cerrno>
#include <cstring>
#include <map>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

// <softverbs/simulation.h>: hosts, and the links between them.

using namespace softverbs;

// link(2) and clock(3) have names of softverbs, too.

/// A datagram.
struct softverbs_copy {
  frame_header header;
  std::vector<std::byte> payload;
};

namespace {

/// Returns the link of an end that is still one; null: it was closed.
softverbs::link* link_of(const softverbs_end& end) noexcept {
  auto* const one = static_cast<softverbs::link*>(end.link);
  return one->generation() == end.generation && one->current() != softverbs::link::state::free
             ? one
             : nullptr;
}

void arrive(const softverbs_end& from, bool is_lost) noexcept {
  softverbs_end to;
  if (softverbs_peer_end(&from, &to) == 0) return;
  link_of(to)->arrive(is_lost);
  to.host->on_work();
}

}  // namespace

void softverbs_host::on_start(softverbs::link& one) noexcept {
  // The accepting end starts first, and learns of the other when that starts.
  const peer_end peer = std::exchange(connecting, std::nullopt).value_or(peer_end{});
  end_deserted(one);
  peers[{&one, one.generation()}] = peer;
  if (peer.host != nullptr)
    peer.host->peers[{peer.far_end, peer.generation}] = {this, &one, one.generation()};
}

void softverbs_host::end_deserted(const softverbs::link& by) noexcept {
  for (std::uint32_t n = 0; n < local_node()->link_count(); ++n) {
    softverbs::link& one = local_node()->link_at(n);
    if (one.is_deserted() && one.opened() == by.opened() && one.peer() == by.peer()) on_end(one);
  }
}

void softverbs_host::on_sent(softverbs::link& by, const frame_header& header) noexcept {
  const softverbs_end from = end_of(by);
  const softverbs_frame frame{
      .bytes = header.payload_bytes,
      .source_qpn = header.source_qpn,
      .destination_qpn = header.destination_qpn,
      .psn = header.psn,
      .kind = static_cast<std::uint8_t>(header.kind),
      .is_answer = header.kind >= frame_kind::ack,
      .may_be_lost = header.transport == service::ud || header.transport == service::uc,
      .is_rnr_nak = header.kind == frame_kind::nak && header.nak == nak_code::rnr};
  if (is_port_up())
    world.sent(world.context, &from, &frame);
  else
    kept_back.emplace_back(from, frame);
}

void softverbs_host::on_peer_work(softverbs::link& of) noexcept {
  const softverbs_end own = end_of(of);
  softverbs_end peer;
  if (softverbs_peer_end(&own, &peer) == 0) return;
  const softverbs::link& far_end = *link_of(peer);
  if (far_end.up() && far_end.has_step()) peer.host->on_work();
}

void softverbs_host::on_end(softverbs::link& one) noexcept {
  if (has_vanished) return;
  const softverbs_end end = end_of(one);
  world.ended(world.context, &end);
}

bool softverbs_host::connect(const node_address& to, softverbs::link::setup& how) noexcept {
  ibv_gid gid;
  std::memcpy(&gid, &to.host, sizeof gid);
  softverbs_host* const peer = world.find(world.context, &gid, process_slot(to.slot));
  if (peer == nullptr || peer->local_node() == nullptr) return false;
  if (!is_port_up() || !peer->is_port_up()) return false;
  node_address own{.slot = how.own_slot};
  std::memcpy(&own.host, &gids().front(), sizeof own.host);
  how.rings = paired_rings::make(link_bytes());
  if (how.rings == nullptr) return false;
  how.network = this;
  softverbs::link* accepted = nullptr;
  {
    const entered as{peer};
    accepted = peer->local_node()->accept_simulated(own, how.rings);
  }
  if (accepted == nullptr) return false;
  connecting = {peer, accepted, accepted->generation()};
  return true;
}

extern "C" {

void softverbs_simulate_time(const std::int64_t* nanoseconds) {
  softverbs::clock::simulate(nanoseconds);
}

softverbs_host* softverbs_add_host(const softverbs_world* world, const ibv_gid* gids,
                                   unsigned gid_count, std::uint16_t slot,
                                   std::uint32_t first_qpn) {
  const bool has_link_bytes =
      world->link_bytes == 0 ||
      (world->link_bytes >= space_doorbell_bytes && world->link_bytes <= ring_bytes &&
       world->link_bytes % frame_align == 0);
  if (gid_count == 0 || gid_count > gids_max || slot >= process_slots || !has_link_bytes) {
    errno = EINVAL;
    return nullptr;
  }
  try {
    auto* const made = new softverbs_host{*world, {gids, gid_count}, slot, first_qpn & index_mask};
    if (world->called != nullptr) entry::needs_checks.store(true);
    return made;
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return nullptr;
  }
}

void softverbs_kill_host(softverbs_host* host) {
  const entered as{host};
  if (host->local_node() != nullptr) host->local_node()->die();
}

void softverbs_vanish_host(softverbs_host* host) {
  host->has_vanished = true;
  for (const auto& [own, peer] : host->peers) {
    if (peer.host == nullptr) continue;
    if (softverbs::link* const one = link_of({peer.host, peer.far_end, peer.generation}))
      one->set_deserted();
  }
  softverbs_kill_host(host);
}

int softverbs_remove_host(softverbs_host* host) {
  if (host->local_node() != nullptr && host->local_node()->is_open()) return EBUSY;
  delete host;
  return 0;
}

unsigned softverbs_list_steps(softverbs_host* host, softverbs_step* steps, unsigned most) {
  unsigned count = 0;
  const auto add = [&](softverbs_step_kind kind, void* one) {
    if (count < most) steps[count++] = {kind, one};
  };
  node* const local = host->local_node();
  if (local == nullptr || !local->is_open()) return 0;
  if (local->has_kicks()) add(SOFTVERBS_RUN, nullptr);
  if (local->next_deadline() <= softverbs::clock::now()) add(SOFTVERBS_TIME, nullptr);
  if (!host->is_port_up()) return count;
  for (std::uint32_t n = 0; n < local->link_count() && count < most; ++n) {
    softverbs::link& one = local->link_at(n);
    if (!one.up()) continue;
    if (one.has_frame_to_take()) add(SOFTVERBS_LINK, &one);
    if (one.has_answers_due()) add(SOFTVERBS_ANSWER, &one);
    if (one.has_space_for_waiters()) add(SOFTVERBS_SPACE, &one);
  }
  return count;
}

void softverbs_do_step(softverbs_host* host, const softverbs_step* step) {
  node* const local = host->local_node();
  if (local == nullptr || !local->is_open()) return;
  const entered as{host};
  auto* const one = static_cast<softverbs::link*>(step->link);
  if (one != nullptr && !host->is_port_up()) return;
  switch (step->kind) {
    case SOFTVERBS_RUN: static_cast<void>(local->run_next_kick()); break;
    case SOFTVERBS_TIME: static_cast<void>(local->run_next_due(softverbs::clock::now())); break;
    case SOFTVERBS_LINK: one->take_next(*local); break;
    case SOFTVERBS_ANSWER: one->answer_next(*local); break;
    case SOFTVERBS_SPACE: static_cast<void>(local->wake_waiters(*one)); break;
  }
}

std::int64_t softverbs_next_timer(const softverbs_host* host) {
  const node* const local = host->local_node();
  return local == nullptr ? INT64_MAX : local->next_deadline().time_since_epoch().count();
}

void softverbs_deliver(const softverbs_end* from) { arrive(*from, false); }

void softverbs_lose(const softverbs_end* from) { arrive(*from, true); }

softverbs_copy* softverbs_copy_frame(const softverbs_end* from) {
  softverbs_end to;
  if (softverbs_peer_end(from, &to) == 0) return nullptr;
  const frame_header& header = link_of(to)->next_to_arrive();
  if (header.transport != service::ud) return nullptr;
  try {
    const auto* const payload = reinterpret_cast<const std::byte*>(&header + 1);
    return new softverbs_copy{header, {payload, payload + header.payload_bytes}};
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return nullptr;
  }
}

void softverbs_inject(const softverbs_end* from, const softverbs_copy* copy) {
  softverbs_end to;
  if (softverbs_peer_end(from, &to) == 0 || !to.host->is_port_up()) return;
  const entered as{to.host};
  link_of(to)->take_datagram(*to.host->local_node(), copy->header, copy->payload.data());
}

void softverbs_free_copy(softverbs_copy* copy) { delete copy; }

int softverbs_peer_end(const softverbs_end* end, softverbs_end* peer) {
  const auto& peers = end->host->peers;
  const auto found = peers.find({static_cast<softverbs::link*>(end->link), end->generation});
  if (found == peers.end() || found->second.host == nullptr) return 0;
  *peer = {found->second.host, found->second.far_end, found->second.generation};
  return link_of(*peer) != nullptr ? 1 : 0;
}

void softverbs_end_link(const softverbs_end* end) {
  softverbs::link* const one = link_of(*end);
  if (one == nullptr) return;
  const entered as{end->host};
  end->host->local_node()->finish(*one);
}

}  // extern "C"
