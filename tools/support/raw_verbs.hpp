#pragma once

#include <cordma/verbs/completion_queue.hpp>
#include <cordma/verbs/device.hpp>
#include <cordma/verbs/protection_domain.hpp>
#include <cordma/verbs/queue_pair.hpp>

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

// The yardstick: two queue pairs of raw verbs, and the loops that a program without a library
// writes. Tests, benchmarks and cordma-perf share it. A loop fills each work request when it posts
// it, as a program does whose requests differ.
namespace support::raw {

/// \errors `cordma::error` with what a verb returned, if that is not 0.
void check(int rc, const char* call);

/// Brings a queue pair from RESET to RTS, connected to queue pair `peer_num` of the same port.
/// \param min_rnr_timer  12: a send without a receive is tried again after 0.64 ms, and given up
///   after 4.5 ms. A busy machine may take as long between a test's steps. 28: 164 ms and 1.1 s.
/// \param rnr_retry  0: at once.
void connect(cordma::verbs::context& ctx, const cordma::verbs::port_info& port,
             cordma::verbs::queue_pair& qp, std::uint32_t peer_num, std::uint8_t min_rnr_timer = 12,
             std::uint8_t rnr_retry = 6);

/// Local memory of a work request.
inline ibv_sge piece(const void* at, std::size_t size_bytes, std::uint32_t lkey) noexcept {
  return {.addr = reinterpret_cast<std::uint64_t>(at),
          .length = std::uint32_t(size_bytes),
          .lkey = lkey};
}

/// Memory that a one-sided request reaches.
struct remote {
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
};

/// A signaled work request with one SGE. `wr` names `sge`, so a request stays where it was made.
struct request {
  request(ibv_wr_opcode opcode, const ibv_sge& local, const remote& to = {}) noexcept : sge{local} {
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      sge.length = sizeof(std::uint64_t);
      wr.wr.atomic = {.remote_addr = to.address,
                      .compare_add = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 1u : 0u,
                      .swap = 0,
                      .rkey = to.rkey};
    } else {
      wr.wr.rdma = {.remote_addr = to.address, .rkey = to.rkey};
    }
  }
  /// Inline if it is a SEND or a WRITE of at most `inline_max` bytes, as the library's are.
  request(ibv_wr_opcode opcode, const ibv_sge& local, const remote& to,
          std::size_t inline_max) noexcept
      : request{opcode, local, to} {
    const bool is_write = opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    if ((is_write || opcode == IBV_WR_SEND) && local.length <= inline_max)
      wr.send_flags |= IBV_SEND_INLINE;
  }
  request(const request&) = delete;
  request& operator=(const request&) = delete;
  ibv_send_wr& first() noexcept { return wr; }

  ibv_sge sge;
  ibv_send_wr wr{};
};

/// A receive with one SGE, which stays where it was made.
struct receive {
  explicit receive(const ibv_sge& into, std::uint64_t id = 0) noexcept
      : sge{into}, wr{.wr_id = id, .next = nullptr, .sg_list = &sge, .num_sge = 1} {}
  receive(const receive&) = delete;
  receive& operator=(const receive&) = delete;

  ibv_sge sge;
  ibv_recv_wr wr;
};

/// Posts `what.first()` and what follows it. Returns what the verb does: 0 or an errno.
template <class Request>
int try_post(cordma::verbs::queue_pair& qp, Request&& what) noexcept {
  ibv_send_wr* bad = nullptr;
  return qp.post_send(&what.first(), &bad);
}
inline int try_post(cordma::verbs::queue_pair& qp, receive&& what) noexcept {
  ibv_recv_wr* bad = nullptr;
  return qp.post_recv(&what.wr, &bad);
}
/// Posts it, or throws `cordma::error`.
template <class What>
void post(cordma::verbs::queue_pair& qp, What&& what) {
  if (const int rc = try_post(qp, std::forward<What>(what)); rc != 0) check(rc, "ibv_post");
}

/// \errors what a completion with an error says, or a negative number of entries.
[[noreturn]] void fail(const ibv_wc& wc);
[[noreturn]] void fail_to_poll();

/// Polls once, and gives each entry to `each`; throws when a request failed. Returns their number.
template <class Each>
std::size_t poll(cordma::verbs::completion_queue& cq, Each each) {
  constexpr std::size_t batch = 32;
  std::array<ibv_wc, batch> completions;
  const int n = cq.poll(completions);
  if (n < 0) fail_to_poll();
  for (int i = 0; i < n; ++i) {
    const ibv_wc& wc = completions[std::size_t(i)];
    if (wc.status != IBV_WC_SUCCESS) fail(wc);
    each(wc);
  }
  return std::size_t(n);
}

struct counts {
  std::uint32_t sends = 0;
  std::uint32_t receives = 0;
};

/// Polls once, and counts.
inline counts reap(cordma::verbs::completion_queue& cq) {
  counts all;
  poll(cq,
       [&](const ibv_wc& wc) { ++((wc.opcode & IBV_WC_RECV) != 0 ? all.receives : all.sends); });
  return all;
}

/// Two connected queue pairs on one completion queue, which one thread polls.
struct pair {
  pair(cordma::verbs::context& ctx, const cordma::verbs::port_info& port,
       cordma::verbs::protection_domain& pd,
       const cordma::verbs::queue_pair_capabilities& capabilities);

  /// Posts `make()` `n` times on `a`, at most `in_flight_max` at once.
  template <class Make>
  void run(Make make, std::uint64_t n, std::uint32_t in_flight_max) {
    std::uint64_t posted = 0;
    for (std::uint64_t ended = 0; ended < n; ended += reap(cq).sends) {
      for (; posted < n && posted - ended < in_flight_max; ++posted) post(a, make());
    }
  }
  /// Does the work of run(), with a receive posted on `b` for each request.
  template <class MakeReceive, class Make>
  void run_receiving(MakeReceive make_receive, Make make, std::uint64_t n,
                     std::uint32_t in_flight_max) {
    std::uint64_t posted = 0, sent = 0, received = 0;
    while (sent < n || received < n) {
      for (; posted < n && posted - std::min(sent, received) < in_flight_max; ++posted) {
        post(b, make_receive());
        post(a, make());
      }
      const counts some = reap(cq);
      sent += some.sends;
      received += some.receives;
    }
  }
  /// `n` times a message there and one back.
  template <class MakeReceive, class Make>
  void run_ping_pong(MakeReceive make_receive, Make make, std::uint64_t n) {
    std::uint64_t sent = 0;
    for (std::uint64_t i = 0; i < 2 * n; ++i) {
      const bool is_there = i % 2 == 0;
      post(is_there ? b : a, make_receive());
      post(is_there ? a : b, make());
      for (counts some; some.receives == 0; sent += some.sends) some = reap(cq);
    }
    while (sent < 2 * n) sent += reap(cq).sends;
  }

  cordma::verbs::completion_queue cq;
  cordma::verbs::queue_pair a, b;
};

}  // namespace support::raw
