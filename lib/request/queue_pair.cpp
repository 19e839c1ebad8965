#include "queue_pair.hpp"

#include "queue/send_queue.hpp"

#include <cordma/detail/base/probe.hpp>

#include <cstdlib>
#include <utility>

namespace cordma {
namespace {

[[gnu::noinline]] request_outcome why_failed(const ibv_wc& wc, transfer_tally& tally) noexcept {
  if (wc.status == IBV_WC_RNR_RETRY_EXC_ERR) tally.exceeded_rnr();
  return {.code = wc_errc(wc.status), .call = "ibv_poll_cq", .vendor = wc.vendor_err};
}

}  // namespace

queue_pair::queue_pair(completion_queue_driver& driver, verbs::protection_domain& pd,
                       const verbs::queue_pair_capabilities& wanted, std::size_t message_max_bytes,
                       shared_receives* pool)
    : queue_pair_base{driver, pd, wanted, pool},
      held_{driver.held_of(pd.native_handle())},
      sends_{driver.send_queue_memory().new_object<send_queue>(driver, held_->sends, pd, verbs(),
                                                               message_max_bytes),
             give_back{driver.send_queue_memory().resource()}},
      receives_{verbs(), driver, held_->receives} {
  sends_->set_wr_id_base(send_id_base());
  receives_.set_wr_id_base(receive_id_base());
  watch(false);
  // Its messages are for a handler only.
  if (pool != nullptr) receives_.refuse_all({.code = errc::refused, .call = "shared_receives"});
}

queue_pair::~queue_pair() {
  const request_outcome closed{.code = errc::closed, .call = "close"};
  sends_->end_all(closed);
  receives_.end_all(closed);
  destroy_verbs();
  sends_->release_slots();
  receives_.release_slots();
  driver().tally().failed(request_kind::receive, handled_receives_);
  if (handler_ != nullptr) std::exchange(handler_, nullptr)->on_gone();
  drained_.set();
  sends_idle_.set();
}

inline void queue_pair::count_receive(std::uint32_t number, const ibv_wc& wc) noexcept {
  CORDMA_PROBE5(complete, wc.qp_num, unsigned(request_kind::receive), number, wc.status,
                wc.byte_len);
  if (wc.status == IBV_WC_SUCCESS) {
    driver().tally().completed(request_kind::receive);
  } else {
    driver().tally().failed(request_kind::receive);
  }
}

void queue_pair::hand_over(std::uint32_t number, const ibv_wc& wc) noexcept {
  --handled_receives_;
  count_receive(number, wc);
  handler_->on_receive(number, wc);
}

/// Whether it failed.
inline bool queue_pair::complete_receive(std::uint32_t sequence, const ibv_wc& wc) noexcept {
  if (handler_ == nullptr) return receives_.complete(sequence, wc);
  hand_over(sequence, wc);
  return wc.status != IBV_WC_SUCCESS;
}

void queue_pair::complete(bool is_receive, std::uint32_t sequence, const ibv_wc& wc) noexcept {
  // From a message nothing follows but what its taker makes of it.
  if (is_receive && wc.status == IBV_WC_SUCCESS && handler_ != nullptr && !has_failed())
    return hand_over(sequence, wc);
  complete_watched(is_receive, sequence, wc);
}

void queue_pair::complete_watched(bool is_receive, std::uint32_t sequence,
                                  const ibv_wc& wc) noexcept {
  if (is_receive) {
    if (complete_receive(sequence, wc)) fail(why_failed(wc, driver().tally()));
  } else if (wc.status == IBV_WC_SUCCESS) {
    sends_->succeeded(sequence);
    if (!has_failed()) {
      if (handler_ != nullptr) sends_->keep_room(handler_->on_room());
      sends_->pump();
    }
  } else if (const request_outcome why = why_failed(wc, driver().tally());
             sends_->failed(sequence, why)) {
    fail(why);
  }
  if (has_failed()) [[unlikely]] {
    sends_->flush_all();
    if (slots_in_use() == 0) drained_.set();
  }
  if (idle_is_awaited_ && sends_->is_idle()) [[unlikely]]
    sends_idle_.set();
}

/// A message's buffer is the handler's until it gives it back; all others are the pool's at once.
/// So are those of a peer that goes beyond its credit.
void queue_pair::complete_shared(std::uint32_t number, const ibv_wc& wc) noexcept {
  const bool succeeded = wc.status == IBV_WC_SUCCESS;
  count_receive(number, wc);
  if (succeeded && handler_ != nullptr && share()->take(number)) {
    return handler_->on_receive(number, wc);
  }
  share()->pool().put_back(number);
  if (!succeeded) {
    fail(why_failed(wc, driver().tally()));
  } else {
    fail({.code = handler_ == nullptr ? errc::refused : errc::bad_frame,
          .call = "shared_receives",
          .value = share()->held(),
          .limit = share()->credit()});
  }
}

void queue_pair::shrink_wanted() noexcept {
  if (handler_ != nullptr) handler_->on_shrink_wanted();
}

void queue_pair::growth_possible() noexcept {
  if (handler_ != nullptr) handler_->on_growth_possible();
}

void queue_pair::hand_messages_to(message_handler& handler) noexcept {
  CORDMA_ASSERT(handler_ == nullptr && receives_.posted() == 0,
                "a queue pair's messages have one taker");
  handler_ = &handler;
  watch(true);
  receives_.refuse_all({.code = errc::refused, .call = "message_stream"});
  sends_->keep_receives();
  if (has_failed()) handler.on_failure();
}

void queue_pair::post_recvs(std::span<ibv_recv_wr> wrs) noexcept {
  for (ibv_recv_wr& wr : wrs) {
    CORDMA_PROBE3(post, verbs().num(), unsigned(request_kind::receive), std::uint32_t(wr.wr_id));
    wr.wr_id |= receive_id_base();
    wr.next = &wr + 1;
  }
  wrs.back().next = nullptr;
  ibv_recv_wr* bad = wrs.data();
  const int rc = verbs().post_recv(wrs.data(), &bad);
  const std::size_t posted = rc == 0 ? wrs.size() : std::size_t(bad - wrs.data());
  handled_receives_ += std::uint32_t(posted);
  driver().tally().posted(request_kind::receive, posted);
  if (rc != 0) fail({.code = {std::abs(rc), std::system_category()}, .call = "ibv_post_recv"});
}

void queue_pair::give_back::operator()(send_queue* queue) const noexcept {
  std::pmr::polymorphic_allocator<>{memory}.delete_object(queue);
}

void queue_pair::reserve_sends(std::uint32_t slots) noexcept { sends_->reserve(slots); }

bool queue_pair::can_post_detached(std::size_t count) const noexcept {
  return !has_failed() && sends_->in_flight() + count <= sends_->depth();
}

bool queue_pair::post_detached(const wr_list& list) noexcept {
  if (!can_post_detached(list.requests.size())) return false;
  const int rc = sends_->post_detached(list);
  if (rc != 0) fail({.code = {rc, std::system_category()}, .call = "ibv_post_send"});
  return rc == 0;
}

std::uint32_t queue_pair::slots_in_use() const noexcept {
  return sends_->in_flight() + receives_.posted() + handled_receives_;
}

void queue_pair::end_all(const request_outcome& why) noexcept { sends_->end_all(why); }

event::wait_op queue_pair::sends_idle() noexcept {
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

void queue_pair::on_failure(const request_outcome& unposted) noexcept {
  watch(true);
  sends_->ring_now();
  sends_->refuse({.code = errc::disconnected, .call = "post_send"});
  if (handler_ != nullptr) handler_->on_failure();  // First: those who wait may turn to it.
  sends_->end_waiting(unposted);
  receives_.end_all(failure_reason());
  sends_->flush_all();
  if (slots_in_use() == 0) drained_.set();
  sends_idle_.set();
}

}  // namespace cordma
