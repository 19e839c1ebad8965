#include <cordma/transfer/queue_pair.hpp>

#include "wr_id.hpp"

namespace cordma {

queue_pair::queue_pair(completion_queue_driver& driver, verbs::protection_domain& pd,
                       const verbs::queue_pair_capabilities& wanted, std::size_t message_max_bytes)
    : driver_{driver},
      qp_{pd, driver.verbs(), driver.verbs(), wanted},
      sends_{driver.home(), pd, qp_, message_max_bytes},
      receives_{driver.home(), pd, qp_},
      entries_{sends_.depth() + receives_.depth()},
      wr_id_base_{driver.attach(*this, entries_)} {
  sends_.set_wr_id_base(wr_id_base_);
  receives_.set_wr_id_base(wr_id_base_ | wr_id::receive_bit);
}

queue_pair::~queue_pair() {
  const request_outcome closed{.code = errc::closed, .call = "close"};
  sends_.end_all(closed);
  receives_.end_all(closed);
  qp_.destroy();
  sends_.release_slots();
  receives_.release_slots();
  driver_.detach(wr_id_base_, entries_);
  failed_.set();
  drained_.set();
  sends_idle_.set();
}

void queue_pair::complete(bool is_receive, std::uint32_t sequence, const ibv_wc& wc) noexcept {
  const bool is_failure =
      is_receive ? receives_.complete(sequence, wc) : sends_.complete(sequence, wc);
  if (is_failure) {
    fail({.code = wc_errc(wc.status), .call = "ibv_poll_cq", .vendor = wc.vendor_err});
  }
  if (has_failed() && slots_in_use() == 0) drained_.set();
  if (idle_is_awaited_ && sends_.is_idle()) sends_idle_.set();
}

event::wait_op queue_pair::sends_idle() noexcept {
  idle_is_awaited_ = !sends_.is_idle() && !has_failed();
  if (idle_is_awaited_) {
    sends_idle_.reset();
  } else {
    sends_idle_.set();
  }
  return sends_idle_.wait();
}

/// The request that failed has ended with its own status, those behind it will be flushed one by
/// one; what never reached the device is flushed here.
void queue_pair::fail(const request_outcome& why) noexcept {
  if (has_failed()) return;
  reason_ = why;
  sends_.refuse({.code = errc::disconnected, .call = "post_send"});
  sends_.end_waiting({.code = wc_errc::flushed, .call = "post_send"});
  receives_.end_all(why);
  try {
    qp_.to_error();  // The device mostly is there already.
  } catch (const error&) {
    // It is gone, then: destroying the queue pair is what remains, and its owner will.
  }
  if (slots_in_use() == 0) drained_.set();
  failed_.set();
  sends_idle_.set();
}

void queue_pair::abort(const request_outcome& why) noexcept {
  fail(why);
  sends_.end_all(why);
}

}  // namespace cordma
