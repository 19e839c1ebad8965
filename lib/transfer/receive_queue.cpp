#include <cordma/detail/transfer/receive_queue.hpp>

#include <cordma/detail/transfer/queue_pair.hpp>
#include <cordma/detail/transfer/receive_op.hpp>

#include <bit>
#include <cstdio>

namespace cordma {

receive_queue::receive_queue(verbs::queue_pair& qp, completion_queue_driver& driver,
                             held_memory& held)
    : driver_{driver},
      native_{qp.native_handle()},
      num_{qp.num()},
      tally_{driver.tally()},
      depth_{qp.capabilities().recv_wr_max},
      mask_{std::bit_ceil(depth_) - 1},
      slices_max_{std::clamp<std::uint32_t>(qp.capabilities().recv_sge_max, 1, receive_slices_max)},
      at_once_max_{depth_},
      held_{held},
      slots_(mask_ + 1),
      more_slices_(slots_.size() * (slices_max_ - 1)) {}

receive_queue::~receive_queue() {
  CORDMA_ASSERT(posted() == 0, "receive queue destroyed before its queue pair");
  CORDMA_ASSERT(want_room_.empty() && first_waiting_ == nullptr, "receive queue destroyed unended");
  while (!takers_.empty()) takers_.pop_front().owner.fail({.code = errc::closed, .call = "close"});
  for (; head_ != completed_; ++head_) let_go_of(at(head_), head_);
}

std::error_code receive_queue::reason::to_code() const noexcept {
  if (device_says != 0) return {device_says, std::system_category()};
  return code;
}

request_outcome receive_queue::refusal(reason why, std::size_t slices) noexcept {
  tally_.refused(request_kind::receive);
  request_outcome how{.code = why.to_code(),
                      .call = why.device_says != 0 ? "ibv_post_recv" : "post_recv"};
  if (why.code == errc::too_many_slices) {
    how.value = slices;
    how.limit = slices_max_;
  }
  return how;
}

errc receive_queue::refusal_of(const local_mr_slice& slice) noexcept {
  const bool is_stale = slice.block()->generation() != slice.generation();
  return is_stale ? errc::stale_slice : errc::wrong_protection_domain;
}

int receive_queue::describe(std::span<const local_mr_slice> buffer, ibv_sge* to) noexcept {
  int used = 0;
  for (const local_mr_slice& slice : buffer) {
    if (slice.empty()) continue;  // Some devices read a length of 0 as 2 GiB.
    to[used++] = {.addr = reinterpret_cast<std::uint64_t>(slice.bytes().data()),
                  .length = std::uint32_t(std::min(slice.size_bytes(), message_bytes_max)),
                  .lkey = slice.lkey()};
  }
  return used;
}

receive_queue::reason receive_queue::try_post_any(std::span<const local_mr_slice> buffer) noexcept {
  if (buffer.size() > slices_max_) return errc::too_many_slices;
  if (const errc refused = hold(buffer); refused != errc{}) return refused;
  slot& s = begin_slot(buffer.size(), buffer.size() == 1 ? buffer[0].is_held() : !buffer.empty());
  for (std::size_t i = 0; i < buffer.size(); ++i)
    std::construct_at(i == 0 ? &s.slice : more_of(tail_) + (i - 1), buffer[i]);
  std::array<ibv_sge, receive_slices_max> sges{};
  const int used = describe(buffer, sges.data());
  ibv_recv_wr wr{
      .wr_id = wr_id_base_ | tail_, .next = nullptr, .sg_list = sges.data(), .num_sge = used};
  if (const int rc = post_now(wr); rc != 0) return not_posted(rc);
  return {};
}

void receive_queue::post(const local_mr_slice& buffer) {
  if (!has_room()) [[unlikely]]
    throw_refused(errc::receive_queue_full, 1);
  if (const auto why = try_post(std::span<const local_mr_slice, 1>{&buffer, 1})) [[unlikely]]
    throw_refused(why, 1);
}

void receive_queue::post_several(std::span<const local_mr_slice> buffer) {
  if (!has_room()) throw_refused(errc::receive_queue_full, buffer.size());
  if (const auto why = try_post_any(buffer)) throw_refused(why, buffer.size());
}

void receive_queue::throw_refused(reason why, std::size_t slices) {
  const bool is_full = why.code == errc::receive_queue_full;
  failure f = refusal(is_full && closed_ ? errc::disconnected : why, slices).to_failure(num_);
  if (is_full && !closed_) {
    char text[100];
    std::snprintf(text, sizeof text,
                  "%u buffers are posted or hold messages nobody took; take those first", depth_);
    f.detail = text;
  }
  throw error{f};
}

buffer_slices receive_queue::take_several(slot& s) noexcept {
  const std::uint32_t sequence = head_ - 1;
  buffer_slices all;
  for (std::size_t i = 0; i < s.state.slice_count; ++i)
    all.push_back(i == 0 ? s.slice : more_of(sequence)[i - 1]);
  let_go_of(s, sequence);
  return all;
}

receive_queue::reason receive_queue::not_posted(int rc) noexcept {
  let_go_of(at(tail_), tail_);
  return reason{rc};
}

message receive_queue::take_and_give_room(slot& s) noexcept {
  const message taken = take_any(s);
  give_room();
  return taken;
}

bool receive_queue::complete(std::uint32_t sequence, const ibv_wc& wc) noexcept {
  if (wc.status == IBV_WC_SUCCESS) {
    // No message comes after a failure, unless the device is confused.
    if (flushed_ == 0) static_cast<void>(succeeded(wc));
    return false;
  }
  const std::uint32_t next = completed_ + flushed_;
  if (sequence != next || next == tail_) return false;  // Of a life before.
  CORDMA_PROBE5(complete, num_, unsigned(request_kind::receive), sequence, wc.status, wc.byte_len);
  tally_.failed(request_kind::receive);
  let_go_of(at(sequence), sequence);
  ++flushed_;
  return true;
}

void receive_queue::end_all(const request_outcome& how) noexcept {
  if (closed_) return;
  closed_ = how;
  set_at_once_max();
  while (!want_room_.empty() || first_waiting_ != nullptr) {
    place& next = want_room_.empty() ? *first_waiting_ : want_room_.front();
    leave(next);
    next.owner.fail(how);
    next.end();
  }
}

void receive_queue::refuse_all(const request_outcome& how) noexcept {
  end_all(how);
  if (tail_ != sequence_first) return;
  std::vector<slot>{}.swap(slots_);
  std::vector<local_mr_slice>{}.swap(more_slices_);
}

void receive_queue::release_slots() noexcept {
  for (; posted() > 0; ++flushed_) {
    tally_.failed(request_kind::receive);
    let_go_of(at(completed_ + flushed_), completed_ + flushed_);
  }
}

}  // namespace cordma
