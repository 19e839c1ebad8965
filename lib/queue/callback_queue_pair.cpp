#include "callback_queue_pair.hpp"

#include "base/failures.hpp"

#include "send_queue.hpp"
#include "wr_id.hpp"

#include <cordma/detail/base/probe.hpp>

#include <utility>

namespace cordma {
namespace {

std::unique_ptr<receive_share> share_of(shared_receives* pool, const verbs::protection_domain& pd) {
  if (pool == nullptr) return nullptr;
  // The specification asks the pool's domain for its buffers; Soft-RoCE asks the queue pair's.
  if (pool->pd() != pd.native_handle()) {
    throw error{{.code = errc::wrong_protection_domain,
                 .call = "shared_receives",
                 .detail = "the queue pair is of another runtime, or has a domain of its own, as "
                           "connections have whose agents lend by shared_key"}};
  }
  if (pool->num() != 0) {
    cordma::detail::throw_failure(
        errc::not_supported, "shared_receives",
        "a pool in an XRC domain takes no queue pair's messages, but those whose senders name its "
        "number: receives_from wants one without a domain");
  }
  return std::make_unique<receive_share>(*pool);
}

/// A datagram takes one more slice, which the program does not see.
verbs::queue_pair_capabilities with_headers(verbs::queue_pair_capabilities wanted,
                                            verbs::queue_pair_type type) noexcept {
  if (type == verbs::queue_pair_type::ud) ++wanted.recv_sge_max;
  return wanted;
}

verbs::queue_pair made(completion_queue_driver& driver, verbs::protection_domain& pd,
                       const verbs::queue_pair_capabilities& wanted, shared_receives* pool,
                       const queue_pair_role& role) {
  if (role.xrc_domain != nullptr) return verbs::queue_pair{*role.xrc_domain};
  return {pd,
          driver.verbs(),
          driver.verbs(),
          with_headers(wanted, role.type),
          nullptr,
          pool != nullptr ? &pool->verbs() : nullptr,
          role.type};
}

std::unique_ptr<detail::datagram_headers> headers_of(const verbs::queue_pair& qp,
                                                     verbs::protection_domain& pd,
                                                     std::size_t payload_max) {
  if (qp.type() != verbs::queue_pair_type::ud) return nullptr;
  return std::make_unique<detail::datagram_headers>(
      pd, std::bit_ceil(qp.capabilities().recv_wr_max), payload_max);
}

[[gnu::noinline]] request_outcome why_failed(const ibv_wc& wc, transfer_tally& tally) noexcept {
  if (wc.status == IBV_WC_RNR_RETRY_EXC_ERR) tally.exceeded_rnr();
  return {.code = wc_errc(wc.status), .call = "ibv_poll_cq", .vendor = wc.vendor_err};
}

}  // namespace

callback_queue_pair::callback_queue_pair(completion_queue_driver& driver,
                                         verbs::protection_domain& pd,
                                         const verbs::queue_pair_capabilities& wanted,
                                         std::size_t message_max_bytes, shared_receives* pool,
                                         const queue_pair_role& role)
    : driver_{driver},
      share_{share_of(pool, pd)},
      qp_{made(driver, pd, wanted, pool, role)},
      held_{driver.held_of(pd.native_handle())},
      sends_{driver.send_queue_memory().new_object<send_queue>(driver, held_->sends, pd, qp_,
                                                               message_max_bytes, role.has_atomics),
             give_back{driver.send_queue_memory().resource()}},
      receives_{qp_, driver, held_->receives, headers_of(qp_, pd, message_max_bytes)},
      role_{role},
      wr_id_base_{driver.attach(*this)} {
  sends_->set_wr_id_base(wr_id_base_);
  receives_.set_wr_id_base(wr_id_base_ | wr_id::receive_bit);
  watch(false);
  if (role.xrc_domain != nullptr)
    sends_->refuse({.code = errc::not_supported, .call = "post_send"});
  if (!share_) return;
  share_->belongs_to(*this);
  // A pool's messages are for a handler only.
  receives_.refuse_all({.code = errc::refused, .call = "shared_receives"});
}

callback_queue_pair::~callback_queue_pair() {
  const request_outcome closed{.code = errc::closed, .call = "close"};
  sends_->end_all(closed);
  receives_.end_all(closed);
  destroy_verbs();
  sends_->release_slots();
  receives_.release_slots();
  driver_.tally().failed(role_.receives, handled_receives_);
  if (handler_ != nullptr) std::exchange(handler_, nullptr)->on_gone();
  drained_.set();
  sends_idle_.set();
  driver_.detach(*this, wr_id_base_);
  failed_.set();
  last_receive_.set();
}

void callback_queue_pair::give_back::operator()(send_queue* queue) const noexcept {
  std::pmr::polymorphic_allocator<>{memory}.delete_object(queue);
}

void callback_queue_pair::watch(bool is_watched) noexcept {
  driver_.set_unwatched(wr_id_base_, is_watched ? nullptr : sends_.get(),
                        is_watched ? nullptr : &receives_);
}

// ---- completions ----

inline void callback_queue_pair::count_receive(std::uint32_t number, const ibv_wc& wc) noexcept {
  CORDMA_PROBE5(complete, wc.qp_num, unsigned(role_.receives), number, wc.status, wc.byte_len);
  if (wc.status == IBV_WC_SUCCESS)
    driver_.tally().completed(role_.receives);
  else
    driver_.tally().failed(role_.receives);
}

void callback_queue_pair::hand_over(std::uint32_t number, const ibv_wc& wc) noexcept {
  --handled_receives_;
  count_receive(number, wc);
  handler_->on_receive(number, wc);
}

void callback_queue_pair::complete(bool is_receive, std::uint32_t sequence,
                                   const ibv_wc& wc) noexcept {
  // For a handler, a completed message needs no further work here.
  if (is_receive && wc.status == IBV_WC_SUCCESS && handler_ != nullptr && !has_failed())
    return hand_over(sequence, wc);
  complete_watched(is_receive, sequence, wc);
}

void callback_queue_pair::complete_watched(bool is_receive, std::uint32_t sequence,
                                           const ibv_wc& wc) noexcept {
  if (is_receive) {
    bool is_failure = wc.status != IBV_WC_SUCCESS;
    if (handler_ != nullptr)
      hand_over(sequence, wc);
    else
      is_failure = receives_.complete(sequence, wc);
    if (is_failure) fail(why_failed(wc, driver_.tally()));
  } else if (wc.status == IBV_WC_SUCCESS) {
    sends_->succeeded(sequence);
    if (!has_failed()) {
      if (handler_ != nullptr) sends_->keep_room(handler_->on_room());
      sends_->pump();
    }
  } else if (const request_outcome why = why_failed(wc, driver_.tally());
             sends_->failed(sequence, takes_last_messages_ ? reason_ : why)) {
    fail(why);
  }
  if (has_failed()) [[unlikely]]
    drain();
  if (!idle_is_awaited_) [[likely]]
    return;
  if (sends_->is_idle()) {
    idle_is_awaited_ = false;
    sends_idle_.set();
  } else if (handler_ != nullptr && !has_failed() && !sends_->will_end_all()) {
    // A request without a CQE has followed the handler's last one.
    handler_->on_idle_awaited();
  }
}

/// Completes a shared receive. The message's buffer belongs to the handler until the handler gives
/// it back. Every other buffer returns to the pool at once, including that of a peer beyond its
/// credit.
void callback_queue_pair::complete_shared(std::uint32_t number, const ibv_wc& wc) noexcept {
  const bool succeeded = wc.status == IBV_WC_SUCCESS;
  count_receive(number, wc);
  if (succeeded && handler_ != nullptr && share_->take(number))
    return handler_->on_receive(number, wc);
  const bool is_delivered = succeeded && share_->pool().is_for_messages() &&
                            (!has_failed() || takes_last_messages_) &&
                            share_->admitted() != detail::admittance::none;
  if (is_delivered && share_->take(number)) return share_->pool().deliver(*share_, number, wc);
  share_->pool().put_back(number);
  if (!succeeded) {
    fail(why_failed(wc, driver_.tally()));
  } else {
    fail({.code = handler_ == nullptr ? errc::refused : errc::bad_frame,
          .call = "shared_receives",
          .value = share_->held(),
          .limit = share_->credit()});
  }
}

void callback_queue_pair::hand_messages_to(message_handler& handler) noexcept {
  CORDMA_ASSERT(handler_ == nullptr && receives_.posted() == 0,
                "a queue pair's messages have one taker");
  handler_ = &handler;
  watch(true);
  receives_.refuse_all({.code = errc::refused, .call = "message_stream"});
  sends_->keep_receives();
  if (has_failed()) handler.on_failure();
}

void callback_queue_pair::post_recvs(std::span<ibv_recv_wr> wrs) noexcept {
  for (ibv_recv_wr& wr : wrs) {
    CORDMA_PROBE3(post, qp_.num(), unsigned(role_.receives), std::uint32_t(wr.wr_id));
    wr.wr_id |= wr_id_base_ | wr_id::receive_bit;
    wr.next = &wr + 1;
  }
  wrs.back().next = nullptr;
  ibv_recv_wr* bad = wrs.data();
  const int rc = qp_.post_recv(wrs.data(), &bad);
  const std::size_t posted = rc == 0 ? wrs.size() : std::size_t(bad - wrs.data());
  handled_receives_ += std::uint32_t(posted);
  driver_.tally().posted(role_.receives, posted);
  if (rc != 0) fail(request_outcome::of_errno(rc, "ibv_post_recv"));
}

bool callback_queue_pair::can_post_detached(std::size_t count) const noexcept {
  return !has_failed() && sends_->in_flight() + count <= sends_->depth();
}

bool callback_queue_pair::post_detached(const wr_list& list) noexcept {
  return can_post_detached(list.requests.size()) && sends_->post_detached(list);
}

// ---- idle, failure, destruction ----

std::uint32_t callback_queue_pair::slots_in_use() const noexcept {
  return sends_->in_flight() + receives_.posted() + handled_receives_;
}

event::wait_op callback_queue_pair::sends_idle() noexcept {
  if (handler_ != nullptr && !has_failed() && !sends_->will_end_all()) handler_->on_idle_awaited();
  idle_is_awaited_ = !sends_->is_idle() && !has_failed();
  if (idle_is_awaited_) {
    watch(true);
    sends_idle_.reset();
  } else {
    sends_idle_.set();
  }
  return sends_idle_.wait();
}

/// Fails the queue pair. The failed request has ended with its own status; the device flushes the
/// requests behind it.
void callback_queue_pair::fail(const request_outcome& why) noexcept {
  fail(why, {.code = wc_errc::flushed, .call = "post_send"});
}

void callback_queue_pair::fail(const request_outcome& why,
                               const request_outcome& unposted) noexcept {
  if (has_failed()) return;
  enter_error(why);
  end_waiting(unposted);
}

void callback_queue_pair::enter_error(const request_outcome& why) noexcept {
  reason_ = why;
  try {
    qp_.to_error();  // The device has mostly made this change already.
  } catch (...) {
    // The device is gone, or there is no memory to tell what failed. The owner of the queue pair
    // destroys it.
  }
  watch(true);
}

void callback_queue_pair::end_waiting(const request_outcome& unposted) noexcept {
  sends_->ring_now();
  sends_->refuse({.code = errc::disconnected, .call = "post_send"});
  // The handler comes first: waiters may turn to it.
  if (handler_ != nullptr) handler_->on_failure();
  sends_->end_waiting(unposted);
  receives_.end_all(reason_);
  drain();
  sends_idle_.set();
  failed_.set();
}

void callback_queue_pair::drain() noexcept {
  sends_->flush_all(role_.sends);
  if (slots_in_use() == 0) drained_.set();
}

void callback_queue_pair::abort(const request_outcome& why) noexcept {
  fail(why, why);
  sends_->end_all(why);
}

void callback_queue_pair::abort_after_last_message(const request_outcome& why) noexcept {
  if (!has_failed()) {
    enter_error(why);
    takes_last_messages_ = true;
    driver_.reap_all();
    takes_last_messages_ = false;
    end_waiting(why);
  }
  abort(why);
}

void callback_queue_pair::last_receive_taken(const request_outcome& why) noexcept {
  if (!share_) return abort(why);  // Without a pool the event has no meaning.
  fail(why);
  share_->all_is_known();
  last_receive_.set();
}

/// Destroys the verbs object. In ERROR the device gives back the receives that it took from the
/// pool. Some devices remove a queue pair's CQEs from the completion queue at its destruction,
/// others leave them there.
void callback_queue_pair::destroy_verbs() noexcept {
  if (share_) {
    fail({.code = errc::closed, .call = "close"});
    driver_.reap_to_the_end();
    driver_.ignore_requests(wr_id_base_);
  }
  qp_.destroy();
  if (share_) driver_.reap_to_the_end();
}

}  // namespace cordma
