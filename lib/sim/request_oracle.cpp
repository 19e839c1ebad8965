#include "request_oracle.hpp"

#include "host_state.hpp"
#include "memory_oracle.hpp"
#include "world_state.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace cordma::sim::detail {
namespace {

/// Bytes at each end of a piece of memory that are hashed in most seeds.
constexpr std::size_t sampled_bytes = 64;
/// A receive of a datagram begins with the global routing header, or room for it
/// (ibv_post_recv(3)).
constexpr std::uint64_t grh_bytes = 40;

/// Hash of bytes that come in pieces, wherever they are divided.
class pieces_hash {
 public:
  explicit pieces_hash(std::uint64_t start) noexcept : hash_{start} {}
  void add(const std::byte* from, std::size_t bytes) noexcept {
    while (bytes > 0) {
      const std::size_t count = std::min(bytes, part_.size() - filled_);
      std::memcpy(part_.data() + filled_, from, count);
      filled_ += count;
      from += count;
      bytes -= count;
      if (filled_ == part_.size()) take_part();
    }
  }
  [[nodiscard]] std::uint64_t value() noexcept {
    std::fill(part_.begin() + std::ptrdiff_t(filled_), part_.end(), std::byte{});
    if (filled_ > 0) take_part();
    return hash_;
  }

 private:
  void take_part() noexcept {
    for (std::size_t at = 0; at < filled_; at += sizeof(std::uint64_t)) {
      std::uint64_t word;
      std::memcpy(&word, part_.data() + at, sizeof word);
      hash_ = (hash_ ^ word) * 0x9fb21c651e98df25;
      hash_ ^= hash_ >> 29;
    }
    filled_ = 0;
  }
  std::uint64_t hash_;
  std::array<std::byte, 2 * sampled_bytes> part_{};
  std::size_t filled_ = 0;
};

bool is_message(ibv_wr_opcode opcode) noexcept {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
         opcode == IBV_WR_SEND_WITH_INV || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/// Returns true if the request's memory is read by the device, and not written.
bool is_source(ibv_wr_opcode opcode) noexcept {
  return is_message(opcode) || opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_ATOMIC_WRITE;
}

/// Returns true if the request writes memory of the peer that it names.
bool is_write(ibv_wr_opcode opcode) noexcept {
  return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
         opcode == IBV_WR_ATOMIC_WRITE || opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
         opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

bool is_reliable(ibv_qp_type type) noexcept {
  return type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND;
}

std::uint64_t bytes_of(std::span<const ibv_sge> memory) noexcept {
  std::uint64_t bytes = 0;
  for (const ibv_sge& piece : memory) bytes += piece.length;
  return bytes;
}

/// Returns the host of an address, as `host_state::gid` makes them.
unsigned host_of(const ibv_gid& gid) noexcept { return unsigned{gid.raw[14]} << 8 | gid.raw[15]; }

}  // namespace

request_oracle* request_oracle::current_ = nullptr;

request_oracle::piece_list::piece_list(const ibv_sge* first, int count)
    : count_{std::size_t(count)} {
  if (count_ <= few_.size())
    std::copy_n(first, count, few_.begin());
  else
    many_.assign(first, first + count);
}

request_oracle::request_oracle(world_state& w, memory_oracle& memory)
    : world_{w}, memory_{memory}, writes_{w, memory}, hashes_all_{w.seed() % 16 == 0} {
  current_ = this;
}

request_oracle::~request_oracle() { current_ = nullptr; }

void request_oracle::forget(const host_state& host) {
  std::erase_if(contexts_, [&](const auto& one) { return one.second.host == &host; });
  std::erase_if(queues_, [&](const auto& one) { return one.second.host == &host; });
  std::erase_if(shared_, [&](const auto& one) { return one.second.host == &host; });
  std::erase_if(in_flight_, [&](const auto& one) { return one.first.first == host.number(); });
  writes_.forget(host);
}

void request_oracle::forget(const host_state& host, const void* gone) {
  if (const auto shared = shared_.find(static_cast<const ibv_srq*>(gone));
      shared != shared_.end()) {
    drop(host, shared->second.receives);
    shared_.erase(shared);
    return;
  }
  const auto one =
      std::ranges::find_if(queues_, [&](const auto& q) { return q.second.qp == gone; });
  if (one == queues_.end()) return;
  // Completions that the queue pair had can still be polled, as softverbs has it: each of one
  // request, in their order. Devices may drop them (ibv_destroy_qp(3) promises neither), and so a
  // request that does not end any more is no finding. All memory is the program's again.
  queue& q = one->second;
  drop(host, q.sends);
  drop(host, q.receives);
  in_flight_.erase(one->first);
  q.qp = nullptr;
}

void request_oracle::forget_resets(const host_state& host) {
  for (auto& [name, q] : queues_) {
    if (q.host != &host || q.qp == nullptr || q.qp->state != IBV_QPS_RESET) continue;
    drop(host, q.sends);
    drop(host, q.receives);
    in_flight_.erase(name);
    q.sends.requests.clear();
    q.receives.requests.clear();
    q.peer = {};
    q.is_flushed = q.has_failed = false;
  }
}

/// The requests have no memory any more.
void request_oracle::drop(const host_state& host, posted& requests) {
  for (request& r : requests.requests) {
    if (r.is_lent) memory_.take_back(host, r.memory);
    r.is_lent = false;
    r.is_inline = true;
    r.memory = {};
  }
}

std::uint64_t request_oracle::hash_of(std::span<const ibv_sge> memory, std::uint64_t bytes,
                                      std::uint64_t first) const {
  struct range {
    std::uint64_t first, last;
  };
  const std::uint64_t last = first + bytes;
  // The sender's pieces are not the receiver's: ranges are of the whole message.
  const bool is_whole = hashes_all_ || bytes <= 2 * sampled_bytes;
  const std::array<range, 2> ranges{{{first, is_whole ? last : first + sampled_bytes},
                                     {is_whole ? last : last - sampled_bytes, last}}};
  pieces_hash hash{bytes};
  std::uint64_t at = 0;
  for (const ibv_sge& piece : memory) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): verbs have addresses as numbers.
    const auto* const from = reinterpret_cast<const std::byte*>(piece.addr);
    const std::uint64_t end = at + piece.length;
    for (const range& r : ranges) {
      const std::uint64_t begin = std::max(at, r.first), stop = std::min(end, r.last);
      if (begin < stop) hash.add(from + (begin - at), stop - begin);
    }
    at = end;
  }
  return hash.value();
}

void request_oracle::find(const host_state& host, const ibv_wc& wc, const std::string& what) const {
  world_.find("host " + host.name() + ", qp " + std::to_string(wc.qp_num) + ": " + what);
}

request_oracle::request& request_oracle::posted::add(request r) {
  r.number = ++count;
  return requests.emplace_back(std::move(r));
}

request_oracle::queue& request_oracle::queue_of(const context& on, ibv_qp* qp) {
  queue& q = queues_[{on.host->number(), qp->qp_num}];
  if (q.qp != qp) {
    q = {};
    q.host = on.host;
    q.qp = qp;
    q.send_cq = qp->send_cq;
    q.receive_cq = qp->recv_cq;
    q.type = qp->qp_type;
    q.shares_receives = qp->srq != nullptr;
  }
  return q;
}

request_oracle::queue& request_oracle::queue_of(ibv_qp_ex* qp) {
  return current_->queue_of(current_->contexts_.at(qp->qp_base.context), &qp->qp_base);
}

request_oracle::request request_oracle::request_of(const queue& q, const ibv_send_wr& wr) const {
  request made{.wr_id = wr.wr_id,
               .opcode = wr.opcode,
               .is_signaled = q.sends_all_signaled || (wr.send_flags & IBV_SEND_SIGNALED) != 0,
               .is_inline = (wr.send_flags & IBV_SEND_INLINE) != 0,
               .is_lent = !is_source(wr.opcode),
               .memory = {wr.sg_list, wr.num_sge}};
  if (is_source(wr.opcode)) made.hash = hash_of(made.memory, bytes_of(made.memory));
  return made;
}

void request_oracle::sent(queue& q, const ibv_send_wr& wr) {
  if (q.sends.requests.empty() && q.peer.second == 0) {
    ibv_qp_attr attributes{};
    ibv_qp_init_attr made{};
    if (::ibv_query_qp(q.qp, &attributes, IBV_QP_AV | IBV_QP_DEST_QPN, &made) == 0) {
      q.sends_all_signaled = made.sq_sig_all != 0;
      if (q.qp->qp_type == IBV_QPT_RC)
        q.peer = {host_of(attributes.ah_attr.grh.dgid), attributes.dest_qp_num};
      if (const host_state* const peer = world_.host_at(q.peer.first))
        q.peer_incarnation = peer->incarnation();
    }
  }
  request& made = q.sends.add(request_of(q, wr));
  if (is_write(wr.opcode)) note_write(q, made, wr);
  if (is_message(wr.opcode) && q.type == IBV_QPT_UD)
    datagrams_[{wr.wr.ud.remote_qpn, q.qp->qp_num}].emplace(bytes_of(made.memory), made.hash);
  if (is_message(wr.opcode) && reaches_peer(q)) {
    in_flight_[q.peer].push_back({.bytes = bytes_of(made.memory),
                                  .hash = made.hash,
                                  .has_data = wr.opcode != IBV_WR_RDMA_WRITE_WITH_IMM});
    check_credit(q);
  } else if (made.is_lent) {
    memory_.lend(*q.host, made.memory);
  }
}

void request_oracle::note_write(const queue& q, request& made, const ibv_send_wr& wr) {
  // A request that nobody acknowledges may land when it has ended. The queue of an XRC initiator
  // has no single target.
  if (q.type != IBV_QPT_RC) return writes_.stop();
  if (reaches_peer(q)) made.write = writes_.posted(*world_.host_at(q.peer.first), wr);
}

/// No more messages may be under way to a queue pair than it has receives, however soon it posts
/// others: credits promise that.
void request_oracle::check_credit(const queue& from) {
  if (!world_.forbids_receiver_not_ready()) return;
  const auto peer = queues_.find(from.peer);
  if (peer == queues_.end() || peer->second.qp == nullptr) return;
  if (peer->second.is_flushed || peer->second.shares_receives) return;
  const std::size_t in_flight = in_flight_[from.peer].size();
  const std::size_t receives = peer->second.receives.requests.size();
  if (in_flight <= receives) return;
  world_.find("host " + from.host->name() + ", qp " + std::to_string(from.qp->qp_num) + ": " +
              std::to_string(in_flight) + " messages are under way to a queue pair with " +
              std::to_string(receives) + " receives");
}

/// A later process of the peer's host may have a queue pair of that number, too.
bool request_oracle::reaches_peer(const queue& q) const {
  const host_state* const peer = world_.host_at(q.peer.first);
  return peer != nullptr && peer->incarnation() == q.peer_incarnation;
}

/// Takes the last request back, which the device did not take.
void request_oracle::not_sent(queue& q) {
  const request& last = q.sends.requests.back();
  if (is_message(last.opcode) && reaches_peer(q)) {
    in_flight_[q.peer].pop_back();
  } else if (last.is_lent) {
    memory_.take_back(*q.host, last.memory);
  }
  if (last.write.number != 0) writes_.forget(last.write);
  q.sends.requests.pop_back();
}

void request_oracle::batch_not_sent(queue& q) {
  for (; q.batch > 0; --q.batch) not_sent(q);
}

void request_oracle::completed(const host_state& host, const ibv_cq* cq, const ibv_wc& wc) {
  const bool succeeded = wc.status == IBV_WC_SUCCESS;
  const std::uint64_t number = ended_by(host, cq, wc);
  if (wc.status == IBV_WC_WR_FLUSH_ERR) {
    const auto flushed = queues_.find({host.number(), wc.qp_num});
    const bool is_first =
        flushed == queues_.end() || !std::exchange(flushed->second.is_flushed, true);
    if (is_first)
      world_.note("flushes request {} of qp {}, and all behind it", host, number, wc.qp_num);
    return;
  }
  world_.note(either(succeeded, "completes request {} of qp {}, {} bytes",
                     "fails request {} of qp {}: status {}"),
              host, number, wc.qp_num, succeeded ? wc.byte_len : std::uint32_t{wc.status});
}

/// Returns the number of the request that has ended; 0: it is unknown.
std::uint64_t request_oracle::ended_by(const host_state& host, const ibv_cq* cq, const ibv_wc& wc) {
  const bool succeeded = wc.status == IBV_WC_SUCCESS;
  const bool is_receive = succeeded && (wc.opcode & IBV_WC_RECV) != 0;
  const bool is_send = succeeded && !is_receive;
  const auto known = queues_.find({host.number(), wc.qp_num});
  queue* const q = known == queues_.end() ? nullptr : &known->second;
  bool may_be_unseen = false;
  if (q != nullptr) {
    // In a failed completion, only the wr_id tells sends from receives. Where both have it, the
    // completion is of the one that ends next.
    auto& received = q->receives.requests;
    const bool has_received = q->receive_cq == cq && !is_send;
    const bool is_next_receive =
        has_received && !received.empty() && received.front().wr_id == wc.wr_id;
    const bool has_sent = q->send_cq == cq && !is_receive;
    const send_iterator sent = has_sent ? send_of(*q, wc) : q->sends.requests.end();
    if (sent != q->sends.requests.end() && (is_next(*q, sent, wc) || !is_next_receive))
      return send_completed(host, *q, sent, wc);
    if (has_received)
      if (const std::uint64_t number = receive_completed(host, q->receives, true, wc))
        return number;
    may_be_unseen = (q->has_unseen_sends && !is_receive) ||
                    (q->qp == nullptr && q->shares_receives && !is_send);
  } else {
    // The shared receives may be gone with a queue pair that had no requests of its own.
    may_be_unseen = softverbs_find_qp(host.device(), wc.qp_num) == nullptr;
  }
  if (!is_send)
    if (const std::uint64_t number = shared_receive_completed(host, wc)) return number;
  if (!may_be_unseen)
    find(host, wc,
         std::string{is_receive ? "a receive"
                     : is_send  ? "a send"
                                : "a request"} +
             " ends that nobody posted, or it ends twice");
  return 0;
}

/// Returns 0 if the completion is of no shared receive of the host.
std::uint64_t request_oracle::shared_receive_completed(const host_state& host, const ibv_wc& wc) {
  const ibv_qp* const qp = softverbs_find_qp(host.device(), wc.qp_num);
  // The queue of a target of XRC, and of a queue pair that is destroyed, is not known.
  const bool knows_queue = qp != nullptr && qp->qp_type != IBV_QPT_XRC_RECV;
  for (auto& [srq, shared] : shared_) {
    const bool may_be_of = knows_queue ? qp->srq == srq : shared.host == &host;
    if (!may_be_of) continue;
    if (const std::uint64_t number = receive_completed(host, shared.receives, false, wc))
      return number;
  }
  return 0;
}

/// Returns whether the request may be the next that a completion of this status tells of.
/// Unsignaled requests tell of a failure only, their own or an earlier one's.
bool request_oracle::is_next(queue& q, const send_iterator& r, const ibv_wc& wc) {
  const bool succeeded = wc.status == IBV_WC_SUCCESS;
  if (succeeded && (!r->is_signaled || q.has_failed)) return false;
  return std::all_of(q.sends.requests.begin(), r, [&](const request& earlier) {
    return q.has_failed ? earlier.number <= q.may_have_ended : !earlier.is_signaled;
  });
}

/// Returns the request that has ended: the next one that it may be, else any of that id.
request_oracle::send_iterator request_oracle::send_of(queue& q, const ibv_wc& wc) {
  auto& all = q.sends.requests;
  send_iterator found = all.end();
  for (auto r = all.begin(); r != all.end(); ++r) {
    if (r->wr_id != wc.wr_id) continue;
    if (is_next(q, r, wc)) return r;
    const bool can_end = r->is_signaled || wc.status != IBV_WC_SUCCESS;
    if (found == all.end() && can_end) found = r;
  }
  return found;
}

std::uint64_t request_oracle::send_completed(const host_state& host, queue& q,
                                             const send_iterator& ended, const ibv_wc& wc) {
  const std::uint64_t number = ended->number;
  const bool has_succeeded = wc.status == IBV_WC_SUCCESS;
  if (q.has_failed && has_succeeded)
    find(host, wc, "a request succeeds behind one that failed");
  else if (!is_next(q, ended, wc))
    find(host, wc,
         q.has_failed ? "a request ends before one that was posted earlier"
                      : "a request ends before a signaled one that was posted earlier");
  auto& all = q.sends.requests;
  for (auto r = all.begin(); r <= ended; ++r) {
    if (r->is_lent) memory_.take_back(host, r->memory);
    if (has_succeeded && !r->is_inline && !r->is_lent &&
        hash_of(r->memory, bytes_of(r->memory)) != r->hash)
      find(host, wc, "the memory of a request has changed before it ended");
    // Requests before the first one that failed have succeeded. One that failed may still land.
    const bool is_done = r < ended ? !q.has_failed : has_succeeded;
    if (is_done && r->write.number != 0) writes_.succeeded(host, r->write);
  }
  if (!has_succeeded && !q.has_failed && is_reliable(q.type)) {
    for (auto r = ended; r != all.end(); ++r) {
      if (r->wr_id == wc.wr_id) q.may_have_ended = r->number;
      if (r->is_signaled) break;
    }
    q.has_failed = true;
  }
  all.erase(all.begin(), ended + 1);
  return number;
}

/// Returns 0 if the completion is of none of these receives.
std::uint64_t request_oracle::receive_completed(const host_state& host, posted& receives,
                                                bool in_order, const ibv_wc& wc) {
  auto& requests = receives.requests;
  const auto found =
      std::ranges::find_if(requests, [&](const request& r) { return r.wr_id == wc.wr_id; });
  if (found == requests.end()) return 0;
  if (in_order && found != requests.begin())
    find(host, wc, "a receive ends before one that was posted earlier");
  const request ended = std::move(*found);
  requests.erase(found);
  memory_.take_back(host, ended.memory);
  if (wc.status == IBV_WC_SUCCESS) received(host, ended, wc);
  return ended.number;
}

void request_oracle::received(const host_state& host, const request& receive, const ibv_wc& wc) {
  const ibv_qp* const qp = softverbs_find_qp(host.device(), wc.qp_num);
  if (qp == nullptr) return;
  if (qp->qp_type == IBV_QPT_UD) return datagram_received(host, receive, wc);
  const auto from = in_flight_.find({host.number(), wc.qp_num});
  if (from == in_flight_.end()) return;  // No reliable connection.
  if (from->second.empty()) return find(host, wc, "a message arrives that was not sent");
  const message sent = from->second.front();
  from->second.pop_front();
  if (sent.bytes != wc.byte_len) {
    find(host, wc,
         "a message of " + std::to_string(sent.bytes) + " bytes arrives as " +
             std::to_string(wc.byte_len));
  } else if (sent.has_data && hash_of(receive.memory, sent.bytes) != sent.hash) {
    find(host, wc, "a message arrives with other bytes than were sent");
  }
}

void request_oracle::datagram_received(const host_state& host, const request& receive,
                                       const ibv_wc& wc) {
  if (has_unseen_datagrams_) return;
  const std::uint64_t bytes = wc.byte_len - grh_bytes;
  const auto sent = datagrams_.find({wc.qp_num, wc.src_qp});
  if (sent == datagrams_.end() ||
      !sent->second.contains({bytes, hash_of(receive.memory, bytes, grh_bytes)}))
    find(host, wc, "a datagram arrives that was not sent, or with other bytes");
}

}  // namespace cordma::sim::detail
