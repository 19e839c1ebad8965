#include "receive_queue.hpp"

#include "base/failures.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <memory>

namespace cordma {

receive_queue::receive_queue(verbs::queue_pair& qp, completion_queue_driver& driver,
                             mr_hold_cache& held, std::unique_ptr<detail::datagram_headers> headers)
    : driver_{driver},
      native_{qp.native_handle()},
      num_{qp.num()},
      tally_{driver.tally()},
      depth_{qp.capabilities().recv_wr_max},
      mask_{std::bit_ceil(depth_) - 1},
      slices_max_{std::clamp<std::uint32_t>(qp.capabilities().recv_sge_max - (headers ? 1 : 0), 1,
                                            buffer_slices::size_max)},
      at_once_max_{depth_},
      headers_{std::move(headers)},
      held_{held},
      slots_(mask_ + 1) {}

receive_queue::~receive_queue() {
  CORDMA_ASSERT(posted() == 0, "receive queue destroyed before its queue pair");
  CORDMA_ASSERT(want_room_.empty() && first_waiting_ == nullptr, "receive queue destroyed unended");
  while (!takers_.empty()) takers_.pop_front().fail({.code = errc::closed, .call = "close"});
  for (; head_ != completed_; ++head_) release(at(head_));
}

inline request_outcome receive_queue::try_post(std::span<const local_mr_slice> buffer) noexcept {
  if (buffer.size() > slices_max_)
    return {.code = errc::too_many_slices,
            .call = "post_recv",
            .value = buffer.size(),
            .limit = slices_max_};
  if (headers_) [[unlikely]] {
    std::size_t bytes = 0;
    for (const local_mr_slice& slice : buffer) bytes += slice.size_bytes();
    if (bytes < headers_->payload_max())
      return {.code = errc::wrong_length,
              .call = "post_recv",
              .value = bytes,
              .limit = headers_->payload_max()};
  }
  const request_outcome how = held_.acquire(buffer, verbs::access::local_write, "post_recv");
  if (how.has_failed()) return how;
  message& slot = *::new (&at(tail_)) message;  // `message()` would clear the room for slices.
  std::array<ibv_sge, buffer_slices::size_max + 1> sges;
  ibv_recv_wr wr{
      .wr_id = wr_id_base_ | tail_, .next = nullptr, .sg_list = sges.data(), .num_sge = 0};
  if (headers_) [[unlikely]]
    sges[std::size_t(wr.num_sge++)] = headers_->room_in(tail_ & mask_);
  for (const local_mr_slice& slice : buffer) {
    slot.slices.push_back(slice);
    if (slice.empty()) continue;  // Some devices read a length of 0 as 2 GiB.
    sges[std::size_t(wr.num_sge++)] = {
        .addr = reinterpret_cast<std::uint64_t>(slice.bytes().data()),
        .length = std::uint32_t(std::min(slice.size_bytes(), message_bytes_max)),
        .lkey = slice.lkey()};
  }
  ibv_recv_wr* bad = nullptr;
  if (const int rc = ibv_post_recv(native_, &wr, &bad); rc != 0) {
    release(slot);
    return request_outcome::of_errno(rc, "ibv_post_recv");
  }
  tally_.posted(request_kind::receive);
  CORDMA_PROBE3(post, num_, unsigned(request_kind::receive), tail_);
  ++tail_;
  return {};
}

void receive_queue::post(std::span<const local_mr_slice> buffer) {
  const errc no_room = closed_.has_failed() ? errc::disconnected : errc::receive_queue_full;
  const request_outcome how =
      has_room() ? try_post(buffer) : request_outcome{.code = no_room, .call = "post_recv"};
  if (how.has_failed()) throw_refused(how);
}

void receive_queue::throw_refused(const request_outcome& how) {
  tally_.refused(request_kind::receive);
  failure f = how.to_failure(num_);
  if (how.code == errc::receive_queue_full) {
    f.detail = cordma::detail::detail_text(
        "%u buffers are posted or hold messages nobody took; take those first", depth_);
  }
  throw error{f};
}

void receive_queue::promise(receive_operation& to) noexcept {
  to.state_ = receive_operation::state::promised;
  --free_count_;
}

bool receive_queue::serve(receive_operation& o) noexcept {
  if (free_count_ != 0) {
    promise(o);
    takers_.push_back(o);
    return true;
  }
  if (closed_.has_failed()) {
    o.fail(closed_);
    return true;
  }
  o.state_ = receive_operation::state::waits;
  takers_.push_back(o);
  if (first_waiting_ == nullptr) first_waiting_ = &o;
  return false;
}

bool receive_queue::post_and_serve(receive_operation& o) noexcept {
  const request_outcome how = try_post(o.buffer_);
  if (!how.has_failed()) [[likely]]
    return serve(o);
  tally_.refused(request_kind::receive);
  o.fail(how);
  return true;
}

void receive_queue::promise_to_next() noexcept {
  receive_operation& next = *first_waiting_;
  first_waiting_ = takers_.after(next);
  promise(next);
  next.on_end();
}

void receive_queue::leave(receive_operation& o) noexcept {
  if (&o == first_waiting_) first_waiting_ = takers_.after(o);
  o.unlink();
  set_at_once_max();
}

void receive_queue::give_room() noexcept {
  while (!want_room_.empty() && tail_ - head_ < depth_) {
    receive_operation& next = want_room_.pop_front();
    if (post_and_serve(next)) next.on_end();
  }
  set_at_once_max();
}

void receive_queue::take(message& into) noexcept {
  into = at(head_++);
  release(into);
  if (!want_room_.empty()) give_room();
}

bool receive_queue::succeeded(const ibv_wc& wc) noexcept {
  if (wc.wr_id != (wr_id_base_ | completed_) || completed_ == tail_) return false;
  CORDMA_PROBE5(complete, num_, unsigned(request_kind::receive), completed_, wc.status,
                wc.byte_len);
  message& slot = at(completed_);
  slot.size_bytes = wc.byte_len;
  if (headers_) [[unlikely]] {
    slot.size_bytes -= std::min<std::size_t>(slot.size_bytes, detail::grh_bytes);
    headers_->arrived(completed_ & mask_, wc);
  }
  ++completed_;
  if ((wc.wc_flags & IBV_WC_WITH_IMM) != 0) {
    slot.immediate = be32toh(wc.imm_data);
    slot.is_write = wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
  }
  tally_.completed(request_kind::receive);
  ++free_count_;
  if (first_waiting_ != nullptr) promise_to_next();
  return true;
}

bool receive_queue::complete(std::uint32_t sequence, const ibv_wc& wc) noexcept {
  if (wc.status == IBV_WC_SUCCESS) {
    // No message comes after a failure, unless the device is confused.
    if (flushed_ == 0) static_cast<void>(succeeded(wc));
    return false;
  }
  const std::uint32_t next = completed_ + flushed_;
  // The CQE is of an earlier connection epoch.
  if (sequence != next || next == tail_) return false;
  CORDMA_PROBE5(complete, num_, unsigned(request_kind::receive), sequence, wc.status, wc.byte_len);
  tally_.failed(request_kind::receive);
  release(at(sequence));
  ++flushed_;
  return true;
}

void receive_queue::end_all(const request_outcome& how) noexcept {
  if (closed_.has_failed()) return;
  closed_ = how;
  set_at_once_max();
  while (!want_room_.empty() || first_waiting_ != nullptr) {
    receive_operation& next = want_room_.empty() ? *first_waiting_ : want_room_.front();
    leave(next);
    next.fail(how);
    next.on_end();
  }
}

void receive_queue::refuse_all(const request_outcome& how) noexcept {
  end_all(how);
  if (tail_ != sequence_first) return;
  std::vector<message>{}.swap(slots_);
}

void receive_queue::release_slots() noexcept {
  for (; posted() > 0; ++flushed_) {
    tally_.failed(request_kind::receive);
    release(at(completed_ + flushed_));
  }
}

}  // namespace cordma
