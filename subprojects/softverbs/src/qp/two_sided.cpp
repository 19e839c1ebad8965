#include "node/port.hpp"
#include "qp/data_path.hpp"

namespace softverbs {
namespace {

const ibv_pd* receive_pd(const queue_pair& qp) noexcept {
  return qp.srq() != nullptr ? qp.srq()->pd : qp.pd;
}

void take_request(responder_state& state, receive_ring& ring) noexcept {
  state.request = ring.front();
  std::copy_n(state.request.sges, state.request.sge_count, state.request_sges.data());
  state.request.sges = state.request_sges.data();
  state.has_request = true;
  ring.pop();
}

/// True if the SRQ just fell below its limit; clears the limit, so the event comes once.
bool fell_below_limit(shared_receive_queue& srq) noexcept {
  if (srq.limit == 0 || srq.ring.size() >= srq.limit) return false;
  srq.limit = 0;
  return true;
}

bool fits(const responder_state& state, std::uint64_t bytes) noexcept {
  std::uint64_t room = 0;
  for (std::uint32_t i = 0; i < state.request.sge_count; ++i) room += state.request_sges[i].length;
  return bytes <= room;
}

/// Completes the receive request with an error and moves the QP to ERR.
reply fail_receive(queue_pair& qp, const frame_header& header, ibv_wc_status status,
                   nak_code answer) noexcept {
  complete_receive(qp, header, status);
  enter_error(qp);
  return {.nak = answer};
}

}  // namespace

bool fetch_receive(queue_pair& qp) noexcept {
  responder_state& state = qp.responder;
  if (state.has_request) return true;
  if (qp.srq() == nullptr) {
    if (qp.receives.empty()) return false;
    take_request(state, qp.receives);
    return true;
  }
  bool tell = false;
  {
    std::lock_guard lock{qp.srq()->mutex};
    if (qp.srq()->ring.empty()) return false;
    take_request(state, qp.srq()->ring);
    tell = fell_below_limit(*qp.srq());
  }
  if (tell) raise_limit(*qp.srq());
  return true;
}

void complete_receive(queue_pair& qp, const frame_header& header, ibv_wc_status status,
                      std::uint16_t slid) noexcept {
  responder_state& state = qp.responder;
  state.has_request = false;
  completion cqe{};
  ibv_wc& wc = cqe.wc;
  wc.wr_id = state.request.wr_id;
  wc.status = status;
  wc.opcode = header.kind == frame_kind::write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  wc.qp_num = qp.shown_number;
  if (status == IBV_WC_SUCCESS) {
    wc.byte_len = header.message_bytes;
    wc.src_qp = header.source_qpn & qpn_max;
    if (header.transport == service::ud) {
      wc.byte_len += grh_bytes;
      if (has_grh(header)) wc.wc_flags |= IBV_WC_GRH;
      wc.sl = service_level(header);
      wc.slid = slid;
    }
    if ((header.flags & frame_flag::immediate) != 0) {
      wc.wc_flags |= IBV_WC_WITH_IMM;
      wc.imm_data = header.immediate;
    } else if ((header.flags & frame_flag::invalidate) != 0) {
      wc.wc_flags |= IBV_WC_WITH_INV;
      wc.invalidated_rkey = header.immediate;
    }
  } else {
    wc.vendor_err = static_cast<std::uint32_t>(header.kind);
  }
  const bool solicited = (header.flags & frame_flag::solicited) != 0;
  if (!push(qp.receive_cq(), cqe, solicited)) raise_queue_error(qp);
}

reply end_message(queue_pair& qp, const incoming& piece) noexcept {
  const bool is_acknowledged = acknowledge(qp, piece);
  complete_receive(qp, piece.header, IBV_WC_SUCCESS);
  return {.is_acknowledged = is_acknowledged};
}

reply take_send(queue_pair& qp, const incoming& piece) noexcept {
  const frame_header& header = piece.header;
  responder_state& state = qp.responder;
  const bool reliable = header.transport == service::rc;
  if (!fetch_receive(qp)) return {.nak = nak_code::rnr, .rnr_timer = qp.attr.min_rnr_timer};
  if (!fits(state, header.message_bytes)) {
    // UC drops the message, and keeps the request for the next one.
    if (!reliable) return {.nak = nak_code::dropped};
    return fail_receive(qp, header, IBV_WC_LOC_LEN_ERR, nak_code::invalid_request);
  }
  sge_cursor cursor{state.request_sges.data(), state.request.sge_count, header.offset};
  switch (scatter(*qp.local_node, receive_pd(qp), cursor, piece.bytes, header.payload_bytes)) {
    case scattered::bad_source: return {.source_fault = true};
    case scattered::bad_sink:
      return fail_receive(qp, header, IBV_WC_LOC_PROT_ERR, nak_code::remote_operation);
    case scattered::all: break;
  }
  if ((header.flags & frame_flag::last) == 0) return {};
  if ((header.flags & frame_flag::invalidate) != 0 && !invalidate_key(qp, header.immediate))
    return fail_receive(qp, header, IBV_WC_REM_INV_REQ_ERR, nak_code::remote_operation);
  return end_message(qp, piece);
}

reply take_datagram(queue_pair& qp, const incoming& piece) noexcept {
  const frame_header& header = piece.header;
  responder_state& state = qp.responder;
  constexpr reply lost{.nak = nak_code::dropped};
  const bool whole = header.kind == frame_kind::send && header.offset == 0 &&
                     header.payload_bytes == header.message_bytes &&
                     header.message_bytes <= std::uint32_t{port_mtu_bytes};
  if (!whole) return lost;
  if (header.qkey != qp.attr.qkey) {
    qp.local_node->count_qkey_violation();
    return lost;
  }
  if (!fetch_receive(qp)) return lost;
  if (!fits(state, std::uint64_t{grh_bytes} + header.message_bytes)) return lost;
  auto result = scattered::all;
  if (has_grh(header)) {
    std::byte grh[grh_bytes];
    write_grh(header, grh, piece.group);
    sge_cursor cursor{state.request_sges.data(), state.request.sge_count, 0};
    result = scatter(*qp.local_node, receive_pd(qp), cursor, grh, grh_bytes);
  }
  // A datagram without a GRH leaves the GRH's place in the buffer alone.
  sge_cursor cursor{state.request_sges.data(), state.request.sge_count, grh_bytes};
  if (result == scattered::all)
    result = scatter(*qp.local_node, receive_pd(qp), cursor, piece.bytes, header.payload_bytes);
  if (result != scattered::all)
    return fail_receive(qp, header, IBV_WC_LOC_PROT_ERR, nak_code::dropped);
  complete_receive(qp, header, IBV_WC_SUCCESS,
                   lid_of(piece.from != nullptr ? piece.from->peer().host : in6_addr{}));
  return {};
}

}  // namespace softverbs
