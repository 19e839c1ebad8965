#include "rig.hpp"

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>

namespace rig {

void fail(const std::string& what, int error) {
  throw std::system_error{error, std::generic_category(), what};
}

void check(int error, const char* what) {
  if (error != 0) fail(what, error > 0 ? error : errno);
}

namespace {

context_ptr open_soft0() {
  int count = 0;
  ibv_device** const list = made(ibv_get_device_list(&count), "ibv_get_device_list");
  const std::unique_ptr<ibv_device*, destroyer<ibv_free_device_list>> owner{list};
  for (int i = 0; i < count; ++i) {
    if (std::string_view{ibv_get_device_name(list[i])} == "soft0") {
      return context_ptr{made(ibv_open_device(list[i]), "ibv_open_device")};
    }
  }
  throw std::runtime_error{"there is no soft0"};
}

}  // namespace

device::device(const char* address)
    : context{open_soft0()}, pd{made(ibv_alloc_pd(context.get()), "ibv_alloc_pd")} {
  gid.raw[10] = gid.raw[11] = 0xff;
  if (::inet_pton(AF_INET, address, &gid.raw[12]) != 1) fail(address, EINVAL);
  ibv_port_attr port{};
  check(ibv_query_port(context.get(), 1, &port), "ibv_query_port");
  for (int i = 0; i < port.gid_tbl_len; ++i) {
    ibv_gid found{};
    check(ibv_query_gid(context.get(), 1, i, &found), "ibv_query_gid");
    if (std::memcmp(&found, &gid, sizeof gid) == 0) {
      gid_index = static_cast<std::uint8_t>(i);
      return;
    }
  }
  throw std::runtime_error{std::string{"soft0 has no GID of "} + address};
}

cq_ptr device::make_cq(int entries, ibv_comp_channel* channel) const {
  return cq_ptr{made(ibv_create_cq(context.get(), entries, nullptr, channel, 0), "ibv_create_cq")};
}

mr_ptr device::reg(void* address, std::size_t bytes) const {
  constexpr int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                      IBV_ACCESS_REMOTE_ATOMIC;
  return mr_ptr{made(ibv_reg_mr(pd.get(), address, bytes, all), "ibv_reg_mr")};
}

qp_ptr make_qp(const device& dev, ibv_cq* send, ibv_cq* receive, const qp_options& options) {
  ibv_qp_init_attr attr{};
  attr.send_cq = send;
  attr.recv_cq = receive;
  attr.cap = {options.sends, options.receives, options.sges, options.sges, options.inline_bytes};
  attr.qp_type = options.type;
  return qp_ptr{made(ibv_create_qp(dev.pd.get(), &attr), "ibv_create_qp")};
}

void to_reset(ibv_qp* qp) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  check(ibv_modify_qp(qp, &attr, IBV_QP_STATE), "ibv_modify_qp to RESET");
}

void to_error(ibv_qp* qp) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  check(ibv_modify_qp(qp, &attr, IBV_QP_STATE), "ibv_modify_qp to ERR");
}

void to_init(ibv_qp* qp, const qp_options& options) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = qkey;
  int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  if (options.type == IBV_QPT_UD) {
    mask |= IBV_QP_QKEY;
  } else {
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    if (options.type == IBV_QPT_RC) {
      attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    }
    mask |= IBV_QP_ACCESS_FLAGS;
  }
  check(ibv_modify_qp(qp, &attr, mask), "ibv_modify_qp to INIT");
}

void connect(ibv_qp* qp, const device& dev, const card& peer, const qp_options& options) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  int mask = IBV_QP_STATE;
  if (options.type != IBV_QPT_UD) {
    attr.path_mtu = IBV_MTU_4096;
    attr.dest_qp_num = peer.qpn;
    attr.rq_psn = peer.psn;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = peer.gid;
    attr.ah_attr.grh.sgid_index = dev.gid_index;
    attr.ah_attr.grh.hop_limit = 64;
    mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  }
  if (options.type == IBV_QPT_RC) {
    attr.max_dest_rd_atomic = options.rd_atomic;
    attr.min_rnr_timer = 1;  // 10 us
    mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  }
  check(ibv_modify_qp(qp, &attr, mask), "ibv_modify_qp to RTR");

  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = options.psn;
  mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (options.type == IBV_QPT_RC) {
    attr.timeout = options.timeout;
    attr.retry_cnt = options.retries;
    attr.rnr_retry = options.rnr_retries;
    attr.max_rd_atomic = options.rd_atomic;
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  }
  check(ibv_modify_qp(qp, &attr, mask), "ibv_modify_qp to RTS");
}

ibv_wc wait_one(ibv_cq* cq) {
  const auto deadline = clock::now() + patience;
  for (;;) {
    ibv_wc wc{};
    const int n = ibv_poll_cq(cq, 1, &wc);
    if (n < 0) fail("ibv_poll_cq", EIO);
    if (n == 1) return wc;
    if (clock::now() > deadline) throw std::runtime_error{"no completion came"};
  }
}

void expect(bool holds, const char* what) {
  if (!holds) throw std::runtime_error{what};
}

ibv_wc wait_success(ibv_cq* cq) {
  const ibv_wc wc = wait_one(cq);
  if (wc.status != IBV_WC_SUCCESS) {
    throw std::runtime_error{"request " + std::to_string(wc.wr_id) + " ended with " +
                             ibv_wc_status_str(wc.status)};
  }
  return wc;
}

ibv_sge piece(const ibv_mr* mr, const void* address, std::size_t bytes) {
  return {reinterpret_cast<std::uintptr_t>(address), static_cast<std::uint32_t>(bytes), mr->lkey};
}

void post_recv(ibv_qp* qp, std::uint64_t wr_id, ibv_sge sge) {
  ibv_recv_wr wr{wr_id, nullptr, &sge, 1};
  ibv_recv_wr* bad = nullptr;
  check(ibv_post_recv(qp, &wr, &bad), "ibv_post_recv");
}

request::request(ibv_wr_opcode opcode, std::uint64_t wr_id, ibv_sge a_piece, unsigned flags)
    : sge{a_piece} {
  wr.wr_id = wr_id;
  wr.num_sge = 1;
  wr.opcode = opcode;
  wr.send_flags = flags;
}

namespace {

bool is_atomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

}  // namespace

request& request::to(std::uint64_t address, std::uint32_t rkey) {
  if (is_atomic(wr.opcode)) {
    wr.wr.atomic.remote_addr = address;
    wr.wr.atomic.rkey = rkey;
  } else {
    wr.wr.rdma.remote_addr = address;
    wr.wr.rdma.rkey = rkey;
  }
  return *this;
}

request& request::operands(std::uint64_t compare_add, std::uint64_t swap) {
  if (is_atomic(wr.opcode)) {  // Other requests keep other fields in this union.
    wr.wr.atomic.compare_add = compare_add;
    wr.wr.atomic.swap = swap;
  }
  return *this;
}

int request::post(ibv_qp* qp) noexcept {
  wr.sg_list = &sge;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp, &wr, &bad);
}

}  // namespace rig
