#include "abi/attributes.hpp"
#include "abi/simulated_host.hpp"
#include "node/gid_table.hpp"
#include "node/node.hpp"
#include "node/port.hpp"
#include "object/soft_verbs.hpp"
#include "qp/queue_pair.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

// <softverbs/simulation.h>: what becomes of a host's device, and what of it can be seen.

using namespace softverbs;

namespace {

/// The limits of the process itself, while a host is entered.
constinit const device_limits* limits_of_process = nullptr;

/// Tells all contexts. Returns 0, ENOMEM.
int raise_event(const softverbs_host& host, const ibv_async_event& event) noexcept {
  try {
    for (ibv_context* const ctx : host.contexts()) soft(ctx).async.push(event);
    return 0;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

int raise_port_event(const softverbs_host& host, ibv_event_type type) noexcept {
  ibv_async_event event{};
  event.event_type = type;
  event.element.port_num = only_port;
  return raise_event(host, event);
}

}  // namespace

softverbs_host* softverbs_host::enter(softverbs_host* next) noexcept {
  auto* const before = static_cast<softverbs_host*>(simulated_host::enter(next));
  if (before == next) return before;
  const device_limits* const limits = next == nullptr ? limits_of_process : next->limits_outside;
  (before == nullptr ? limits_of_process : before->limits_outside) = exchange_limits(limits);
  return before;
}

void softverbs_host::pretend(const device_limits& now) {
  exchange_limits(&pretended.emplace_back(now));
}

void softverbs_host::release_frames() noexcept {
  for (const auto& [from, frame] : std::exchange(kept_back, {}))
    world.sent(world.context, &from, &frame);
}

extern "C" {

softverbs_host* softverbs_enter_host(softverbs_host* host) { return softverbs_host::enter(host); }

unsigned softverbs_host_contexts(const softverbs_host* host, ibv_context** contexts,
                                 unsigned most) {
  const auto open = host->contexts();
  const std::size_t count = std::min<std::size_t>(open.size(), most);
  std::copy_n(open.begin(), count, contexts);
  return static_cast<unsigned>(count);
}

ibv_qp* softverbs_find_qp(const softverbs_host* host, std::uint32_t qp_num) {
  softverbs::node* const local = host->local_node();
  softverbs::qp_slot* const slot = local == nullptr ? nullptr : local->find(qp_num);
  softverbs::queue_pair* const found = slot == nullptr ? nullptr : slot->qp.load();
  return found == nullptr ? nullptr : &found->handle.qp_base;
}

softverbs_counts softverbs_count_objects(const softverbs_host* host) {
  if (host->local_node() == nullptr) return {};
  const object_counts& open = host->local_node()->counts();
  return {.contexts = open.contexts.now(),
          .pds = open.domains.now(),
          .mrs = open.regions.now(),
          .mws = open.windows.now(),
          .cqs = open.queues.now(),
          .channels = open.channels.now(),
          .qps = open.queue_pairs.now(),
          .srqs = open.shared_queues.now(),
          .ahs = open.handles.now()};
}

int softverbs_is_readable(const softverbs_host* host, int fd) {
  const event_tokens* const tokens = host->find_tokens(fd);
  return tokens == nullptr ? -1 : tokens->is_readable() ? 1 : 0;
}

int softverbs_change_gids(softverbs_host* host, const ibv_gid* gids, unsigned gid_count) {
  if (gid_count == 0 || gid_count > gids_max) return EINVAL;
  try {
    host->change_gids({gids, gid_count});
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  return raise_port_event(*host, IBV_EVENT_GID_CHANGE);
}

int softverbs_set_port(softverbs_host* host, int up) {
  const bool is_up = up != 0;
  if (host->is_port_up() == is_up) return 0;
  host->set_port(is_up);
  if (is_up) {
    host->release_frames();
    host->on_work();
  }
  return raise_port_event(*host, is_up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
}

int softverbs_fail_device(softverbs_host* host) {
  host->fail();
  ibv_async_event event{};
  event.event_type = IBV_EVENT_DEVICE_FATAL;
  const int error = raise_event(*host, event);
  softverbs::node* const local = host->local_node();
  if (local == nullptr || !local->is_open()) return error;
  const entered as{host};
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_ERR;
  for (std::uint32_t index = 2; index <= index_max; ++index)
    if (ibv_qp* const qp =
            softverbs_find_qp(host, std::uint32_t{local->slot()} << index_bits | index))
      static_cast<void>(verb::modify_qp(qp, &to, IBV_QP_STATE));
  return error;
}

}  // extern "C"
