#include <cordma/detail/queue/send_operation.hpp>

#include "base/failures.hpp"
#include "send_queue.hpp"

#include <cinttypes>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace cordma {

namespace {

const char* way_out_of(const request_outcome& how) noexcept {
  const std::error_code code = how.code;
  if (code == wc_errc::rnr_retry_exceeded) {
    return "the peer had posted no receive in time: post receives before they are needed, or be "
           "more "
           "patient (the sender's rnr_retry, the receiver's min_rnr_timer)";
  }
  if (code == wc_errc::local_length) {
    return "the message was longer than the receive that it met: post longer ones, or send by "
           "message_stream, which takes any length";
  }
  if (code == wc_errc::remote_invalid_request) {
    return "the peer's device takes no such request; most often a message is longer than the "
           "receive that it meets: agree on a length, or send by message_stream";
  }
  if (code == wc_errc::retry_exceeded) {
    return "the peer's device does not answer: is its host up, and does the device's own network, "
           "not the bootstrap's, lead there? docs/devices.md says what soft0 needs";
  }
  if (code == errc::not_supported && how.call == std::string_view{detail::atomic_write_call}) {
    return "it needs RC and a device with device_limits::atomic_write (Linux 6.2 and its rxe, or "
           "soft0): elsewhere, compare_swap replaces a word that the peer reads by atomics alone";
  }
  if (code == errc::not_supported && how.call == std::string_view{detail::vendor_opcode_call}) {
    return "masked atomics, UMR and other requests of a vendor need the vendor's own interface "
           "(mlx5dv) and a queue pair of the program's own";
  }
  if (code == errc::not_supported) {
    return "no such request: over UC (connection_options::transport), or where rd_atomic_max "
           "is 0, neither READs nor atomics; over XRC each names its receive queue "
           "(connection::to), a target sends none; a datagram is a SEND";
  }
  return "";
}

}  // namespace

failure request_outcome::to_failure(std::uint32_t qp_num) const noexcept {
  failure f{.code = code, .call = call, .object = {"qp", qp_num}, .vendor = vendor, .index = index};
  if (value != 0 || limit != 0) {
    char text[96];
    const bool is_least = limit > value;
    std::snprintf(text, sizeof text, "%" PRIu64 ", where %" PRIu64 " is the %s", value, limit,
                  is_least ? "least" : "most");
    f.detail = text;
  } else {
    f.detail = way_out_of(*this);
  }
  return f;
}

failure request_failure::to_failure() const noexcept {
  failure f = how.to_failure(qp_num);
  if (receive_queue == 0) return f;
  const bool is_wrong = how.code == wc_errc::remote_invalid_request;
  f.detail = detail::detail_text(
      "receive queue %u: %s", receive_queue,
      is_wrong ? "the peer's domain has none of that number (shared_receives::num; its process may "
                 "have died), the message is longer than its buffers, or it is of another process, "
                 "where neither READs nor atomics go"
               : std::string{f.detail.view()}.c_str());
  return f;
}

send_operation::send_operation(send_operation&& other, std::uint64_t* values_before) noexcept
    : list_hook<send_operation>{static_cast<list_hook<send_operation>&&>(other)},
      queue_{other.queue_},
      values_before_{values_before},
      first_{other.first_},
      pending_{other.pending_},
      count_{std::exchange(other.count_, std::uint16_t{0})},
      state_{std::exchange(other.state_, state::ended)},
      has_failed_{other.has_failed_},
      is_handle_{other.is_handle_},
      is_urgent_{other.is_urgent_},
      is_signaled_{other.is_signaled_} {
  if (has_failed_) std::construct_at(&failure_, other.failure_);
  if (state_ == state::in_flight) queue_->adopt(*this, this);
}

send_operation::~send_operation() { detail::assume(!list_hook<send_operation>::is_linked()); }

void send_operation::post() noexcept {
  is_handle_ = true;
  list_requests(&send_queue::post);
}

void send_operation::post_awaited() noexcept {
  is_signaled_ = true;
  list_requests(&send_queue::post);
}

void send_operation::await_posted() noexcept {
  is_signaled_ = true;
  if (state_ != state::in_flight || queue_->will_complete(first_ + count_ - 1)) return;
  queue_->adopt(*this, nullptr);
  end({.code = errc::not_signaled, .call = "await"});
}

void send_operation::recall() noexcept {
  if (state_ != state::queued || is_handle_) return;
  state_ = state::idle;
  queue_->withdraw(*this);
}

void send_operation::leave() noexcept {
  if (state_ == state::in_flight) return detach();
  queue_->withdraw(*this);
  state_ = state::ended;
}

void send_operation::detach() noexcept {
  ring_now();  // Awaiting would have rung it, too: data that went inline may change now.
  // The device took it at the doorbell.
  if (state_ == state::in_flight) queue_->adopt(*this, nullptr);
  state_ = state::ended;
}

void send_operation::ring_now() noexcept {
  queue_->ring_now();
  queue_->pump();  // A doorbell that fails leaves room.
}

void send_operation::count_cancelled() noexcept {
  list_requests([](send_operation& o, const wr_list& list) noexcept {
    for (const wr_summary& request : list.requests) o.queue_->tally().cancelled(request.kind);
  });
}

void send_operation::slot_failed(request_outcome failure, std::uint32_t index) noexcept {
  failure.index = index;
  note(failure);
  slot_ended();
}

void send_operation::note(const request_outcome& failure) noexcept {
  if (has_failed_) return;
  std::construct_at(&failure_, request_failure{failure, queue_->num()});
  has_failed_ = true;
  if (queue_->has_destinations()) note_receive_queue();
}

void send_operation::note_receive_queue() noexcept {
  list_requests([](send_operation& o, const wr_list& list) noexcept {
    const detail::request_destination* const to = list.requests[o.failure_.how.index].to;
    if (to != nullptr && to->path == nullptr) o.failure_.receive_queue = to->number;
  });
}

void send_operation::end(const request_outcome& failure) noexcept {
  note(failure);
  finish();
}

}  // namespace cordma
