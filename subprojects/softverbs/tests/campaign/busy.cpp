#include "busy.hpp"

#include <algorithm>
#include <span>

namespace busy {
namespace {

// The memory, in words: what peers write and read, the atomics' word, sources of requests, sinks of
// READs, and the receive buffers of each QP.
constexpr std::size_t message_words_max = 8 * 1024;  // Two segments.
constexpr std::size_t receive_words = 512;
constexpr std::size_t shared_at = 0;
constexpr std::size_t atomic_at = message_words_max;
constexpr std::size_t source_at = atomic_at + 8;
constexpr std::size_t sink_at = source_at + message_words_max + receive_words;
constexpr std::size_t receive_at = sink_at + message_words_max;
constexpr std::size_t memory_words = receive_at + qp_count * options.receives * receive_words;

constexpr std::uint64_t requests_max = options.sends - 1;  // The last slot is kept for drain().
constexpr std::uint64_t signal_every = 8;

/// Sources ascend by this from word to word. Requests start anywhere, so that what is left of an
/// older message does not fit a younger one.
constexpr std::uint64_t stride = 0x9e3779b97f4a7c15;

// wr_id: the request's number, the QP, whether it is a receive.
constexpr std::uint64_t receive_bit = 1ull << 63;
constexpr int qp_shift = 56;
constexpr std::uint64_t number_mask = (1ull << qp_shift) - 1;

std::uint64_t wr_id(int qp, std::uint64_t number) {
  return static_cast<std::uint64_t>(qp) << qp_shift | number;
}

std::size_t receive_buffer(int qp, std::uint64_t buffer) {
  return receive_at + (static_cast<std::size_t>(qp) * options.receives + buffer) * receive_words;
}

}  // namespace

side::side(const rig::device& dev, std::uint64_t seed)
    : device_{dev},
      random_{seed},
      memory_(memory_words),
      mr_{dev.reg(memory_.data(), memory_.size() * 8)},
      cq_{dev.make_cq(qp_count * (options.sends + options.receives))} {
  for (std::size_t i = source_at; i < sink_at; ++i) memory_[i] = i * stride;
  for (int i = 0; i < qp_count; ++i) {
    queue& q = queues_[static_cast<std::size_t>(i)];
    q.qp = rig::make_qp(dev, cq_.get(), cq_.get(), options);
    rig::to_init(q.qp.get(), options);
    for (std::uint64_t r = 0; r < options.receives; ++r) post_receive(i, r);
  }
}

cards side::mine() const {
  cards all;
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = {queues_[i].qp->qp_num, mr_->rkey, reinterpret_cast<std::uintptr_t>(memory_.data()),
              device_.gid};
  }
  return all;
}

void side::connect(const cards& peers) {
  for (std::size_t i = 0; i < peers.size(); ++i) {
    queues_[i].peer = peers[i];
    rig::connect(queues_[i].qp.get(), device_, peers[i], options);
  }
}

void side::post_receive(int number, std::uint64_t buffer) {
  queue& q = queues_[static_cast<std::size_t>(number)];
  rig::post_recv(
      q.qp.get(), receive_bit | wr_id(number, buffer),
      rig::piece(mr_.get(), &memory_[receive_buffer(number, buffer)], receive_words * 8));
  ++q.receives;
}

void side::pump(bool requests) {
  if (requests) {
    const int number = static_cast<int>(random_() % qp_count);
    const queue& q = queues_[static_cast<std::size_t>(number)];
    if (!q.failed && q.posted - q.completed < requests_max) post_random(number);
  }
  reap();
}

void side::post_random(int number) {
  queue& q = queues_[static_cast<std::size_t>(number)];
  constexpr ibv_wr_opcode kinds[] = {IBV_WR_SEND,
                                     IBV_WR_SEND_WITH_IMM,
                                     IBV_WR_RDMA_WRITE,
                                     IBV_WR_RDMA_WRITE_WITH_IMM,
                                     IBV_WR_RDMA_READ,
                                     IBV_WR_ATOMIC_CMP_AND_SWP,
                                     IBV_WR_ATOMIC_FETCH_AND_ADD};
  const ibv_wr_opcode kind = kinds[random_() % std::size(kinds)];
  const bool sends = kind == IBV_WR_SEND || kind == IBV_WR_SEND_WITH_IMM;
  const bool atomic = kind == IBV_WR_ATOMIC_CMP_AND_SWP || kind == IBV_WR_ATOMIC_FETCH_AND_ADD;
  const bool large = random_() % 16 == 0;
  const std::size_t words_max = sends ? receive_words : large ? message_words_max : 64;
  const std::size_t words = atomic ? 1 : random_() % (words_max + 1);

  const bool sink = atomic || kind == IBV_WR_RDMA_READ;
  const bool inlined = !sink && words <= 8 && random_() % 2 == 0;
  const bool signaled = random_() % 4 == 0 || q.posted + 1 - q.signaled >= signal_every ||
                        q.posted + 1 - q.completed >= requests_max;
  unsigned flags = 0;
  if (signaled) flags |= IBV_SEND_SIGNALED;
  if (inlined) flags |= IBV_SEND_INLINE;
  if (random_() % 8 == 0) flags |= IBV_SEND_FENCE;
  const std::size_t from = sink ? sink_at : source_at + random_() % receive_words;
  rig::request r{kind, wr_id(number, q.posted), rig::piece(mr_.get(), &memory_[from], words * 8),
                 flags};
  const std::uint64_t at = q.peer.address + 8 * (atomic ? atomic_at : shared_at);
  if (!sends) r.to(at, q.peer.rkey).operands(random_() % 4, random_());
  rig::check(r.post(q.qp.get()), "ibv_post_send");
  ++q.posted;
  if (signaled) q.signaled = q.posted;
}

bool side::reap() {
  ibv_wc entries[16];
  const int n = ibv_poll_cq(cq_.get(), std::size(entries), entries);
  if (n < 0) rig::fail("ibv_poll_cq", EIO);
  for (const ibv_wc& wc : std::span{entries}.first(static_cast<std::size_t>(n))) {
    const int number = static_cast<int>((wc.wr_id & ~receive_bit) >> qp_shift);
    queue& q = queues_.at(static_cast<std::size_t>(number));
    if (wc.qp_num != q.qp->qp_num) throw std::runtime_error{"a completion of another QP"};
    switch (wc.status) {
      case IBV_WC_SUCCESS: ++tally_.succeeded; break;
      case IBV_WC_RETRY_EXC_ERR: ++tally_.retries_exceeded; break;
      case IBV_WC_WR_FLUSH_ERR: ++tally_.flushed; break;
      default:
        throw std::runtime_error{std::string{"a completion with "} + ibv_wc_status_str(wc.status)};
    }
    if ((wc.wr_id & receive_bit) != 0) {
      reap_receive(number, wc);
    } else {
      reap_send(q, wc);
    }
  }
  return n > 0;
}

void side::reap_send(queue& q, const ibv_wc& wc) {
  const std::uint64_t index = wc.wr_id & number_mask;
  if (index < q.completed || index >= q.posted) throw std::runtime_error{"completed twice"};
  if (wc.status == IBV_WC_SUCCESS && q.failed) throw std::runtime_error{"success after an error"};
  if (wc.status == IBV_WC_RETRY_EXC_ERR && q.failed) {
    throw std::runtime_error{"an error that is no flush after an error"};
  }
  q.completed = index + 1;
  q.failed = q.failed || wc.status != IBV_WC_SUCCESS;
}

void side::reap_receive(int number, const ibv_wc& wc) {
  queue& q = queues_[static_cast<std::size_t>(number)];
  --q.receives;
  const std::uint64_t buffer = wc.wr_id & number_mask;
  if (wc.status != IBV_WC_SUCCESS) return;
  if (wc.opcode == IBV_WC_RECV) {
    const std::size_t at = receive_buffer(number, buffer);
    for (std::size_t i = at + 1; i < at + wc.byte_len / 8; ++i) {
      if (memory_[i] - memory_[i - 1] != stride) throw std::runtime_error{"a message was mangled"};
    }
  }
  post_receive(number, buffer);
}

bool side::all_failed() const {
  return std::all_of(queues_.begin(), queues_.end(), [](const queue& q) { return q.failed; });
}

void side::drain() {
  for (int i = 0; i < qp_count; ++i) {
    queue& q = queues_[static_cast<std::size_t>(i)];
    rig::to_error(q.qp.get());
    // The last of all: unsignaled requests that succeeded say nothing.
    rig::request last{IBV_WR_SEND, wr_id(i, q.posted), rig::piece(mr_.get(), memory_.data(), 0)};
    rig::check(last.post(q.qp.get()), "ibv_post_send");
    ++q.posted;
  }
  const auto deadline = rig::clock::now() + rig::patience;
  const auto open = [](const queue& q) { return q.completed < q.posted || q.receives > 0; };
  while (std::any_of(queues_.begin(), queues_.end(), open)) {
    if (!reap() && rig::clock::now() > deadline) throw std::runtime_error{"requests left for ever"};
  }
}

}  // namespace busy
