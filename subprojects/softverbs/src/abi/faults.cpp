#include "abi/faults.hpp"

#include "abi/attributes.hpp"
#include "abi/dispatch.hpp"
#include "node/fork_mutex.hpp"
#include "node/node.hpp"
#include "qp/queue_pair.hpp"
#include "queue/completion_queue.hpp"
#include "queue/event_subject.hpp"

#include <softverbs/softverbs.h>

#include <mutex>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

// Faults on demand: <softverbs/softverbs.h>.

namespace softverbs {

namespace {

/// The longest delay that the clock can represent.
constexpr std::uint64_t delay_ns_max = std::uint64_t{1} << 62;

/// The queue pairs and completion queues that have faults.
fork_mutex faults_mutex;
std::unordered_set<queue_pair*> disturbed_qps;
std::unordered_set<completion_queue*> withholding_cqs;
/// True if a set is not empty. Destroying verbs read it before they acquire the mutex.
constinit std::atomic<bool> any_listed{false};

void note_listed() noexcept {
  any_listed.store(!disturbed_qps.empty() || !withholding_cqs.empty());
}

/// Changes the faults of a queue pair and kicks it.
template <class Change>
int disturb(ibv_qp* handle, Change&& change) noexcept {
  if (handle == nullptr || !is_soft(handle->context)) return EINVAL;
  if (entry::orphaned(handle->context)) return EIO;
  return without_exceptions<int>([&] {
    auto& qp = *reinterpret_cast<queue_pair*>(handle);
    {
      const std::lock_guard lock{faults_mutex};
      disturbed_qps.insert(&qp);
      change(qp);
      const bool disturbed = qp.cut || qp.delay_ns != 0 || qp.next_status >= 0;
      qp.disturbed = disturbed;
      if (!disturbed) disturbed_qps.erase(&qp);
      note_listed();
    }
    qp.local_node->kick(handle->qp_num);
    return 0;
  });
}

void heal(queue_pair& qp) noexcept {
  qp.cut = false;
  qp.delay_ns = 0;
  qp.next_status = -1;
  qp.disturbed = false;
}

/// Makes limits those of the device: of the simulated host that was entered, if there is one.
void publish(const device_limits& now) {
  if (simulated_host* const host = simulated_host::current())
    host->pretend(now);
  else
    pretend(now);
}

/// Ends the faults of all queue pairs and completion queues. A forked child leaves inherited
/// objects alone: threads that do not exist in the child may hold their locks.
void heal_all(std::vector<std::pair<node*, std::uint32_t>>& to_kick) {
  const std::lock_guard lock{faults_mutex};
  to_kick.reserve(disturbed_qps.size());
  for (queue_pair* qp : disturbed_qps) {
    heal(*qp);
    to_kick.emplace_back(qp->local_node, qp->handle.qp_base.qp_num);
  }
  for (completion_queue* cq : withholding_cqs)
    if (!entry::orphaned(cq->handle.context)) release_withheld(*cq);
  disturbed_qps.clear();
  withholding_cqs.clear();
  note_listed();
  publish(true_limits());
}

/// A limit: the member of device_limits, and its true maximum.
int set_limit(device_limits& now, softverbs_limit limit, std::uint64_t value) noexcept {
  const auto set = [value](auto&... fields) {
    if (((value > static_cast<std::uint64_t>(fields)) || ...)) return EINVAL;
    ((fields = static_cast<std::remove_reference_t<decltype(fields)>>(value)), ...);
    return 0;
  };
  switch (limit) {
    case SOFTVERBS_MAX_QP: return set(now.max_qp);
    case SOFTVERBS_MAX_QP_WR: return set(now.max_qp_wr);
    case SOFTVERBS_MAX_SGE: return set(now.max_sge, now.max_sge_rd, now.max_srq_sge);
    case SOFTVERBS_MAX_CQ: return set(now.max_cq);
    case SOFTVERBS_MAX_CQE: return set(now.max_cqe);
    case SOFTVERBS_MAX_MR: return set(now.max_mr);
    case SOFTVERBS_MAX_MR_BYTES: return set(now.max_mr_size);
    case SOFTVERBS_MAX_PD: return set(now.max_pd);
    case SOFTVERBS_MAX_MW: return set(now.max_mw);
    case SOFTVERBS_MAX_AH: return set(now.max_ah);
    case SOFTVERBS_MAX_SRQ: return set(now.max_srq);
    case SOFTVERBS_MAX_SRQ_WR: return set(now.max_srq_wr);
    case SOFTVERBS_MAX_RD_ATOMIC: return set(now.max_qp_rd_atom, now.max_qp_init_rd_atom);
    case SOFTVERBS_MAX_MESSAGE_BYTES: return set(now.message_bytes);
    case SOFTVERBS_MAX_INLINE_BYTES: return set(now.inline_bytes);
  }
  return EINVAL;
}

int take_away(device_limits& now, softverbs_capability capability) noexcept {
  switch (capability) {
    case SOFTVERBS_MEMORY_WINDOWS:
      now.max_mw = 0;
      now.device_cap_flags &= ~unsigned{IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B};
      return 0;
    case SOFTVERBS_ATOMICS: now.atomic_cap = IBV_ATOMIC_NONE; return 0;
    case SOFTVERBS_SRQ: now.max_srq = now.max_srq_wr = now.max_srq_sge = 0; return 0;
    case SOFTVERBS_RESIZE_CQ: now.resize_cq = false; return 0;
    case SOFTVERBS_RATE_LIMITS: now.pacing = {}; return 0;
    case SOFTVERBS_ATOMIC_WRITE: now.writes_atomically = false; return 0;
  }
  return EINVAL;
}

/// Changes the reported limits, under `faults_mutex`. Changes accumulate.
template <class Change>
int pretend_changed(Change&& change) noexcept {
  return without_exceptions<int>([&] {
    (void)true_limits();  // Measured before the mutex is taken, which is a leaf.
    const std::lock_guard lock{faults_mutex};
    device_limits now = limits();
    const int error = change(now);
    if (error == 0) publish(now);
    return error;
  });
}

/// The verb of an extended form: "ibv_reg_mr" for "ibv_reg_mr_iova2", and so on; see entry::verbs.
std::string_view base_form(std::string_view verb) noexcept {
  for (const std::string_view form : {"_ex", "_iova", "_iova2"})
    if (verb.ends_with(form)) return verb.substr(0, verb.size() - form.size());
  return verb;
}

/// True if the event names an object of this context, or none.
bool belongs(const ibv_async_event& event, const ibv_context* ctx) noexcept {
  switch (event.event_type) {
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE: return event.element.port_num == only_port;
    case IBV_EVENT_DEVICE_FATAL: return true;
    case IBV_EVENT_WQ_FATAL: return false;  // soft0 has no separate work queues.
    default: break;
  }
  return visit_subject(event, [ctx](auto subject) {
    if constexpr (std::is_null_pointer_v<decltype(subject)>)
      return false;  // An unknown event.
    else
      return subject != nullptr && subject->context == ctx;
  });
}

}  // namespace

namespace faults {

leaving::leaving(void* object) noexcept {
  if (!any_listed.load()) return;
  const std::lock_guard lock{faults_mutex};
  qp_ = disturbed_qps.extract(static_cast<queue_pair*>(object));
  cq_ = withholding_cqs.extract(static_cast<completion_queue*>(object));
  note_listed();
}

int leaving::ended(int error) noexcept {
  if (error == 0 || (qp_.empty() && cq_.empty())) return error;
  const std::lock_guard lock{faults_mutex};
  disturbed_qps.insert(std::move(qp_));
  withholding_cqs.insert(std::move(cq_));
  note_listed();
  return error;
}

}  // namespace faults

}  // namespace softverbs

using namespace softverbs;

extern "C" {

int softverbs_cut_link(ibv_qp* qp, int cut) {
  return disturb(qp, [&](queue_pair& to) { to.cut = cut != 0; });
}

int softverbs_delay_link(ibv_qp* qp, std::uint64_t nanoseconds) {
  if (nanoseconds > delay_ns_max) return EINVAL;
  return disturb(qp, [&](queue_pair& to) { to.delay_ns = nanoseconds; });
}

int softverbs_complete_next_with(ibv_qp* qp, ibv_wc_status status) {
  if (status < IBV_WC_SUCCESS || status > IBV_WC_TM_RNDV_INCOMPLETE) return EINVAL;
  return disturb(qp, [&](queue_pair& to) { to.next_status = status; });
}

int softverbs_fail_call(const char* verb, unsigned nth, int error) {
  if (verb == nullptr) return EINVAL;
  const std::size_t index = entry::index_of(base_form(verb));
  if (index == entry::unknown_verb || nth == 0 || error <= 0) return EINVAL;
  entry::fail_call(index, nth, error);
  return 0;
}

int softverbs_withhold_completions(ibv_cq* handle) {
  if (handle == nullptr || !is_soft(handle->context)) return EINVAL;
  if (entry::orphaned(handle->context)) return EIO;
  return without_exceptions<int>([&] {
    auto& cq = *reinterpret_cast<completion_queue*>(handle);
    const std::lock_guard lock{faults_mutex};
    withholding_cqs.insert(&cq);
    note_listed();
    withhold(cq);
    return 0;
  });
}

int softverbs_release_completions(ibv_cq* handle) {
  if (handle == nullptr || !is_soft(handle->context)) return EINVAL;
  if (entry::orphaned(handle->context)) return EIO;
  return without_exceptions<int>([&] {
    auto& cq = *reinterpret_cast<completion_queue*>(handle);
    const std::lock_guard lock{faults_mutex};
    release_withheld(cq);
    withholding_cqs.erase(&cq);
    note_listed();
    return 0;
  });
}

int softverbs_raise_async_event(ibv_context* ctx, const ibv_async_event* event) {
  if (ctx == nullptr || !is_soft(ctx) || !belongs(*event, ctx)) return EINVAL;
  if (entry::orphaned(ctx)) return EIO;
  return without_exceptions<int>([&] {
    soft(ctx).async.push(*event);
    return 0;
  });
}

int softverbs_pretend_limit(softverbs_limit limit, std::uint64_t value) {
  return pretend_changed([&](device_limits& now) { return set_limit(now, limit, value); });
}

int softverbs_pretend_missing(softverbs_capability capability) {
  return pretend_changed([&](device_limits& now) { return take_away(now, capability); });
}

int softverbs_reset() {
  entry::fail_no_call();
  return without_exceptions<int>([] {
    (void)true_limits();  // Measured before the mutex is taken, which is a leaf.
    std::vector<std::pair<node*, std::uint32_t>> to_kick;
    heal_all(to_kick);
    for (const auto& [local_node, qpn] : to_kick) local_node->kick(qpn);
    return 0;
  });
}

}  // extern "C"
