#include "stress.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

namespace stress {
void verdict::fail(const std::string& what) {
  const std::lock_guard lock{mutex_};
  if (text_.empty()) text_ = what;
  over_ = true;
}

std::string verdict::text() {
  const std::lock_guard lock{mutex_};
  return text_;
}

event_reader::event_reader(const rig::device& dev)
    : stop_{::eventfd(0, EFD_CLOEXEC)}, thread_{[this, &dev] {
        // An event that poll() saw may be gone with its queue pair; a blocking read would then wait
        // for another event.
        const int flags = ::fcntl(dev.context->async_fd, F_GETFL);
        rig::check(::fcntl(dev.context->async_fd, F_SETFL, flags | O_NONBLOCK), "fcntl");
        pollfd fds[] = {{dev.context->async_fd, POLLIN, 0}, {stop_, POLLIN, 0}};
        while (::poll(fds, 2, -1) > 0 && fds[1].revents == 0) {
          ibv_async_event event{};
          if (ibv_get_async_event(dev.context.get(), &event) == 0) ibv_ack_async_event(&event);
        }
      }} {}

event_reader::~event_reader() {
  const std::uint64_t one = 1;
  if (::write(stop_, &one, sizeof one) != sizeof one) std::abort();
  thread_.join();
  ::close(stop_);
}

server::server(const rig::device& dev, std::uint32_t pairs, std::uint32_t queues, verdict& v)
    : device_{dev}, verdict_{v}, unused_cq_{dev.make_cq(1)}, ends_(pairs) {
  // Flushes of old queue pairs may still be there when a new one's entries come.
  const std::uint32_t entries = 4 * receives * (pairs / queues + 1);
  for (std::uint32_t i = 0; i < queues; ++i) {
    cqs_.push_back(dev.make_cq(static_cast<int>(entries)));
  }
  for (end& e : ends_) e.buffers_mr = dev.reg(e.buffers.data(), e.buffers.size());
}

server::~server() {
  for (end& e : ends_) e.qp.reset();
}

void server::publish_fickle(end& e) noexcept {
  const std::uint64_t rkey = e.fickle_mr ? e.fickle_mr->rkey : 0;
  const std::uint64_t address = reinterpret_cast<std::uintptr_t>(e.fickle.data());
  std::memcpy(&e.memory[fickle_rkey_at + 8], &address, 8);
  // The client READs it at any time.
  std::atomic_ref{*reinterpret_cast<std::uint64_t*>(&e.memory[fickle_rkey_at])}.store(rkey);
}

rig::card server::rebuild(const rebuild_order& order) {
  end& e = ends_.at(order.pair);
  const std::uint32_t queue = order.pair % static_cast<std::uint32_t>(cqs_.size());
  const auto deadline = rig::clock::now() + rig::patience;
  for (;;) {  // The CQEs of all delivered messages are in the completion queue by now.
    {
      const std::lock_guard lock{e.mutex};
      if (!e.qp || e.received >= order.sent) break;
    }
    serve(queue);
    if (verdict_.over()) break;
    if (rig::clock::now() > deadline) throw std::runtime_error{"messages got lost"};
  }
  const std::lock_guard lock{e.mutex};
  if (e.qp && order.exact && e.received != order.sent) {
    throw std::runtime_error{"messages that nobody sent"};
  }
  // A pair begins again with the same queue pair, or with another: both ways are tried in turn.
  if (e.qp && e.epoch % 2 == 0) {
    rig::to_reset(e.qp.get());
  } else {
    e.qp = rig::make_qp(device_, unused_cq_.get(), cqs_[queue].get(),
                        {.sends = 1, .receives = receives});
  }
  e.memory_mr.reset();
  std::memset(&e.memory[words_at], 0, ops * 8);
  publish_fickle(e);
  e.memory_mr = device_.reg(e.memory.data(), e.memory.size());
  ++e.epoch;
  const auto psn = static_cast<std::uint32_t>(e.epoch);
  e.received = 0;
  rig::to_init(e.qp.get());
  for (std::uint64_t i = 0; i < receives; ++i) {
    rig::post_recv(e.qp.get(), std::uint64_t{order.pair} << pair_shift | i << slot_shift | e.epoch,
                   rig::piece(e.buffers_mr.get(), &e.buffers[i * message_bytes], message_bytes));
  }
  rig::connect(e.qp.get(), device_, order.client, {.psn = psn});
  return {e.qp->qp_num, e.memory_mr->rkey, reinterpret_cast<std::uintptr_t>(e.memory.data()),
          device_.gid, psn};
}

void server::serve(std::uint32_t queue) {
  ibv_wc entries[16];
  const int n = ibv_poll_cq(cqs_[queue].get(), std::size(entries), entries);
  if (n < 0) throw std::runtime_error{"ibv_poll_cq"};
  for (const ibv_wc& wc : std::span{entries}.first(static_cast<std::size_t>(n))) take(wc);
}

void server::take(const ibv_wc& wc) {
  if (wc.status != IBV_WC_SUCCESS) {
    // REM_ACCESS at the responder fails no receive; all are flushed, and come again with rebuild.
    if (wc.status == IBV_WC_WR_FLUSH_ERR) return;
    throw std::runtime_error{std::string{"a receive: "} + ibv_wc_status_str(wc.status)};
  }
  end& e = ends_.at(wc.wr_id >> pair_shift);
  const std::uint64_t buffer = (wc.wr_id >> slot_shift) & 0xff;
  const std::lock_guard lock{e.mutex};
  if ((wc.wr_id & epoch_mask) != e.epoch) return;
  // All bytes are equal, and other than in most messages before.
  const std::span bytes{&e.buffers[buffer * message_bytes], wc.byte_len};
  if (bytes.empty() || !std::ranges::all_of(bytes, [&](auto b) { return b == bytes[0]; })) {
    throw std::runtime_error{"a message was mangled"};
  }
  if ((wc.wc_flags & IBV_WC_WITH_IMM) != 0 && wc.imm_data != wc.byte_len) {
    throw std::runtime_error{"a message of the wrong length"};
  }
  ++e.received;
  ++messages_;
  ibv_sge sge = rig::piece(e.buffers_mr.get(), &e.buffers[buffer * message_bytes], message_bytes);
  ibv_recv_wr wr{wc.wr_id, nullptr, &sge, 1};
  ibv_recv_wr* bad = nullptr;
  rig::check(ibv_post_recv(e.qp.get(), &wr, &bad), "ibv_post_recv");
}

void server::churn(std::mt19937_64& random) {
  end& e = ends_[random() % ends_.size()];
  const std::lock_guard lock{e.mutex};
  if (e.fickle_mr) {
    e.fickle_mr.reset();
    // A write through the revoked key would be seen here.
    std::ranges::fill(e.fickle, std::byte{0xee});
    for (int round = 0; round < 100; ++round) {
      if (!std::ranges::all_of(e.fickle, [](std::byte b) { return b == std::byte{0xee}; })) {
        throw std::runtime_error{"a deregistered region was written to"};
      }
    }
  } else {
    e.fickle_mr = device_.reg(e.fickle.data(), e.fickle.size());
    publish_fickle(e);
  }
}

}  // namespace stress
