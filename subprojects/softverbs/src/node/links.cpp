#include "link/ip_address.hpp"
#include "node/gid_table.hpp"
#include "node/node.hpp"
#include "node/upcalls.hpp"
#include "wire/no_cancellation.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace softverbs {

namespace {

/// The most batches that the ring of a lost peer can hold. A peer that still writes gets no more.
constexpr std::size_t last_batches_max =
    ring_bytes / frame_align / batch_frames_max + ring_bytes / batch_bytes_max + 1;

ibv_gid gid_of(const in6_addr& host) noexcept {
  ibv_gid gid;
  std::memcpy(&gid, &host, sizeof gid);
  return gid;
}

}  // namespace

node_address node::resolve(const ibv_gid& gid, std::uint32_t qpn) const noexcept {
  node_address to;
  to.slot = static_cast<std::uint16_t>(slot_of(qpn) % process_slots);
  if (!is_own_address(gid)) std::memcpy(&to.host, &gid, sizeof to.host);
  return to;
}

bool node::is_local(const node_address& address) const noexcept {
  return address.slot == slot_ && same(address.host, this_host);
}

link* node::link_to(const node_address& to) noexcept {
  const std::lock_guard lock{directory_};
  link* const found = find_link(to);
  return found != nullptr ? found : open_link(to, false);
}

link* node::link_to_member(const node_address& to) noexcept {
  const std::lock_guard lock{directory_};
  if (link* found = find_link(to)) return found;
  const bool is_far = !same(to.host, this_host);
  return is_far && !has_room_for_member(to.host) ? nullptr : open_link(to, is_far);
}

/// Under `directory_`.
link* node::open_link(const node_address& to, bool for_member) noexcept {
  if ((!epoll_ && simulated_ == nullptr) || protocol_.stopping()) return nullptr;
  const no_cancellation wholly;
  link::setup how{to, {}, {}, true, slot_, for_member};
  return connect(to, how) ? start_link(std::move(how)) : nullptr;
}

link* node::find_link(const node_address& to) noexcept {
  const std::uint32_t count = live_count_.load(std::memory_order_relaxed);
  for (std::uint32_t n = 0; n < count; ++n) {
    link* one = live_[n].load(std::memory_order_relaxed);
    if (one->opened() && one->up() && one->peer() == to && !one->is_deserted()) return one;
  }
  return nullptr;
}

bool node::connect(const node_address& to, link::setup& how) noexcept {
  if (simulated_ != nullptr) return simulated_->connect(to, how);
  const auto port = static_cast<std::uint16_t>(tcp_.port + process_slot(to.slot));
  if (!same(to.host, this_host)) return connect_tcp(to.host, port, how.socket);
  if (!tcp_forced_) return connect_local(to.slot, slot_, how.socket, how.memory);
  return connect_tcp(tcp_.listen, port, how.socket);
}

/// Under `directory_`.
link* node::start_link(link::setup how) noexcept {
  const std::uint32_t count = live_count_.load(std::memory_order_relaxed);
  const std::uint32_t events =
      how.memory ? std::uint32_t{EPOLLIN | EPOLLRDHUP} : EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  // An entry is for opened links only, or for accepted ones: the lock order depends on it.
  const std::uint32_t first = how.opened ? 0 : links_each_max;
  for (auto n = static_cast<std::uint16_t>(first); n < first + links_each_max; ++n) {
    if (!links_[n]) links_[n].reset(new (std::nothrow) link{protocol_});
    link* one = links_[n].get();
    if (one == nullptr) return nullptr;
    if (one->current() != link::state::free) continue;
    // The events first: a link without them could not be closed. Their handler waits for
    // `directory_`.
    if (how.network == nullptr &&
        !watch(epoll_.get(), how.socket.get(), events, {source::link, n, one->generation() + 1}))
      return nullptr;
    if (!one->start(how)) continue;
    if (one->is_tcp() && one->opened()) {
      hello words;
      words.slot = slot_;
      words.relays = is_relay(one->peer().slot) ? 1 : 0;
      one->send_first(&words);
    }
    pair_up(*one, count);
    live_[count].store(one, std::memory_order_release);
    live_count_.store(count + 1, std::memory_order_release);
    return one;
  }
  return nullptr;
}

/// Links an accepted link with the opened one of the same peer: link::drain takes a peer's answers
/// before its requests. Under `directory_`.
void node::pair_up(link& one, std::uint32_t count) noexcept {
  if (!one.opened()) return one.set_answers(find_link(one.peer()));
  for (std::uint32_t n = 0; n < count; ++n) {
    link* other = live_[n].load(std::memory_order_relaxed);
    if (!other->opened() && other->peer() == one.peer()) other->set_answers(&one);
  }
}

/// True if the host may open one more link. A peer has one accepted link: a new one replaces the
/// old one, whose socket is shut down. The engine then drains and closes it. Under `directory_`.
bool node::has_room_for(const node_address& peer) noexcept {
  std::uint32_t of_host = 0;
  const std::uint32_t count = live_count_.load(std::memory_order_relaxed);
  for (std::uint32_t n = 0; n < count; ++n) {
    const link& one = *live_[n].load(std::memory_order_relaxed);
    if (one.opened() || std::memcmp(&one.peer().host, &peer.host, sizeof peer.host) != 0) continue;
    ++of_host;
    if (one.peer() == peer) ::shutdown(one.socket(), SHUT_RDWR);
  }
  return of_host < links_per_host_max;
}

/// True if members on that other host may have one more opened link. Under `directory_`.
bool node::has_room_for_member(const in6_addr& host) noexcept {
  std::uint32_t all = 0;
  std::uint32_t of_host = 0;
  const std::uint32_t count = live_count_.load(std::memory_order_relaxed);
  for (std::uint32_t n = 0; n < count; ++n) {
    const link& one = *live_[n].load(std::memory_order_relaxed);
    if (!one.for_member()) continue;
    ++all;
    of_host += same(one.peer().host, host) ? 1 : 0;
  }
  return all < member_links_max && of_host < member_links_per_host_max;
}

/// Under `directory_`.
void node::accept(accepted_peer&& accepted) noexcept {
  const bool by_tcp = !accepted.memory;
  if (by_tcp && is_own_address(gid_of(accepted.from.host))) {
    // A process of this host must use the local listener, which knows the owner of the slot.
    if (!tcp_forced_) return;
    accepted.from.host = this_host;
  }
  if (!by_tcp && process_slot(accepted.from.slot) == slot_) return;
  if (!has_room_for(accepted.from)) return;
  start_link({accepted.from, std::move(accepted.socket), std::move(accepted.memory), false, slot_});
}

/// Takes no lock: the caller, which is the only thread, holds that of another node.
link* node::accept_simulated(const node_address& from,
                             std::shared_ptr<paired_rings> rings) noexcept {
  if (users_ == 0 || protocol_.stopping() || !has_room_for(from)) return nullptr;
  return start_link({from, {}, {}, false, slot_, false, simulated_, std::move(rings)});
}

/// Called by the engine when the peer has gone or broke the protocol. Drains the ring, then closes.
void node::finish(link& one) noexcept {
  for (std::size_t n = 0; n < last_batches_max && one.up(); ++n)
    if (!one.serve(*this, true)) break;
  close(one);
}

void node::close(link& one) noexcept {
  index_set waiters;
  one.stop(directory_, waiters);
  {
    const std::lock_guard lock{directory_};
    const std::uint32_t count = live_count_.load(std::memory_order_relaxed);
    for (std::uint32_t n = 0; n < count; ++n) {
      if (live_[n].load(std::memory_order_relaxed) != &one) continue;
      live_[n].store(live_[count - 1].load(std::memory_order_relaxed), std::memory_order_release);
      live_count_.store(count - 1, std::memory_order_release);
      break;
    }
  }
  index_set numbers_free;
  {
    const std::lock_guard lock{numbers_};
    numbers_free = free_indices_;
  }
  for (std::uint32_t index = 2; index <= index_max; ++index) {
    if (chunks_[index / chunk_slots].load(std::memory_order_acquire) == nullptr) {
      index |= chunk_slots - 1;  // No number of this chunk was ever in use.
      continue;
    }
    if (numbers_free.contains(index)) continue;
    const std::uint32_t qpn = std::uint32_t{slot_} << index_bits | index;
    if (one.opened())
      on_link_down(*this, one, one.generation(), qpn);
    else if (is_relay(one.peer().slot))
      on_relay_link_down(*this, one, one.generation(), qpn);
    // After this, no thread still uses the link, which may become another peer's.
    const std::lock_guard barrier{find(qpn)->send};
  }
  kick_all(waiters);
  one.set_free();
}

void node::kick_all(const index_set& waiters) noexcept {
  for (std::uint32_t index = waiters.next(1); index != index_set::none;
       index = waiters.next(index + 1))
    kick(std::uint32_t{slot_} << index_bits | index);
}

}  // namespace softverbs
