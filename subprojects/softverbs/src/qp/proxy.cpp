#include "link/ip_address.hpp"
#include "node/fork_mutex.hpp"
#include "node/upcalls.hpp"
#include "qp/queue_memory.hpp"
#include "qp/relay.hpp"

#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

// Proxies: queue pairs that the program does not see. Each takes the messages that one target of
// another process passes on, and answers them as RC's responder does.

namespace softverbs {
namespace {

constexpr std::size_t proxies_max = 4096;

fork_mutex proxies_mutex;
/// The proxies by the numbers of their targets. Never destroyed, because links end last.
std::unordered_map<std::uint32_t, owned_queue_pair>& proxies =
    *new std::unordered_map<std::uint32_t, owned_queue_pair>;

/// Proxies that left the map. A fork takes the map's mutex last, so they end without it.
struct withdrawn_proxies {
  withdrawn_proxies() = default;
  withdrawn_proxies(const withdrawn_proxies&) = delete;
  withdrawn_proxies& operator=(const withdrawn_proxies&) = delete;
  /// Frees the proxies and their numbers.
  ~withdrawn_proxies() {
    for (const owned_queue_pair& proxy : all) {
      {
        const std::lock_guard send{proxy->slot->send};
        const std::lock_guard receive{proxy->slot->receive};
        if (proxy->responder.has_request) flush_request(*proxy);
        proxy->slot->qp = nullptr;
      }
      proxy->local_node->free_qpn(proxy->number());
    }
  }
  std::vector<owned_queue_pair> all;
};

bool is_of(const queue_pair& proxy, const node& local_node) noexcept {
  return proxy.local_node == &local_node && slot_of(proxy.number()) == local_node.slot();
}

bool has_link(const responder_state& state) noexcept {
  return state.route != nullptr && state.route->generation() == state.route_generation &&
         state.route->up();
}

/// True if the proxy's next message needs nothing of what the proxy knows.
bool is_idle(const queue_pair& proxy) noexcept {
  const responder_state& state = proxy.responder;
  const expected_message& expected = proxy.slot->expected;
  return !state.has_request && !state.ack_due && state.nak_due == nak_code::none &&
         !expected.in_message && !expected.waits_for_resend;
}

/// Takes a proxy without a link, or an idle one of a full map, out of its slot. False: it stays. No
/// lock is awaited, as their holders may wait for a fork.
bool withdraw(queue_pair& proxy, const node& local_node, bool is_full) noexcept {
  const std::unique_lock send{proxy.slot->send, std::try_to_lock};
  if (!send) return false;
  const std::unique_lock receive{proxy.slot->receive, std::try_to_lock};
  if (!receive) return false;
  const bool is_served = is_of(proxy, local_node) && has_link(proxy.responder);
  if (is_served && !(is_full && is_idle(proxy))) return false;
  proxy.slot->qp = nullptr;
  return true;
}

/// Drops the proxies of links that have ended, and those of a node that was closed or forked. A
/// full map loses its idle ones, too, whose targets may be gone. \errors std::bad_alloc
void sweep(node& local_node, withdrawn_proxies& withdrawn) {
  const bool is_full = proxies.size() >= proxies_max;
  withdrawn.all.reserve(proxies.size());
  for (auto next = proxies.begin(); next != proxies.end();) {
    owned_queue_pair& proxy = next->second;
    const bool is_ours = proxy->local_node == &local_node;
    if (is_ours && !withdraw(*proxy, local_node, is_full)) {
      ++next;
      continue;
    }
    if (is_ours)
      withdrawn.all.push_back(std::move(proxy));
    else
        // A child leaves its parent's, whose locks may be taken for ever.
        [[maybe_unused]]
      const auto* const left = proxy.release();
    next = proxies.erase(next);
  }
}

/// Null: no number or no memory is left.
owned_queue_pair make_proxy(node& local_node, link& from, std::uint32_t target) {
  const std::uint32_t qpn = local_node.allocate_qpn();
  if (qpn == 0) return nullptr;
  owned_queue_pair proxy;
  try {
    proxy = make_hidden(local_node);
  } catch (const std::bad_alloc&) {
    local_node.free_qpn(qpn);
    return nullptr;
  }
  proxy->handle.qp_base.qp_num = qpn;
  proxy->shown_number = target;
  proxy->slot = local_node.find(qpn);
  proxy->terms.peer_qpn = target;
  proxy->terms.access = IBV_ACCESS_REMOTE_WRITE;  // The target has checked that.
  proxy->state = IBV_QPS_RTS;
  proxy->responder.route = &from;
  proxy->responder.route_generation = from.generation();
  const std::lock_guard send{proxy->slot->send};
  const std::lock_guard receive{proxy->slot->receive};
  proxy->slot->expected = {};
  proxy->slot->qp = proxy.get();
  return proxy;
}

/// The slot of the target's proxy. Null: it has none. \errors std::bad_alloc
qp_slot* find_proxy(node& local_node, std::uint32_t target, withdrawn_proxies& withdrawn) {
  const std::lock_guard lock{proxies_mutex};
  const auto found = proxies.find(target);
  if (found != proxies.end() && is_of(*found->second, local_node)) return found->second->slot;
  if (found != proxies.end() || proxies.size() >= proxies_max) sweep(local_node, withdrawn);
  return nullptr;
}

/// Puts the proxy in the map. False: it has no place there.
bool keep(owned_queue_pair& proxy) noexcept {
  const std::lock_guard lock{proxies_mutex};
  if (proxies.size() >= proxies_max) return false;
  try {
    const auto [entry, is_new] = proxies.try_emplace(proxy->terms.peer_qpn);
    if (is_new) entry->second = std::move(proxy);
    return is_new;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

/// The slot of the proxy for a target of another process. Null: there are too many, or no memory.
qp_slot* slot_for(node& local_node, link& from, std::uint32_t target) noexcept {
  withdrawn_proxies withdrawn;
  try {
    if (qp_slot* const found = find_proxy(local_node, target, withdrawn)) return found;
    withdrawn.all.reserve(withdrawn.all.size() + 1);
    owned_queue_pair made = make_proxy(local_node, from, target);
    if (made == nullptr) return nullptr;
    qp_slot* const slot = made->slot;
    if (keep(made)) return slot;
    withdrawn.all.push_back(std::move(made));
  } catch (const std::bad_alloc&) {
  }
  return nullptr;
}

/// True if the queue pair is the proxy for that target.
bool is_proxy(const queue_pair* qp, std::uint32_t target) noexcept {
  return qp != nullptr && qp->handle.qp_base.context == nullptr && qp->terms.peer_qpn == target;
}

/// True if the frame is in a connection that the proxy serves. A new route or epoch begins one.
bool accept_connection(queue_pair& proxy, const link& from, const frame_header& header) noexcept {
  responder_state& state = proxy.responder;
  expected_message& expected = proxy.slot->expected;
  const bool is_first = (header.flags & frame_flag::first) != 0;
  if (state.route != &from || state.route_generation != from.generation()) {
    if (state.has_request) flush_request(proxy);
    state = {};
    expected = {};
  }
  if (state.epoch != header.epoch) {
    if (!is_first) return false;
    state.epoch = header.epoch;
    state.ack_due = false;
    state.nak_due = nak_code::none;
    expected.waits_for_resend = false;
  }
  // After a NAK, the rest of its epoch was sent in vain. Messages to other processes have the PSNs
  // between.
  if (expected.waits_for_resend) return false;
  if (is_first) expected.psn = header.psn;
  return true;
}

}  // namespace

bool on_relayed(node& local_node, link& from, const frame_header& header,
                const std::byte* payload) noexcept {
  const std::uint16_t sender = from.peer().slot;
  const bool is_honest = same(from.peer().host, this_host) &&
                         relay_slot(slot_of(header.source_qpn)) == sender &&
                         (header.kind == frame_kind::send || header.kind == frame_kind::write);
  if (!is_honest) return true;
  frame_header own = header;
  own.transport = service::rc;
  qp_slot* const slot = slot_for(local_node, from, header.source_qpn);
  if (slot == nullptr) return reject(from, own);
  const auto number = static_cast<std::uint32_t>(header.operand[1]);
  const std::lock_guard lock{slot->receive};
  queue_pair* const proxy = slot->qp;
  if (!is_proxy(proxy, header.source_qpn)) return false;  // Another thread withdrew the proxy.
  if (!send_due_nak(*proxy, from)) return false;
  if (!accept_connection(*proxy, from, header)) return true;
  proxy->domain_id = {header.operand[0], static_cast<std::uint32_t>(header.operand[1] >> 32)};
  name_queue(own, number);
  const incoming piece{.header = own, .bytes = payload, .read_into = nullptr, .from = &from};
  schedule_answer(*proxy, piece, take_for_queue(*proxy, piece));
  return true;
}

void on_relay_link_down(node& local_node, const link& dead, std::uint32_t generation,
                        std::uint32_t local_qpn) noexcept {
  qp_slot* const slot = local_node.find(local_qpn);
  if (slot == nullptr) return;
  const std::lock_guard receive{slot->receive};
  queue_pair* const proxy = slot->qp;
  if (proxy == nullptr || proxy->handle.qp_base.context != nullptr) return;
  const responder_state& state = proxy->responder;
  if (state.route != &dead || state.route_generation != generation) return;
  slot->expected.in_message = false;
  if (state.has_request) flush_request(*proxy);
}

}  // namespace softverbs
