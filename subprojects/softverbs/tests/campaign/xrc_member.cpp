#include "xrc_member.hpp"

#include "hosts.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <stdexcept>

namespace xrc {
namespace {

using xrcd_ptr = std::unique_ptr<ibv_xrcd, rig::destroyer<ibv_close_xrcd>>;
using srq_ptr = std::unique_ptr<ibv_srq, rig::destroyer<ibv_destroy_srq>>;

constexpr std::uint64_t receives = 8;

void fill(std::byte* at, std::size_t bytes, std::uint64_t seed) {
  std::mt19937_64 random{seed};
  for (std::size_t i = 0; i < bytes; i += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(at + i, &word, std::min(sizeof word, bytes - i));
  }
}

/// The process itself: a queue, its memory, and what it is told to make.
class process {
 public:
  process(const char* address, int file) : device_{address} {
    ibv_xrcd_init_attr attr{};
    attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attr.fd = file;
    attr.oflags = O_CREAT;
    domain_.reset(rig::made(ibv_open_xrcd(device_.context.get(), &attr), "ibv_open_xrcd"));
    ibv_srq_init_attr_ex of_queue{};
    of_queue.attr = {.max_wr = 64, .max_sge = 1, .srq_limit = 0};
    of_queue.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                         IBV_SRQ_INIT_ATTR_CQ;
    of_queue.srq_type = IBV_SRQT_XRC;
    of_queue.pd = device_.pd.get();
    of_queue.xrcd = domain_.get();
    of_queue.cq = receive_cq_.get();
    queue_.reset(
        rig::made(ibv_create_srq_ex(device_.context.get(), &of_queue), "ibv_create_srq_ex"));
  }

  [[nodiscard]] queue card() const {
    queue mine{0, mr_->rkey, reinterpret_cast<std::uintptr_t>(granted())};
    rig::check(ibv_get_srq_num(queue_.get(), &mine.number), "ibv_get_srq_num");
    return mine;
  }

  answer obey(const order& o) {
    switch (o.what) {
      case deed::make_target: return {.made = made(IBV_QPT_XRC_RECV)};
      case deed::make_initiator: return {.made = made(IBV_QPT_XRC_SEND)};
      case deed::connect: connect(o); return {};
      case deed::listen:
        for (std::uint32_t i = 0; i < o.count; ++i) listen(i % receives);
        return {};
      case deed::send: return {.status = request(IBV_WR_SEND, o)};
      case deed::write: return {.status = request(IBV_WR_RDMA_WRITE, o)};
      case deed::read: return {.status = request(IBV_WR_RDMA_READ, o)};
      case deed::hear: return {.well = hear(o)};
      case deed::holds: return {.well = has(granted(), o)};
      case deed::destroy_queue: queue_.reset(); return {};
      case deed::destroy: qps_.erase(o.own); return {};
    }
    throw std::runtime_error{"no such deed"};
  }

 private:
  [[nodiscard]] std::byte* granted() const { return const_cast<std::byte*>(memory_.data()); }
  std::byte* source() { return granted() + buffer_bytes; }
  std::byte* buffer(std::uint64_t i) { return source() + (1 + i) * buffer_bytes; }

  end made(ibv_qp_type type) {
    ibv_qp_init_attr_ex attr{};
    attr.qp_type = type;
    if (type == IBV_QPT_XRC_RECV) {
      attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
      attr.xrcd = domain_.get();
    } else {
      attr.comp_mask = IBV_QP_INIT_ATTR_PD;
      attr.pd = device_.pd.get();
      attr.send_cq = send_cq_.get();
      attr.cap.max_send_wr = 64;
      attr.cap.max_send_sge = 1;
    }
    rig::qp_ptr qp{rig::made(ibv_create_qp_ex(device_.context.get(), &attr), "ibv_create_qp_ex")};
    const end made{qp->qp_num, device_.gid};
    qps_.emplace(made.number, std::move(qp));
    return made;
  }

  void connect(const order& o) {
    ibv_qp* const qp = qps_.at(o.own).get();
    const bool is_target = qp->qp_type == IBV_QPT_XRC_RECV;
    const auto modify = [qp](ibv_qp_attr& attr, int mask) {
      rig::check(ibv_modify_qp(qp, &attr, mask), "ibv_modify_qp");
    };
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_4096;
    attr.dest_qp_num = o.peer.number;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = o.peer.gid;
    attr.ah_attr.grh.sgid_index = device_.gid_index;
    attr.ah_attr.grh.hop_limit = 64;
    attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    const int responder = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    modify(attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                     (is_target ? responder : 0));
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 10;
    attr.retry_cnt = 3;
    attr.rnr_retry = o.rnr_retries;
    attr.max_rd_atomic = 4;
    const int requester = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    modify(attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | (is_target ? 0 : requester));
  }

  void listen(std::uint64_t i) {
    ibv_sge sge = rig::piece(mr_.get(), buffer(i), buffer_bytes);
    ibv_recv_wr wr{i, nullptr, &sge, 1};
    ibv_recv_wr* bad = nullptr;
    rig::check(ibv_post_srq_recv(queue_.get(), &wr, &bad), "ibv_post_srq_recv");
  }

  /// Posts `count` requests, of which the last has a completion, or one of all.
  ibv_wc_status request(ibv_wr_opcode opcode, const order& o) {
    fill(source(), o.bytes, o.seed);
    const std::uint32_t count = std::max(1u, o.count);
    for (std::uint32_t i = 0; i < count; ++i) {
      rig::request r{opcode, i, rig::piece(mr_.get(), source(), o.bytes),
                     i + 1 == count ? unsigned{IBV_SEND_SIGNALED} : 0u};
      r.wr.qp_type.xrc.remote_srqn = o.to.number;
      if (opcode != IBV_WR_SEND) r.to(o.to.address, o.to.rkey);
      rig::check(r.post(qps_.at(o.own).get()), "ibv_post_send");
    }
    return rig::wait_one(send_cq_.get()).status;
  }

  static bool has(const std::byte* at, const order& o) {
    std::vector<std::byte> expected(o.bytes);
    fill(expected.data(), o.bytes, o.seed);
    return std::equal(expected.begin(), expected.end(), at);
  }

  bool hear(const order& o) {
    const ibv_wc wc = rig::wait_success(receive_cq_.get());
    const bool well = wc.byte_len == o.bytes && has(buffer(wc.wr_id), o);
    listen(wc.wr_id);
    return well;
  }

  rig::device device_;
  xrcd_ptr domain_;
  std::vector<std::byte> memory_ = std::vector<std::byte>((2 + receives) * buffer_bytes);
  rig::mr_ptr mr_ = device_.reg(memory_.data(), memory_.size());
  rig::cq_ptr send_cq_ = device_.make_cq(256);
  rig::cq_ptr receive_cq_ = device_.make_cq(256);
  srq_ptr queue_;
  std::map<std::uint32_t, rig::qp_ptr> qps_;
};

int run(const std::vector<std::string>& arguments) {
  rig::enter_host(arguments.at(0));
  const int control = rig::first_inherited_fd;
  process self{arguments.at(1).c_str(), rig::first_inherited_fd + 1};
  rig::put(control, self.card());
  // The child goes on until it is killed.
  for (;;) rig::put(control, self.obey(rig::get<order>(control)));
}
const rig::role member_role{"xrc-member", run};

}  // namespace

member::member(int domain, const std::string& host, const std::string& address,
               const std::vector<std::string>& environment)
    : process_{"xrc-member", {control_.theirs.get(), domain}, {host, address}, environment} {
  control_.theirs.close();
  queue_ = rig::get<queue>(control_.ours.get());
}

std::uint32_t connect(member& from, member& to, std::uint8_t rnr_retries) {
  const end target = to.obey({.what = deed::make_target}).made;
  const end initiator = from.obey({.what = deed::make_initiator}).made;
  to.obey({.what = deed::connect, .own = target.number, .peer = initiator});
  from.obey(
      {.what = deed::connect, .own = initiator.number, .peer = target, .rnr_retries = rnr_retries});
  return initiator.number;
}

}  // namespace xrc
