#include "link/ip_address.hpp"
#include "node/fork_mutex.hpp"
#include "qp/queue_memory.hpp"
#include "qp/relay.hpp"

#include <new>
#include <unordered_map>

// Proxies: queue pairs that the program does not see. Each takes the messages that one target of
// another process passes on, and answers them as RC's responder does.

namespace softverbs {
namespace {

constexpr std::size_t proxies_max = 4096;

fork_mutex proxies_mutex;
/// The proxies by the numbers of their targets. Never destroyed, because links end last.
std::unordered_map<std::uint32_t, owned_queue_pair>& proxies =
    *new std::unordered_map<std::uint32_t, owned_queue_pair>;

/// Frees a proxy's number.
void retire(queue_pair& proxy) noexcept {
  {
    const std::lock_guard send{proxy.slot->send};
    const std::lock_guard receive{proxy.slot->receive};
    if (proxy.responder.has_request) flush_request(proxy);
    proxy.slot->qp = nullptr;
  }
  proxy.local_node->free_qpn(proxy.number());
}

bool has_link(const queue_pair& proxy) noexcept {
  const std::lock_guard receive{proxy.slot->receive};
  const responder_state& state = proxy.responder;
  return state.route != nullptr && state.route->generation() == state.route_generation;
}

/// Drops the proxies of links that have ended, and those of a node that was closed or forked.
void sweep(node& local_node) {
  for (auto next = proxies.begin(); next != proxies.end();) {
    owned_queue_pair& proxy = next->second;
    const bool is_ours = proxy->local_node == &local_node;
    if (is_ours && slot_of(proxy->number()) == local_node.slot() && has_link(*proxy)) {
      ++next;
      continue;
    }
    if (is_ours)
      retire(*proxy);
    else
      static_cast<void>(proxy.release());  // The parent's, whose locks may be taken for ever.
    next = proxies.erase(next);
  }
}

/// Null: no number or no memory is left.
owned_queue_pair make_proxy(node& local_node, std::uint32_t target) {
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
  const std::lock_guard send{proxy->slot->send};
  const std::lock_guard receive{proxy->slot->receive};
  proxy->slot->expected = {};
  proxy->slot->qp = proxy.get();
  return proxy;
}

/// The proxy for a target of another process. Null: there are too many, or no memory.
queue_pair* proxy_for(node& local_node, std::uint32_t target) noexcept {
  const std::lock_guard lock{proxies_mutex};
  try {
    const auto found = proxies.find(target);
    if (found != proxies.end() && found->second->local_node == &local_node &&
        slot_of(found->second->number()) == local_node.slot())
      return found->second.get();
    if (found != proxies.end() || proxies.size() >= proxies_max) sweep(local_node);
    if (proxies.size() >= proxies_max) return nullptr;
    owned_queue_pair made = make_proxy(local_node, target);
    return made == nullptr ? nullptr : proxies.emplace(target, std::move(made)).first->second.get();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
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
  queue_pair* const proxy = proxy_for(local_node, header.source_qpn);
  if (proxy == nullptr) return reject(from, own);
  const auto number = static_cast<std::uint32_t>(header.operand[1]);
  const std::lock_guard lock{proxy->slot->receive};
  if (!send_due_nak(*proxy, from)) return false;
  if (!accept_connection(*proxy, from, header)) return true;
  proxy->domain_id = {header.operand[0], static_cast<std::uint32_t>(header.operand[1] >> 32)};
  name_queue(own, number);
  const incoming piece{.header = own, .bytes = payload, .read_into = nullptr, .from = &from};
  schedule_answer(*proxy, piece, take_for_queue(*proxy, piece));
  return true;
}

}  // namespace softverbs
