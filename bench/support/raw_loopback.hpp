#pragma once

#include <support/loopback.hpp>

#include <algorithm>

namespace bench {

/// The loopback of the tests, polled busily, and beside it a raw pair on the same device, domain
/// and memory, so that both sides of a comparison do the same work. One thread polls all of it.
class raw_loopback : public cordma::test::loopback {
 public:
  static constexpr std::uint32_t depth = 64;

  raw_loopback();

  cordma::local_mr local, remote;
  cordma::verbs::completion_queue raw_cq;
  cordma::verbs::queue_pair raw_a, raw_b;

  /// The loop that perftest would write: requests made before, a batch of entries a poll. Posts
  /// `wr` `n` times, at most `in_flight_max` at once.
  void run_raw(ibv_send_wr& wr, std::uint64_t n, std::uint32_t in_flight_max);
  /// The same with requests made when they are posted, by `make()`.
  template <class Make>
  void run_raw_making(Make make, std::uint64_t n, std::uint32_t in_flight_max);
  /// The same, with a receive posted on the other side for each.
  void run_raw_receiving(ibv_send_wr& wr, ibv_recv_wr& receive, std::uint64_t n,
                         std::uint32_t in_flight_max);
  /// The same with both made when they are posted.
  template <class MakeReceive, class Make>
  void run_raw_receiving_making(MakeReceive make_receive, Make make, std::uint64_t n,
                                std::uint32_t in_flight_max);
  /// `n` times a message there and one back, with `wr` and `receive` on both sides.
  void run_raw_ping_pong(ibv_send_wr& wr, ibv_recv_wr& receive, std::uint64_t n);

  struct reaped {
    std::uint32_t sends = 0;
    std::uint32_t receives = 0;
  };
  /// What all of these do at a completion queue, once. Throws when a request failed.
  static reaped reap(cordma::verbs::completion_queue& cq);
  /// Throws what a verb returned, if it is not 0.
  static void check(int rc, const char* call);
};

template <class Make>
void raw_loopback::run_raw_making(Make make, std::uint64_t n, std::uint32_t in_flight_max) {
  std::uint64_t posted = 0;
  for (std::uint64_t ended = 0; ended < n; ended += reap(raw_cq).sends) {
    while (posted < n && posted - ended < in_flight_max) {
      ibv_send_wr* bad = nullptr;
      check(raw_a.post_send(make(), &bad), "ibv_post_send");
      ++posted;
    }
  }
}

template <class MakeReceive, class Make>
void raw_loopback::run_raw_receiving_making(MakeReceive make_receive, Make make, std::uint64_t n,
                                            std::uint32_t in_flight_max) {
  std::uint64_t posted = 0, sent = 0, received = 0;
  while (sent < n || received < n) {
    while (posted < n && posted - std::min(sent, received) < in_flight_max) {
      ibv_recv_wr* bad_receive = nullptr;
      check(raw_b.post_recv(make_receive(), &bad_receive), "ibv_post_recv");
      ibv_send_wr* bad = nullptr;
      check(raw_a.post_send(make(), &bad), "ibv_post_send");
      ++posted;
    }
    const reaped count = reap(raw_cq);
    sent += count.sends;
    received += count.receives;
  }
}

}  // namespace bench
