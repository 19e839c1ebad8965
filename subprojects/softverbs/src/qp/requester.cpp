#include "multicast/group.hpp"
#include "qp/data_path.hpp"
#include "qp/send_builder.hpp"

namespace softverbs {
namespace {

/// The 5-bit timer code of an RNR NAK, in microseconds (IBTA vol. 1, table 45).
constexpr std::array<std::uint32_t, 32> rnr_timer_us{
    655360, 10,    20,    30,    40,    60,     80,     120,    160,    240,   320,
    480,    640,   960,   1280,  1920,  2560,   3840,   5120,   7680,   10240, 15360,
    20480,  30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520};
constexpr std::uint8_t rnr_retry_for_ever = 7;

/// Now plus 4.096 us * 2^timeout. A timeout of 0 means never.
clock::time_point answer_deadline(const queue_pair& qp) noexcept {
  if (qp.attr.timeout == 0) return clock::time_point::max();
  return clock::now() + std::chrono::nanoseconds{std::uint64_t{4096} << qp.attr.timeout};
}

bool wait_until(queue_pair& qp, clock::time_point when) noexcept {
  if (when == clock::time_point::max()) return true;
  if (clock::now() >= when) return false;
  qp.local_node->wake_at(qp.number(), when);
  return true;
}

void refill_retries(queue_pair& qp) noexcept {
  qp.requester.retries_left = qp.terms.retries;
  qp.requester.rnr_retries_left = qp.terms.rnr_retries;
  qp.requester.unanswered = false;
}

ibv_wc_opcode completed_opcode(ibv_wr_opcode opcode) noexcept {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM: return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ: return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP: return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD: return IBV_WC_FETCH_ADD;
    case IBV_WR_ATOMIC_WRITE: return IBV_WC_ATOMIC_WRITE;
    case IBV_WR_LOCAL_INV: return IBV_WC_LOCAL_INV;
    case IBV_WR_BIND_MW: return IBV_WC_BIND_MW;
    default: return IBV_WC_SEND;
  }
}

/// The CQEs of up to this many short requests are pushed together.
constexpr std::uint64_t reported_together_max = 16;
constexpr std::uint32_t short_bytes_max = 4096;

/// Pushes the CQE of a request that is signaled or failed. False: the CQ is full.
[[gnu::always_inline]] inline bool report(queue_pair& qp, std::uint64_t index, ibv_wc_status status,
                                          std::optional<completion_writer>& to) noexcept {
  const send_request& request = qp.request(index);
  const bool wanted = qp.signals_all || (request.flags & IBV_SEND_SIGNALED) != 0;
  if (!wanted && status == IBV_WC_SUCCESS) return true;
  completion cqe{};
  cqe.wc.wr_id = request.wr_id;
  cqe.wc.status = status;
  cqe.wc.opcode = completed_opcode(request.opcode);
  cqe.wc.vendor_err = status == IBV_WC_SUCCESS ? 0 : static_cast<std::uint32_t>(request.opcode);
  cqe.wc.byte_len = request.length;
  cqe.wc.qp_num = qp.number();
  cqe.released = &qp.slot->released;
  cqe.release_to = index + 1;
  if (!to) to.emplace(qp.send_cq());
  return to->push(cqe, false);
}

/// Pushes the CQEs of all requests that succeeded since the last report, up to `end`.
[[gnu::noinline]] void report_to(queue_pair& qp, std::uint64_t end) noexcept {
  bool all = true;
  {
    std::optional<completion_writer> cqes;
    for (std::uint64_t& next = qp.sends.reported; next != end; ++next)
      all &= report(qp, next, IBV_WC_SUCCESS, cqes);
  }
  if (!all) raise_queue_error(qp);
}

start_delay& delay_of(const queue_pair& qp, std::uint64_t index) noexcept {
  return qp.delays[index % qp.wqes.capacity()];
}

/// Sets the earliest start of the requests posted since the last call.
void stamp_delays(queue_pair& qp) noexcept {
  const auto delay = qp.delay_ns.load(std::memory_order_relaxed);
  if (delay == 0) return;
  if (qp.delays == nullptr) qp.delays.reset(new (std::nothrow) start_delay[qp.wqes.capacity()]);
  if (qp.delays == nullptr) return;
  const auto when = clock::now() + std::chrono::nanoseconds{delay};
  for (std::uint64_t i = qp.sends.posted; i > qp.sends.next; --i) {
    start_delay& is = delay_of(qp, i - 1);
    if (is.over != clock::time_point{} && is.index == i - 1) break;
    is = {i - 1, when};
  }
}

/// True if more than half of all PSNs would be in flight: their order would be ambiguous.
bool psns_run_out(queue_pair& qp, const send_request& request) noexcept {
  send_ring& ring = qp.sends;
  if (ring.completed == ring.next) return false;
  const std::uint32_t in_flight = (qp.requester.psn - qp.request(ring.completed).psn) & psn_mask;
  return in_flight + packets_of(qp, request.length) > psn_mask / 2;
}

/// XRC: true if requests in flight name queues of another process than this one. The processes
/// answer independently, and a request has no effect if an earlier one fails.
bool changes_process(queue_pair& qp) noexcept {
  const std::uint64_t next = qp.sends.next;
  return qp.sends.completed != next && slot_of(qp.queue_of(next)) != slot_of(qp.queue_of(next - 1));
}

/// True if a request must not start yet, because of the order, a limit, or a delay.
bool must_wait(queue_pair& qp, const send_request& request) noexcept {
  const requester_state& state = qp.requester;
  if ((request.flags & IBV_SEND_FENCE) != 0 && state.reads_in_flight != 0) return true;
  if (is_answered_with_data(request.opcode) && state.reads_in_flight != 0 &&
      state.reads_in_flight >= qp.terms.rd_atomic_max)
    return true;
  if (psns_run_out(qp, request)) return true;
  if (qp.transport == pattern::xrc && changes_process(qp)) return true;
  if (!qp.disturbed.load(std::memory_order_relaxed) || qp.delays == nullptr ||
      qp.delay_ns.load(std::memory_order_relaxed) == 0)
    return false;
  const start_delay& is = delay_of(qp, qp.sends.next);
  return is.index == qp.sends.next && wait_until(qp, is.over);
}

/// Checks a READ or an atomic, and reads the word of an ATOMIC WRITE.
[[gnu::noinline]] ibv_wc_status check_answered(queue_pair& qp, send_request& request) noexcept {
  const device_limits& device = limits();
  const bool writes = request.opcode == IBV_WR_ATOMIC_WRITE;
  if (is_fetching(request.opcode) && device.atomic_cap == IBV_ATOMIC_NONE)
    return IBV_WC_LOC_QP_OP_ERR;
  if ((writes && !device.writes_atomically) || qp.terms.rd_atomic_max == 0)
    return IBV_WC_LOC_QP_OP_ERR;
  if (is_atomic(request.opcode) && request.length != sizeof(std::uint64_t))
    return IBV_WC_LOC_LEN_ERR;
  return writes && !gather_operand(qp, request) ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS;
}

/// Checks the request at the head, except for its memory.
ibv_wc_status check(queue_pair& qp, send_request& request) noexcept {
  const auto limit =
      qp.type() == IBV_QPT_UD ? std::uint32_t{port_mtu_bytes} : limits().message_bytes;
  if (request.length > limit) return IBV_WC_LOC_LEN_ERR;
  return is_answered_with_data(request.opcode) ? check_answered(qp, request) : IBV_WC_SUCCESS;
}

/// Applies a fault that a test requested (softverbs.h). True: `result` is the outcome.
bool faulty(queue_pair& qp, bool local_work, next_step& result) noexcept {
  if (qp.next_status.load(std::memory_order_relaxed) >= 0) {
    result = next_step::wait;
    if (qp.sends.completed != qp.sends.next) return true;
    const int status = qp.next_status.exchange(-1, std::memory_order_relaxed);
    if (status < 0) return false;
    result = status == IBV_WC_SUCCESS ? succeed(qp) : fail(qp, static_cast<ibv_wc_status>(status));
    return true;
  }
  if (local_work || !qp.cut.load(std::memory_order_relaxed)) return false;
  result = refused(qp, nak_code::dropped, 0);
  return true;
}

next_step start_or_continue(queue_pair& qp, send_request& request, quantum& now) noexcept {
  const bool disturbed = qp.disturbed.load(std::memory_order_relaxed);
  const bool local_work = request.opcode == IBV_WR_LOCAL_INV || request.opcode == IBV_WR_BIND_MW;
  if (request.offset == 0) {
    if (must_wait(qp, request)) return next_step::wait;
    if (next_step result{}; disturbed && faulty(qp, local_work, result)) return result;
    if (local_work) {
      // Local work waits for all earlier requests: it must have no effect if one of them fails.
      if (qp.sends.completed != qp.sends.next) return next_step::wait;
      now.responder().release();  // Revoking waits for users of the key.
      return request.opcode == IBV_WR_BIND_MW ? bind_window(qp, request) : invalidate(qp, request);
    }
    if (const auto status = check(qp, request); status != IBV_WC_SUCCESS) return fail(qp, status);
    request.psn = qp.requester.psn;
  }
  if (qp.type() == IBV_QPT_UD && is_multicast(request.datagram().gid))
    return execute_multicast(qp, request, now);
  const bool is_local =
      qp.type() == IBV_QPT_UD ? qp.local_node->is_local(request.datagram().to()) : qp.is_peer_local;
  const std::uint64_t head = qp.sends.next;
  const next_step next =
      is_local ? execute_local(qp, request, now) : execute_remote(qp, request, now);
  // The request continues later. With the link down, all unanswered requests do.
  if (qp.sends.next <= head) qp.requester.begun = std::max(qp.requester.begun, head + 1);
  return next;
}

/// True while an RNR timer or a timeout runs. The end of a timeout spends one retry.
bool waits_for_timer(queue_pair& qp) noexcept {
  requester_state& state = qp.requester;
  if (!state.waits) return false;
  if (wait_until(qp, state.wait_until)) return true;
  state.waits = false;
  if (!std::exchange(state.unanswered, false)) return false;
  if (state.retries_left == 0)
    fail(qp, IBV_WC_RETRY_EXC_ERR);
  else
    --state.retries_left;
  return false;
}

next_step execute_head(queue_pair& qp, quantum& now) noexcept {
  send_ring& ring = qp.sends;
  const ibv_qp_state state = qp.state.load(std::memory_order_acquire);
  if (state == IBV_QPS_ERR || state == IBV_QPS_SQE) {
    now.responder().release();  // Flushing many requests takes long.
    flush_sends(qp);
    return next_step::wait;
  }
  if (ring.next == ring.posted) return next_step::wait;
  send_request& request = qp.request(ring.next);
  const bool may = state == IBV_QPS_RTS || (state == IBV_QPS_SQD && ring.next < qp.begun());
  if (!may || waits_for_timer(qp)) return next_step::wait;
  // The expired timer may have moved the QP to ERR.
  if (qp.state.load(std::memory_order_acquire) == IBV_QPS_ERR) return next_step::go_on;
  if (now.over()) return next_step::next_quantum;
  now.spend_request();
  return start_or_continue(qp, request, now);
}

/// Counts the bytes that were sent. True if the QP waits for its rate limit.
[[gnu::noinline]] bool pace(queue_pair& qp, const quantum& now) noexcept {
  const clock::time_point time = clock::now();
  qp.rate->sent(now.sent(), time);
  if (qp.rate->budget(time) != 0 || qp.sends.next == qp.sends.posted) return false;
  qp.local_node->wake_at(qp.number(), qp.rate->resumes_at());
  return true;
}

/// Raises IBV_EVENT_SQ_DRAINED once a draining send queue has nothing in flight.
void raise_drained(queue_pair& qp) noexcept {
  if (!qp.is_draining || qp.state.load(std::memory_order_acquire) != IBV_QPS_SQD) return;
  if (qp.sends.completed < qp.begun()) return;
  qp.is_draining = false;
  if (qp.attr.en_sqd_async_notify != 0) raise(qp, IBV_EVENT_SQ_DRAINED);
}

}  // namespace

void execute(queue_pair& qp, std::uint64_t posts) noexcept {
  if (qp.disturbed.load(std::memory_order_relaxed)) stamp_delays(qp);
  quantum now{posts, qp.has_rate_limit ? qp.rate->budget(clock::now()) : quantum::unlimited};
  next_step next = next_step::go_on;
  while (next == next_step::go_on) next = execute_head(qp, now);
  now.responder().release();
  if (qp.sends.reported != qp.sends.completed) report_to(qp, qp.sends.completed);
  if (qp.has_rate_limit && pace(qp, now)) next = next_step::wait;
  // Queue up behind all other QPs. If nobody polls, the kick wakes the engine.
  if (next == next_step::next_quantum) qp.local_node->kick(qp.number());
  raise_drained(qp);
}

void execute_posted(queue_pair& qp, std::uint64_t posts) noexcept {
  requester_state& state = qp.requester;
  const bool is_connected = qp.is_peer_local || state.route != nullptr;
  if (state.waits && state.unanswered && is_connected) state.waits = false;
  execute(qp, posts);
}

void complete_oldest(queue_pair& qp, ibv_wc_status status) noexcept {
  send_ring& ring = qp.sends;
  const std::uint64_t index = ring.completed++;
  ring.next = std::max(ring.next, ring.completed);
  refill_retries(qp);
  // The CQEs of the next requests may be pushed together with this one.
  if (status == IBV_WC_SUCCESS && ring.completed != ring.posted &&
      ring.completed - ring.reported < reported_together_max &&
      qp.request(index).length <= short_bytes_max)
    return;
  if (ring.reported != index) {
    const bool succeeded = status == IBV_WC_SUCCESS;
    report_to(qp, succeeded ? ring.completed : index);
    if (succeeded) return;
  }
  ring.reported = ring.completed;
  bool is_reported = true;
  {
    std::optional<completion_writer> cqes;
    is_reported = report(qp, index, status, cqes);
  }
  if (!is_reported) raise_queue_error(qp);
}

next_step succeed(queue_pair& qp) noexcept {
  complete_oldest(qp, IBV_WC_SUCCESS);
  return next_step::go_on;
}

next_step fail(queue_pair& qp, ibv_wc_status status) noexcept {
  if (qp.sends.completed != qp.sends.next) return next_step::wait;
  complete_oldest(qp, status);
  if (qp.is_reliable()) {
    enter_error(qp);
    return next_step::go_on;
  }
  ibv_qp_state state = qp.state.load(std::memory_order_acquire);
  while (state != IBV_QPS_ERR && !qp.state.compare_exchange_weak(state, IBV_QPS_SQE)) {
  }
  return next_step::go_on;
}

next_step refused(queue_pair& qp, nak_code why, std::uint32_t rnr_timer) noexcept {
  // An unreliable requester gets no answers: a lost request counts as done.
  if (!qp.is_reliable()) return succeed(qp);
  requester_state& state = qp.requester;
  switch (why) {
    case nak_code::invalid_request: return fail(qp, IBV_WC_REM_INV_REQ_ERR);
    case nak_code::remote_access: return fail(qp, IBV_WC_REM_ACCESS_ERR);
    case nak_code::remote_operation: return fail(qp, IBV_WC_REM_OP_ERR);
    case nak_code::rnr:
      if (qp.terms.rnr_retries != rnr_retry_for_ever) {
        if (state.rnr_retries_left == 0) return fail(qp, IBV_WC_RNR_RETRY_EXC_ERR);
        --state.rnr_retries_left;
      }
      state.unanswered = false;
      state.waits = true;
      state.wait_until = clock::now() + std::chrono::microseconds{rnr_timer_us[rnr_timer & 31]};
      return next_step::go_on;
    default:
      // A post that tried early does not prolong the timeout.
      if (!std::exchange(state.unanswered, true)) state.wait_until = answer_deadline(qp);
      state.waits = true;
      return next_step::go_on;
  }
}

void rewind(queue_pair& qp) noexcept {
  send_ring& ring = qp.sends;
  if (ring.completed == ring.posted) return;
  qp.requester.begun = qp.begun();
  if (ring.completed < ring.next || qp.request(ring.next).offset != 0)
    qp.requester.psn = qp.request(ring.completed).psn;
  for (std::uint64_t i = ring.completed; i <= ring.next && i < ring.posted; ++i) {
    qp.request(i).offset = 0;
    qp.request(i).sent = false;
  }
  ring.next = ring.completed;
  qp.requester.reads_in_flight = 0;
  // A new epoch: answers to earlier transmissions must not count for the new ones.
  qp.requester.epoch = qp.local_node->next_epoch();
}

frame_header header_for(const queue_pair& qp, const send_request& request) noexcept {
  frame_header header{};
  header.kind = frame_kind::send;
  header.transport = service_of(qp);
  header.source_qpn = qp.number();
  header.destination_qpn = qp.terms.peer_qpn;
  header.psn = request.psn;
  header.message_bytes = request.length;
  header.epoch = qp.requester.epoch;
  if ((request.flags & IBV_SEND_SOLICITED) != 0) header.flags |= frame_flag::solicited;
  switch (request.opcode) {
    case IBV_WR_SEND_WITH_INV:
      header.flags |= frame_flag::invalidate;
      header.immediate = request.immediate;
      break;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_SEND_WITH_IMM:
      header.flags |= frame_flag::immediate;
      header.immediate = request.immediate;
      break;
    default: break;
  }
  if (request.opcode == IBV_WR_SEND || request.opcode == IBV_WR_SEND_WITH_IMM ||
      request.opcode == IBV_WR_SEND_WITH_INV) {
    if (header.transport == service::ud) {
      header.destination_qpn = request.datagram().qpn;
      // A Q_Key with its high bit set asks for the QP's own (IBTA vol. 1, 10.2.5).
      const bool own_qkey = (request.datagram().qkey & qkey_controlled) != 0;
      header.qkey = own_qkey ? qp.attr.qkey : request.datagram().qkey;
      header.class_and_flow = request.datagram().class_and_flow;
      header.hop_limit = request.datagram().hop_limit;
      std::copy_n(request.datagram().source_gid.raw, sizeof header.source_gid, header.source_gid);
      // The lower half of the destination GID, by which the receiver finds its own GID.
      header.remote_address = request.datagram().gid.global.interface_id;
    }
    return header;
  }
  const send_request::remote_memory& remote = request.remote();
  header.rkey = remote.rkey;
  header.remote_address = remote.address;
  header.kind = frame_kind::write;
  if (!is_answered_with_data(request.opcode)) return header;
  if (is_atomic(request.opcode)) std::copy_n(remote.operand, 2, header.operand);
  switch (request.opcode) {
    case IBV_WR_RDMA_READ: header.kind = frame_kind::read; break;
    case IBV_WR_ATOMIC_CMP_AND_SWP: header.kind = frame_kind::compare_swap; break;
    case IBV_WR_ATOMIC_FETCH_AND_ADD: header.kind = frame_kind::fetch_add; break;
    case IBV_WR_ATOMIC_WRITE: header.kind = frame_kind::atomic_write; break;
    default: break;
  }
  return header;
}

}  // namespace softverbs
