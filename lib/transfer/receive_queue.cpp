#include <cordma/transfer/receive_queue.hpp>

#include <cordma/base/probe.hpp>

#include <bit>
#include <cstdio>

namespace cordma {
namespace {

// No message is longer (IBTA 9.2): what a buffer has beyond it the device need not know.
constexpr std::size_t message_bytes_max = std::size_t{1} << 31;

}  // namespace

receive_queue::receive_queue(scheduler& home, verbs::protection_domain& pd, verbs::queue_pair& qp,
                             transfer_tally& tally)
    : home_{home},
      qp_{qp},
      num_{qp.num()},
      pd_{pd.native_handle()},
      tally_{tally},
      depth_{qp.capabilities().recv_wr_max},
      mask_{std::bit_ceil(depth_) - 1},
      slots_(mask_ + 1),
      room_{depth_} {}

receive_queue::~receive_queue() {
  CORDMA_ASSERT(posted() == 0, "receive queue destroyed before its queue pair");
  while (!guests_.empty()) guests_.pop_front().orphan();
  while (head_ != completed_) let_go(at(head_++));
}

failure receive_queue::refused(errc code, fixed_text<240> detail) noexcept {
  tally_.refused(request_kind::receive);
  return {.code = code, .call = "post_recv", .object = {"qp", qp_.num()}, .detail = detail};
}

/// None: all of it is held. Else why not, and nothing is.
errc receive_queue::hold(std::span<const local_mr_slice> buffer) noexcept {
  for (std::size_t i = 0; i < buffer.size(); ++i) {
    if (!buffer[i].is_held()) continue;
    memory_block& block = *buffer[i].block();
    errc why = errc::stale_slice;
    if (block.try_hold(buffer[i].generation())) [[likely]] {
      const bool is_writable = verbs::allows(block.access(), verbs::access::local_write);
      if (is_writable && block.pd() == pd_) continue;
      why = is_writable ? errc::wrong_protection_domain : errc::access_denied;
      block.let_go();
    }
    while (i-- > 0)
      if (buffer[i].is_held()) buffer[i].block()->let_go();
    return why;
  }
  return {};
}

std::optional<failure> receive_queue::try_post(std::span<const local_mr_slice> buffer) noexcept {
  if (buffer.size() > std::min<std::size_t>(qp_.capabilities().recv_sge_max, receive_slices_max)) {
    char text[80];
    std::snprintf(text, sizeof text, "%zu slices, the queue pair takes %zu", buffer.size(),
                  std::min<std::size_t>(qp_.capabilities().recv_sge_max, receive_slices_max));
    return refused(errc::too_many_slices, text);
  }
  if (const errc why = hold(buffer); why != errc{}) [[unlikely]]
    return refused(why);

  slot& s = at(tail_);
  s.received.slice_count = std::uint32_t(buffer.size());
  s.received.immediate.reset();
  s.holds_memory = true;
  std::array<ibv_sge, receive_slices_max> sges;
  ibv_recv_wr wr{
      .wr_id = wr_id_base_ | tail_, .next = nullptr, .sg_list = sges.data(), .num_sge = 0};
  for (std::size_t i = 0; i < buffer.size(); ++i) {
    s.received.slices[i] = buffer[i];
    if (buffer[i].empty()) continue;
    sges[std::size_t(wr.num_sge++)] = {
        .addr = reinterpret_cast<std::uint64_t>(buffer[i].bytes().data()),
        .length = std::uint32_t(std::min(buffer[i].size_bytes(), message_bytes_max)),
        .lkey = buffer[i].lkey()};
  }
  ibv_recv_wr* bad = nullptr;
  if (const int rc = qp_.post_recv(&wr, &bad); rc != 0) {
    let_go(s);
    tally_.refused(request_kind::receive);
    return errno_failure(rc, "ibv_post_recv", {"qp", qp_.num()});
  }
  tally_.posted(request_kind::receive);
  CORDMA_PROBE3(post, num_, unsigned(request_kind::receive), tail_);
  ++tail_;
  return std::nullopt;
}

void receive_queue::post(std::span<const local_mr_slice> buffer) {
  if (messages_.is_closed()) throw error{refused(errc::disconnected)};
  if (!room_.try_acquire()) {
    char text[100];
    std::snprintf(text, sizeof text,
                  "%u buffers are posted or hold messages nobody took; take those first", depth_);
    throw error{refused(errc::receive_queue_full, text)};
  }
  if (const std::optional<failure> why = try_post(buffer)) {
    room_.release();
    throw error{*why};
  }
}

receive_queue::next_message_op receive_queue::next_message() noexcept {
  return next_message_op{*this};
}

void receive_queue::let_go(slot& s) noexcept {
  if (!std::exchange(s.holds_memory, false)) return;
  for (std::uint32_t i = 0; i < s.received.slice_count; ++i) {
    if (s.received.slices[i].is_held()) s.received.slices[i].block()->let_go();
  }
}

message receive_queue::take_message() noexcept {
  slot& s = at(head_++);
  let_go(s);
  room_.release();
  return s.received;
}

bool receive_queue::complete(std::uint32_t sequence, const ibv_wc& wc) noexcept {
  if (posted() == 0 || sequence != completed_ + flushed_) return false;  // Of a life before.
  CORDMA_PROBE5(complete, num_, unsigned(request_kind::receive), sequence, wc.status, wc.byte_len);
  if (wc.status != IBV_WC_SUCCESS) {
    tally_.failed(request_kind::receive);
    let_go(at(sequence));
    ++flushed_;
    return true;
  }
  if (flushed_ > 0) return false;  // No message comes after a failure; the device is confused.
  message& m = at(sequence).received;
  m.size_bytes = wc.byte_len;
  m.is_write = wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
  if ((wc.wc_flags & IBV_WC_WITH_IMM) != 0) m.immediate = be32toh(wc.imm_data);
  ++completed_;
  tally_.completed(request_kind::receive);
  messages_.release();
  return false;
}

void receive_queue::end_all(const request_outcome& how) noexcept {
  const failure reason = how.to_failure(qp_.num());
  room_.close(reason);
  messages_.close(reason);
}

void receive_queue::release_slots() noexcept {
  for (; posted() > 0; ++flushed_) {
    tally_.failed(request_kind::receive);
    let_go(at(completed_ + flushed_));
  }
}

receive_queue::recv_op::recv_op(receive_queue& q, std::span<const local_mr_slice> buffer) noexcept
    : waiter{&on_room},
      queue_{&q},
      slice_count_{buffer.size()},
      qp_num_{q.num_},
      next_{q.next_message()} {
  std::copy(buffer.begin(), buffer.end(), buffer_.begin());
}

bool receive_queue::recv_op::start(waiter& w, environment env) noexcept {
  if (env.scheduler == nullptr) env.scheduler = &queue_->home_;
  environment_ = env;
  // Who is stopped before it begins posts nothing.
  if (!env.stop.stop_requested() && queue_->room_.try_acquire()) return post_and_wait(w);
  queue_->guests_.push_back(*this);
  room_.emplace(queue_->room_.acquire());
  if (room_->start(*this, env)) return go_on(w);
  parent_.set(w);
  return false;
}

std::coroutine_handle<> receive_queue::recv_op::on_room(waiter& self) noexcept {
  auto& op = static_cast<recv_op&>(self);
  waiter* const parent = op.parent_.take();
  if (parent == nullptr) return std::noop_coroutine();
  return op.go_on(*parent) ? parent->done() : std::noop_coroutine();
}

/// It waits for room no longer. True: it has ended.
bool receive_queue::recv_op::go_on(waiter& parent) noexcept {
  if (!room_ || room_->failed()) return true;
  static_cast<void>(room_->take_result());
  return post_and_wait(parent);
}

/// With a permit of `room_`. True: it has ended.
bool receive_queue::recv_op::post_and_wait(waiter& parent) noexcept {
  // What came before a failure can still be taken; nothing more will come.
  is_posted_ = queue_->messages_.is_closed();
  if (is_posted_) {
    queue_->room_.release();
    return next_.start(parent, environment_);
  }
  refused_ = queue_->try_post({buffer_.data(), slice_count_});
  is_posted_ = !refused_;
  if (is_posted_) return next_.start(parent, environment_);
  queue_->room_.release();
  return true;
}

result<message> receive_queue::recv_op::take_result() noexcept {
  if (refused_) return *refused_;
  if (is_posted_) return next_.take_result();
  if (!room_) return gone(qp_num_);
  const result<void> outcome = room_->take_result();
  if (!outcome.is_cancelled()) return outcome.failure();
  if (queue_ != nullptr) queue_->tally_.cancelled(request_kind::receive);
  return cancelled_result;
}

}  // namespace cordma
