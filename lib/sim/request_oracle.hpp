#pragma once

#include "write_oracle.hpp"

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cordma::sim::detail {

class host_state;
class memory_oracle;
class world_state;

/// Judges the work requests of all hosts, at the calls of verbs. Each ends once, in its order. The
/// memory of a request that sends stays as it was until the request ends. A message or a datagram
/// arrives as it was sent, and a WRITE lands as it was posted. The oracle takes the place of the
/// calls of each context that is opened. One world at a time has an oracle.
class request_oracle {
 public:
  request_oracle(world_state& w, memory_oracle& memory);
  request_oracle(const request_oracle&) = delete;
  ~request_oracle();

  /// A verb is called on that context: puts the oracle's calls into a new one.
  void watch(host_state& host, ibv_context* context);
  /// The host's process is gone.
  void forget(const host_state& host);
  /// A queue of the host is destroyed, with its requests.
  void forget(const host_state& host, const void* gone);
  /// Queue pairs of the host that are in RESET have lost their requests and completions.
  void forget_resets(const host_state& host);
  /// The device of `target` has written for a peer.
  void landed(const host_state& target, std::uint64_t address, std::uint64_t bytes,
              std::uint32_t rkey) {
    writes_.landed(target, address, bytes, rkey);
  }

 private:
  /// The memory of a request: mostly a piece or two.
  class piece_list {
   public:
    piece_list() noexcept = default;
    piece_list(const ibv_sge* first, int count);
    operator std::span<const ibv_sge>() const noexcept {
      return count_ <= few_.size() ? std::span{few_}.first(count_) : std::span{many_};
    }

   private:
    std::array<ibv_sge, 2> few_{};
    std::size_t count_ = 0;
    std::vector<ibv_sge> many_;
  };
  struct request {
    std::uint64_t wr_id = 0;
    std::uint64_t number = 0;  ///< among its queue's, from 1
    ibv_wr_opcode opcode{};
    bool is_signaled = false;
    bool is_inline = false;
    bool is_lent = false;  ///< The device may write the memory.
    std::uint64_t hash = 0;
    write_oracle::ticket write{};
    piece_list memory;
  };
  /// A message that was posted, as its receiver must find it.
  struct message {
    std::uint64_t bytes = 0;
    std::uint64_t hash = 0;
    bool has_data = false;  ///< in the receive's memory
  };
  /// Requests that have not ended, in their order.
  struct posted {
    std::deque<request> requests;
    std::uint64_t count = 0;  ///< ever
    request& add(request r);
  };
  using send_iterator = std::deque<request>::iterator;
  using queue_name = std::pair<unsigned, std::uint32_t>;  ///< host and QP number
  /// Calls of ibv_wr_start(3) that the oracle takes the place of.
  struct extended_calls {
    decltype(ibv_qp_ex::wr_atomic_write) atomic_write = nullptr;
    decltype(ibv_qp_ex::wr_complete) complete = nullptr;
    decltype(ibv_qp_ex::wr_abort) abort = nullptr;
  };
  /// A queue pair, which may be destroyed: completions that it had stay until they are polled.
  struct queue {
    host_state* host = nullptr;
    ibv_qp* qp = nullptr;  ///< Null: it is destroyed.
    const ibv_cq* send_cq = nullptr;
    const ibv_cq* receive_cq = nullptr;
    ibv_qp_type type{};
    bool shares_receives = false;
    bool has_unseen_sends = false;  ///< ibv_wr_start(3) posts more than ATOMIC WRITEs
    extended_calls before;
    unsigned batch = 0;  ///< requests since ibv_wr_start(3)
    bool sends_all_signaled = false;
    /// A request of a reliable queue pair has failed: each one behind it is flushed.
    bool has_failed = false;
    /// Up to this request, it is not known which one has failed: their ids are the same.
    std::uint64_t may_have_ended = 0;
    queue_name peer{};  ///< if it is a reliable connection
    std::uint64_t peer_incarnation = 0;
    bool is_flushed = false;
    posted sends, receives;
  };
  struct shared_queue {
    const host_state* host = nullptr;
    posted receives;
  };
  struct context {
    host_state* host = nullptr;
    ibv_context_ops before{};
    decltype(verbs_context::create_qp_ex) create_before = nullptr;
  };

  static int post_send(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad);
  static int post_recv(ibv_qp* qp, ibv_recv_wr* first, ibv_recv_wr** bad);
  static int post_srq_recv(ibv_srq* srq, ibv_recv_wr* first, ibv_recv_wr** bad);
  static int poll_cq(ibv_cq* cq, int most, ibv_wc* completions);
  static int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);
  static ibv_qp* create_qp_ex(ibv_context* on, ibv_qp_init_attr_ex* attributes);
  static void wr_atomic_write(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address,
                              const void* word);
  static int wr_complete(ibv_qp_ex* qp);
  static void wr_abort(ibv_qp_ex* qp);

  queue& queue_of(const context& on, ibv_qp* qp);
  static queue& queue_of(ibv_qp_ex* qp);
  request request_of(const queue& q, const ibv_send_wr& wr) const;
  [[nodiscard]] bool reaches_peer(const queue& q) const;
  void drop(const host_state& host, posted& requests);
  void sent(queue& q, const ibv_send_wr& wr);
  void note_write(const queue& q, request& made, const ibv_send_wr& wr);
  void not_sent(queue& q);
  void batch_not_sent(queue& q);
  void check_credit(const queue& from);
  template <class Post>
  int post_receives(const host_state& host, posted& to, ibv_recv_wr* first, ibv_recv_wr** bad,
                    Post post);
  std::uint64_t ended_by(const host_state& host, const ibv_cq* cq, const ibv_wc& wc);
  void completed(const host_state& host, const ibv_cq* cq, const ibv_wc& wc);
  static bool is_next(queue& q, const send_iterator& r, const ibv_wc& wc);
  static send_iterator send_of(queue& q, const ibv_wc& wc);
  std::uint64_t send_completed(const host_state& host, queue& q, const send_iterator& ended,
                               const ibv_wc& wc);
  std::uint64_t receive_completed(const host_state& host, posted& receives, bool in_order,
                                  const ibv_wc& wc);
  std::uint64_t shared_receive_completed(const host_state& host, const ibv_wc& wc);
  void received(const host_state& host, const request& receive, const ibv_wc& wc);
  void datagram_received(const host_state& host, const request& receive, const ibv_wc& wc);
  [[nodiscard]] std::uint64_t hash_of(std::span<const ibv_sge> memory, std::uint64_t bytes,
                                      std::uint64_t first = 0) const;
  void find(const host_state& host, const ibv_wc& wc, const std::string& what) const;

  static request_oracle* current_;
  world_state& world_;
  memory_oracle& memory_;
  write_oracle writes_;
  const bool hashes_all_;  ///< bytes: in one seed of sixteen
  std::unordered_map<ibv_context*, context> contexts_;
  std::map<queue_name, queue> queues_;
  std::map<const ibv_srq*, shared_queue> shared_;
  std::map<queue_name, std::deque<message>>
      in_flight_;  ///< for each queue pair that messages go to
  /// Lengths and hashes of all datagrams, by the numbers of their receiver and their sender: a
  /// datagram may be lost, late or doubled.
  std::map<std::pair<std::uint32_t, std::uint32_t>,
           std::set<std::pair<std::uint64_t, std::uint64_t>>>
      datagrams_;
  bool has_unseen_datagrams_ = false;
};

}  // namespace cordma::sim::detail
