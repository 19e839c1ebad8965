// Measures what co_await adds to datagrams, beside raw verbs on the same device.

#include "datagram/ip_group.hpp"
#include "support/bench.hpp"
#include "support/raw_verbs.hpp"
#include "verbs/address_handle.hpp"

#include <support/connected_pair.hpp>

#include <cordma/coro/scope.hpp>
#include <cordma/coro/when_all.hpp>

#include <algorithm>
#include <optional>
#include <utility>

namespace {

using cordma::task;
namespace raw = support::raw;
namespace verbs = cordma::verbs;

constexpr std::size_t size_bytes = 64;
constexpr std::uint32_t depth = 64;
constexpr std::uint32_t qkey = 0x1234;
constexpr const char* ip4_group = "239.118.115.98";
constexpr const char* ip6_group = "ff15::7362";

/// Two sockets, and beside them two raw queue pairs on the same device, domain and memory.
class both_sides {
 public:
  explicit both_sides(bool by_multicast) {
    for (verbs::queue_pair* one : {&from_, &at_})
      one->to_ud_rts({.port = port_.number, .qkey = qkey});
    destination_ = b.address();
    if (by_multicast) join();
    const ibv_gid to = raw_group_.value_or(own_.gid);
    const bool is_global = port_.is_ethernet() || by_multicast;
    handle_.emplace(rt.protection_domain(), port_.number,
                    is_global ? verbs::address_vector::by_gid(to, own_.index, port_.lid)
                              : verbs::address_vector::by_lid(port_.lid));
    raw_qpn_ = by_multicast ? destination_.qpn : at_.num();
  }
  both_sides(const both_sides&) = delete;
  both_sides& operator=(const both_sides&) = delete;
  ~both_sides() {
    if (raw_group_) at_.detach(*raw_group_);
  }

  void run_raw(std::uint64_t n, std::uint32_t in_flight_max) {
    std::uint64_t posted = 0, sent = 0, received = 0;
    while (sent < n || received < n) {
      for (; posted < n && posted - std::min(sent, received) < in_flight_max; ++posted) {
        post_raw_receive();
        post_raw_send();
      }
      raw::poll(cq_, [&](const ibv_wc& wc) {
        if ((wc.opcode & IBV_WC_RECV) == 0) {
          ++sent;
        } else {
          ++received;
          sender_ = {wc.src_qp, wc.slid};  // A program learns of its sender so.
        }
      });
    }
  }
  task<> one_by_one(std::uint64_t n) {
    for (; n > 0; --n) {
      b.post_recv(buffer());
      co_await a.send_to(destination_, said());
      static_cast<void>(co_await b.next_datagram());
    }
  }
  task<> by_tasks(std::uint64_t n) { co_await cordma::when_all(take_each(n), send_all(n)); }
  void post_buffers() {
    for (std::uint32_t i = 0; i < depth; ++i) b.post_recv(buffer());
  }

  cordma::runtime rt{options()};

 private:
  static cordma::runtime_options options() {
    return cordma::test::on_test_device({.cq = {.mode = cordma::completion_mode::busy}});
  }
  static cordma::datagram_options socket_options() {
    return {.qkey = qkey,
            .capacity = {.send_wr_max = depth, .recv_wr_max = depth, .recv_sge_max = 1}};
  }

  void join() {
    const bool is_ip4 = cordma::detail::is_mapped_ip4(own_.gid);
    member_ = rt.run(b.join(is_ip4 ? ip4_group : ip6_group));
    destination_ = member_.address();
    ibv_gid other = destination_.path.gid;  // Each side has a group of its own.
    other.raw[15] ^= 1;
    if (own_.netdev_ifindex != 0)
      raw_membership_ = cordma::detail::join_ip_group(other, own_.netdev_ifindex);
    at_.attach(other);
    raw_group_ = other;
  }
  [[nodiscard]] cordma::local_mr_slice buffer() { return memory_.slice(0, a.payload_max()); }
  [[nodiscard]] cordma::local_mr_slice said() {
    return memory_.slice(memory_.size_bytes() - size_bytes, size_bytes);
  }
  void post_raw_receive() {
    raw::post(at_,
              raw::receive{raw::piece(memory_.bytes().data(), sizeof(ibv_grh) + a.payload_max(),
                                      memory_.slice().lkey())});
  }
  void post_raw_send() {
    raw::request what{IBV_WR_SEND,
                      raw::piece(said().bytes().data(), size_bytes, memory_.slice().lkey()),
                      {},
                      from_.capabilities().inline_max};
    what.wr.wr.ud = {.ah = handle_->native_handle(), .remote_qpn = raw_qpn_, .remote_qkey = qkey};
    raw::post(from_, what);
  }
  task<> take_each(std::uint64_t n) {
    for (; n > 0; --n) {
      static_cast<void>(co_await b.next_datagram());
      b.post_recv(buffer());
    }
  }
  task<> send_each(std::uint64_t n) {
    for (; n > 0; --n) co_await a.send_to(destination_, said());
  }
  task<> send_all(std::uint64_t n) {
    cordma::scope tasks{rt.executor()};
    for (std::uint64_t i = 0; i < depth; ++i)
      tasks.spawn(send_each(n / depth + (i < n % depth ? 1 : 0)));
    co_await tasks.join();
  }

 public:
  cordma::datagram_socket a = rt.open_datagram(socket_options());
  cordma::datagram_socket b = rt.open_datagram(socket_options());

 private:
  const verbs::port_info port_ = rt.context().active_port();
  const verbs::gid_entry own_ = verbs::choose_gid(rt.context().gid_table(port_.number));
  cordma::local_mr memory_ =
      rt.memory().allocate_zeroed(a.payload_max() + sizeof(ibv_grh) + size_bytes);
  cordma::datagram_address destination_;
  cordma::multicast_membership member_;
  verbs::completion_queue cq_{rt.context(), 8 * depth};
  verbs::queue_pair from_{rt.protection_domain(),    cq_, cq_, capacity(), nullptr, nullptr,
                          verbs::queue_pair_type::ud};
  verbs::queue_pair at_{rt.protection_domain(),    cq_, cq_, capacity(), nullptr, nullptr,
                        verbs::queue_pair_type::ud};
  static verbs::queue_pair_capabilities capacity() {
    return {.send_wr_max = depth, .recv_wr_max = depth};
  }
  std::optional<verbs::address_handle> handle_;
  std::uint32_t raw_qpn_ = 0;
  std::pair<std::uint32_t, std::uint16_t> sender_;
  std::optional<ibv_gid> raw_group_;
  cordma::unique_fd raw_membership_;
};

void compare_each_depth(bench::recorder& recorder, both_sides& s) {
  recorder.compare(
      "depth 1", [&](std::uint64_t n) { s.run_raw(n, 1); },
      [&](std::uint64_t n) { s.rt.run(s.one_by_one(n)); });
  s.post_buffers();
  recorder.compare(
      "depth 64", [&](std::uint64_t n) { s.run_raw(n, depth); },
      [&](std::uint64_t n) { s.rt.run(s.by_tasks(n)); });
}

}  // namespace

BENCH_ON_DEVICE("datagram/64B", "What does co_await add to a small datagram and its receive?") {
  both_sides s{false};
  compare_each_depth(recorder, s);
}

BENCH_ON_DEVICE("datagram/multicast/64B", "And to one that goes to a group?") {
  both_sides s{true};
  compare_each_depth(recorder, s);
}
