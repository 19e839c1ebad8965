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
  return is_message(opcode) || opcode == IBV_WR_RDMA_WRITE;
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
    : world_{w}, memory_{memory}, hashes_all_{w.seed() % 16 == 0} {
  current_ = this;
}

request_oracle::~request_oracle() { current_ = nullptr; }

void request_oracle::watch(host_state& host, ibv_context* on) {
  if (on->ops.post_send == &post_send) return;
  contexts_[on] = {&host, on->ops};
  on->ops.post_send = &post_send;
  on->ops.post_recv = &post_recv;
  on->ops.post_srq_recv = &post_srq_recv;
  on->ops.poll_cq = &poll_cq;
}

void request_oracle::forget(const host_state& host) {
  std::erase_if(contexts_, [&](const auto& one) { return one.second.host == &host; });
  std::erase_if(queues_, [&](const auto& one) { return one.second.host == &host; });
  std::erase_if(shared_, [&](const auto& one) { return one.second.host == &host; });
  std::erase_if(in_flight_, [&](const auto& one) { return one.first.first == host.number(); });
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
  drop(host, one->second.sends);
  drop(host, one->second.receives);
  in_flight_.erase(one->first);
  queues_.erase(one);
}

void request_oracle::drop(const host_state& host, const posted& requests) {
  for (const request& r : requests.requests)
    if (r.is_lent) memory_.take_back(host, r.memory);
}

std::uint64_t request_oracle::hash_of(std::span<const ibv_sge> memory, std::uint64_t bytes) const {
  struct range {
    std::uint64_t first, last;
  };
  // The sender's pieces are not the receiver's: ranges are of the whole message.
  const bool is_whole = hashes_all_ || bytes <= 2 * sampled_bytes;
  const std::array<range, 2> ranges{
      {{0, is_whole ? bytes : sampled_bytes}, {is_whole ? bytes : bytes - sampled_bytes, bytes}}};
  pieces_hash hash{bytes};
  std::uint64_t at = 0;
  for (const ibv_sge& piece : memory) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): verbs have addresses as numbers.
    const auto* const from = reinterpret_cast<const std::byte*>(piece.addr);
    const std::uint64_t end = at + piece.length;
    for (const range& r : ranges) {
      const std::uint64_t first = std::max(at, r.first), last = std::min(end, r.last);
      if (first < last) hash.add(from + (first - at), last - first);
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
  }
  return q;
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
  const request& made = q.sends.add(request_of(q, wr));
  if (is_message(wr.opcode) && reaches_peer(q)) {
    in_flight_[q.peer].push_back({.bytes = bytes_of(made.memory),
                                  .hash = made.hash,
                                  .has_data = wr.opcode != IBV_WR_RDMA_WRITE_WITH_IMM});
    check_credit(q);
  } else if (made.is_lent) {
    memory_.lend(*q.host, made.memory);
  }
}

/// No more messages may be under way to a queue pair than it has receives, however soon it posts
/// others: credits promise that.
void request_oracle::check_credit(const queue& from) {
  if (!world_.forbids_receiver_not_ready()) return;
  const auto peer = queues_.find(from.peer);
  if (peer == queues_.end() || peer->second.is_flushed || peer->second.qp->srq != nullptr) return;
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
  q.sends.requests.pop_back();
}

int request_oracle::post_send(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) {
  const context& on = current_->contexts_.at(qp->context);
  queue& q = current_->queue_of(on, qp);
  // The device may work on a request before its call returns.
  std::size_t count = 0;
  for (const ibv_send_wr* wr = first; wr != nullptr; wr = wr->next, ++count) current_->sent(q, *wr);
  const int error = on.before.post_send(qp, first, bad);
  if (error != 0) {
    for (const ibv_send_wr* wr = first; wr != *bad; wr = wr->next) --count;
    for (; count > 0; --count) current_->not_sent(q);
  }
  return error;
}

template <class Post>
int request_oracle::post_receives(const host_state& host, posted& to, ibv_recv_wr* first,
                                  ibv_recv_wr** bad, Post post) {
  std::size_t count = 0;
  for (const ibv_recv_wr* wr = first; wr != nullptr; wr = wr->next, ++count) {
    const request& made =
        to.add({.wr_id = wr->wr_id, .is_lent = true, .memory = {wr->sg_list, wr->num_sge}});
    memory_.lend(host, made.memory);
  }
  const int error = post();
  if (error != 0) {
    for (const ibv_recv_wr* wr = first; wr != *bad; wr = wr->next) --count;
    for (; count > 0; --count) {
      memory_.take_back(host, to.requests.back().memory);
      to.requests.pop_back();
    }
  }
  return error;
}

int request_oracle::post_recv(ibv_qp* qp, ibv_recv_wr* first, ibv_recv_wr** bad) {
  const context& on = current_->contexts_.at(qp->context);
  return current_->post_receives(*on.host, current_->queue_of(on, qp).receives, first, bad,
                                 [&] { return on.before.post_recv(qp, first, bad); });
}

int request_oracle::post_srq_recv(ibv_srq* srq, ibv_recv_wr* first, ibv_recv_wr** bad) {
  const context& on = current_->contexts_.at(srq->context);
  shared_queue& q = current_->shared_[srq];
  q.host = on.host;
  return current_->post_receives(*on.host, q.receives, first, bad,
                                 [&] { return on.before.post_srq_recv(srq, first, bad); });
}

int request_oracle::poll_cq(ibv_cq* cq, int most, ibv_wc* completions) {
  const context& on = current_->contexts_.at(cq->context);
  const int count = on.before.poll_cq(cq, most, completions);
  for (int n = 0; n < count; ++n) current_->completed(*on.host, cq, completions[n]);
  return count;
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
  // In a failed completion, only the wr_id tells sends from receives.
  const bool succeeded = wc.status == IBV_WC_SUCCESS;
  const bool is_receive = succeeded && (wc.opcode & IBV_WC_RECV) != 0;
  const auto known = queues_.find({host.number(), wc.qp_num});
  if (known != queues_.end()) {
    queue& q = known->second;
    if (q.qp->send_cq == cq && !is_receive)
      if (const std::uint64_t number = send_completed(host, q, wc)) return number;
    if (const std::uint64_t number = receive_completed(host, q.receives, true, wc)) return number;
  }
  if (succeeded && !is_receive) return 0;  // A bind or an extended request.
  const ibv_qp* const qp = softverbs_find_qp(host.device(), wc.qp_num);
  for (auto& [srq, shared] : shared_) {
    // Completions of a queue pair that is destroyed stay, and it is not known which queue it had.
    const bool may_be_of = qp != nullptr ? qp->srq == srq : shared.host == &host;
    if (!may_be_of) continue;
    if (const std::uint64_t number = receive_completed(host, shared.receives, false, wc))
      return number;
  }
  if (succeeded && qp != nullptr)
    find(host, wc, "a receive ends that nobody posted, or it ends twice");
  return 0;
}

/// Returns 0 if the completion is of none of the queue's sends.
std::uint64_t request_oracle::send_completed(const host_state& host, queue& q, const ibv_wc& wc) {
  auto& sends = q.sends.requests;
  const auto ended =
      std::ranges::find_if(sends, [&](const request& r) { return r.wr_id == wc.wr_id; });
  if (ended == sends.end()) return 0;
  const std::uint64_t number = ended->number;
  const bool succeeded = wc.status == IBV_WC_SUCCESS;
  for (auto r = sends.begin(); r <= ended; ++r) {
    if (r < ended && r->is_signaled && succeeded)
      find(host, wc, "a request ends before a signaled one that was posted earlier");
    if (r->is_lent) {
      memory_.take_back(host, r->memory);
    } else if (!r->is_inline && succeeded && hash_of(r->memory, bytes_of(r->memory)) != r->hash) {
      find(host, wc, "the memory of a request has changed before it ended");
    }
  }
  sends.erase(sends.begin(), ended + 1);
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

}  // namespace cordma::sim::detail
