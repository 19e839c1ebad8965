#include "cm_party.hpp"

#include "rig.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace rig {
namespace {

constexpr int resolve_ms = 2000;
constexpr int backlog = 64;

/// For calls that return -1 with errno.
void check_call(int result, const char* what) { check(result == 0 ? 0 : errno, what); }

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

}  // namespace

cm_party::channel cm_party::open_channel() {
  channel opened{made(rdma_create_event_channel(), "rdma_create_event_channel")};
  check_call(::fcntl(opened->fd, F_SETFL, O_NONBLOCK), "O_NONBLOCK");
  return opened;
}

cm_party::cm_party(number own, std::uint64_t seed)
    : own_{own}, random_{seed}, channels_{open_channel(), open_channel()} {
  listen(0);
}

cm_party::~cm_party() {
  close_all();
  stop_listening();
}

void cm_party::stop_listening() {
  if (listener_ != nullptr) rdma_destroy_id(std::exchange(listener_, nullptr));
}

void cm_party::listen(std::uint16_t port) {
  check_call(rdma_create_id(channels_[0].get(), &listener_, nullptr, RDMA_PS_TCP),
             "rdma_create_id");
  sockaddr_in here = loopback(port);
  check_call(rdma_bind_addr(listener_, reinterpret_cast<sockaddr*>(&here)), "rdma_bind_addr");
  check_call(rdma_listen(listener_, backlog), "rdma_listen");
  port_ = ntohs(rdma_get_src_port(listener_));
}

void cm_party::close_all() {
  for (connection& one : all_) destroy(one);
  all_.clear();
}

bool cm_party::has_connection_with(number peer) const {
  return std::ranges::any_of(all_, [peer](const connection& one) { return one.peer == peer; });
}

std::uint64_t cm_party::established_with(number peer) const {
  const auto found = established_.find(peer);
  return found != established_.end() ? found->second : 0;
}

// ---- what a program does

void cm_party::connect(std::uint16_t port, number peer) {
  connection& one = all_.emplace_back();
  one.peer = peer;
  check_call(rdma_create_id(channels_[pick(2)].get(), &one.id, &one, RDMA_PS_TCP),
             "rdma_create_id");
  sockaddr_in there = loopback(port);
  check_call(rdma_resolve_addr(one.id, nullptr, reinterpret_cast<sockaddr*>(&there), resolve_ms),
             "rdma_resolve_addr");
}

void cm_party::act() {
  if (all_.empty()) return;
  connection& one = *std::next(all_.begin(), static_cast<std::ptrdiff_t>(pick(all_.size())));
  switch (pick(32)) {
    case 0:
      if (one.is_up) rdma_disconnect(one.id);
      break;
    case 1: one.is_over = true; break;
    case 2:
      if (rdma_migrate_id(one.id, channels_[pick(2)].get()) == 0) ++counts_.migrated;
      break;
    default:
      if (one.is_up && !one.is_sending && !one.is_over) {
        send(one);
        one.is_sending = true;
      }
  }
}

void cm_party::step(int wait_ms) {
  std::array<pollfd, 2> ready{{{channels_[0]->fd, POLLIN, 0}, {channels_[1]->fd, POLLIN, 0}}};
  ::poll(ready.data(), ready.size(), wait_ms);
  for (const channel& from : channels_) take_events(*from);
  for (connection& one : all_)
    if (one.is_up) take_completions(one);
  sweep();
}

void cm_party::sweep() {
  std::erase_if(all_, [](connection& one) {
    if (one.is_over) destroy(one);
    return one.is_over;
  });
}

void cm_party::destroy(connection& one) noexcept {
  if (one.id->qp != nullptr) rdma_destroy_qp(one.id);
  if (one.mr != nullptr) ibv_dereg_mr(one.mr);
  rdma_destroy_id(one.id);
}

// ---- events

void cm_party::take_events(rdma_event_channel& from) {
  rdma_cm_event* event = nullptr;
  while (rdma_get_cm_event(&from, &event) == 0) {
    // An event must be acknowledged before its identifier is moved or destroyed.
    rdma_cm_event copy = *event;
    std::array<number, 32> data{};
    const std::size_t bytes =
        std::min<std::size_t>(event->param.conn.private_data_len, sizeof data);
    if (event->param.conn.private_data != nullptr)
      std::memcpy(data.data(), event->param.conn.private_data, bytes);
    copy.param.conn.private_data = data.data();
    rdma_ack_cm_event(event);
    handle(copy);
  }
  if (errno != EAGAIN) fail("rdma_get_cm_event", errno);
}

void cm_party::handle(const rdma_cm_event& event) {
  if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST) return take_request(event);
  auto& one = *static_cast<connection*>(event.id->context);
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      check_call(rdma_resolve_route(one.id, resolve_ms), "rdma_resolve_route");
      break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED: begin_connecting(one); break;
    case RDMA_CM_EVENT_ESTABLISHED: begin_traffic(one, event); break;
    case RDMA_CM_EVENT_DISCONNECTED:
      ++counts_.disconnected;
      one.is_over = true;
      break;
    case RDMA_CM_EVENT_REJECTED:
      ++counts_.rejected;
      one.is_over = true;
      break;
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_CONNECT_ERROR:
      ++counts_.unreachable;
      one.is_over = true;
      break;
    case RDMA_CM_EVENT_TIMEWAIT_EXIT: break;
    default: fail(std::string{"rdma_cm: "} + rdma_event_str(event.event), -event.status);
  }
}

void cm_party::take_request(const rdma_cm_event& event) {
  connection& one = all_.emplace_back();
  one.id = event.id;
  one.id->context = &one;
  std::memcpy(&one.peer, event.param.conn.private_data, sizeof one.peer);
  switch (pick(8)) {
    case 0:
      rdma_reject(one.id, nullptr, 0);
      one.is_over = true;
      return;
    case 1: one.is_over = true; return;  // Destroyed without an answer.
    default: break;
  }
  rdma_conn_param answer = parameters();
  if (make_queue_pair(one) && rdma_accept(one.id, &answer) == 0) return;
  ++counts_.refused_calls;
  one.is_over = true;
}

void cm_party::begin_connecting(connection& one) {
  rdma_conn_param request = parameters();
  if (make_queue_pair(one) && rdma_connect(one.id, &request) == 0) return;
  ++counts_.refused_calls;
  one.is_over = true;
}

void cm_party::begin_traffic(connection& one, const rdma_cm_event& event) {
  // A port may have become another party's. The one that accepts says who it is.
  if (event.param.conn.private_data_len >= sizeof one.peer)
    std::memcpy(&one.peer, event.param.conn.private_data, sizeof one.peer);
  one.is_up = true;
  ++counts_.established;
  ++established_[one.peer];
}

rdma_conn_param cm_party::parameters() const {
  rdma_conn_param result{};
  result.private_data = &own_;
  result.private_data_len = sizeof own_;
  result.responder_resources = result.initiator_depth = 1;
  result.retry_count = 1;
  result.rnr_retry_count = 7;
  return result;
}

// ---- traffic

bool cm_party::make_queue_pair(connection& one) const {
  ibv_qp_init_attr attr{};
  attr.cap = {.max_send_wr = 2,
              .max_recv_wr = 2,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  attr.qp_type = IBV_QPT_RC;
  attr.sq_sig_all = 1;
  if (rdma_create_qp(one.id, nullptr, &attr) != 0) {
    if (errno != EINVAL) fail("rdma_create_qp", errno);
    return false;  // The peer has ended the connection already, as in the kernel.
  }
  one.mr =
      made(ibv_reg_mr(one.id->pd, one.words.data(), sizeof one.words, int{IBV_ACCESS_LOCAL_WRITE}),
           "ibv_reg_mr");
  post_receive(one);
  return true;
}

void cm_party::post_receive(connection& one) const {
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(&one.words[1]), sizeof one.words[1], one.mr->lkey};
  ibv_recv_wr wr{0, nullptr, &piece, 1};
  ibv_recv_wr* bad = nullptr;
  check(ibv_post_recv(one.id->qp, &wr, &bad), "ibv_post_recv");
}

void cm_party::send(connection& one) const {
  one.words[0] = own_;
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(&one.words[0]), sizeof one.words[0], one.mr->lkey};
  ibv_send_wr wr{};
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  ibv_send_wr* bad = nullptr;
  check(ibv_post_send(one.id->qp, &wr, &bad), "ibv_post_send");
}

void cm_party::take_completions(connection& one) {
  ibv_wc wc{};
  while (ibv_poll_cq(one.id->send_cq, 1, &wc) == 1) one.is_sending = wc.status != IBV_WC_SUCCESS;
  while (ibv_poll_cq(one.id->recv_cq, 1, &wc) == 1) {
    if (wc.status != IBV_WC_SUCCESS) continue;  // The end of the connection is an event.
    if (one.words[1] != one.peer) fail("a message of another party", EPROTO);
    ++counts_.messages;
    post_receive(one);
  }
}

}  // namespace rig
