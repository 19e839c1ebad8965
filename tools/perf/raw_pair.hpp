#pragma once

#include "datagram/ip_group.hpp"
#include "job.hpp"
#include "meter.hpp"

#include <cordma/runtime/runtime.hpp>
#include <cordma/verbs/queue_pair.hpp>

#include "support/raw_verbs.hpp"
#include "verbs/address_handle.hpp"

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace perf {

/// Two connected queue pairs of one process, and the loop of ibv_post_send and ibv_poll_cq that
/// does the same work as a job. The loop fills each request when it posts it, and polls CQEs in
/// batches. A message always finds a receive: both ends are here, so that no credits are needed.
/// `rpc` and `stream` are an echo of sends. \thread the runtime's.
class raw_pair {
 public:
  raw_pair(cordma::runtime& rt, const job& what);

  /// Operations, as many at once as the job's depth, until `m` takes no more.
  /// \errors  std::runtime_error: a completion with an error; errno of ibv_post_send.
  void run(meter& m);

 private:
  /// One queue pair with its memory, and the requests on it.
  struct end {
    /// `domain`: this is a target of it, and has a receive queue there.
    end(cordma::runtime& rt, cordma::verbs::completion_queue& cq, const job& what,
        std::uint64_t number, cordma::verbs::xrc_domain* domain = nullptr);
    end(const end&) = delete;
    end& operator=(const end&) = delete;
    ~end();
    /// Makes the way from here to a queue pair, or to the group that it is attached to.
    void lead_to(cordma::runtime& rt, const end& other);
    void join(cordma::runtime& rt);
    void post_send(ibv_wr_opcode opcode, const support::raw::remote& to);
    void post_receive();

    cordma::local_mr memory;
    std::optional<cordma::verbs::shared_receive_queue> inbox;
    cordma::verbs::queue_pair qp;
    std::uint64_t number;  ///< In `wr_id`, beside whether it is a receive.
    std::size_t size_bytes;
    std::size_t headroom;  ///< Bytes in front of each datagram that is received.
    std::size_t slots;
    std::optional<ibv_gid> group{};  ///< The group that the queue pair is attached to.
    cordma::unique_fd ip_group{};
    std::optional<cordma::verbs::address_handle> handle{};
    std::uint32_t peer_qpn = 0;
    std::uint32_t peer_inbox = 0;  ///< Receive queue at the peer, over XRC.
    std::size_t next_slot = 0, next_receive = 0;
    std::size_t inline_max;

   private:
    [[nodiscard]] ibv_sge piece(std::size_t slot, std::size_t bytes) const noexcept;
  };
  cordma::verbs::xrc_domain* domain_for(cordma::runtime& rt, const job& what);
  void post_next();
  void take(const ibv_wc& wc, meter& m);
  void ended(meter& m);
  [[nodiscard]] bool has_room() const noexcept;

  const job what_;
  cordma::verbs::completion_queue cq_;
  std::optional<cordma::verbs::xrc_domain> domain_;
  end near_, far_;
  std::uint32_t in_flight_ = 0;            ///< Operations.
  std::uint32_t requests_ = 0;             ///< Requests that no completion has ended, of both ends.
  std::uint32_t receives_ = 0;             ///< Posted at `far_`, and not promised to a request.
  std::vector<clock::time_point> starts_;  ///< A ring: operations end in their order.
  std::size_t first_ = 0;
};

}  // namespace perf
