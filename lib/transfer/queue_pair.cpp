#include <cordma/transfer/queue_pair.hpp>

namespace cordma {

queue_pair::queue_pair(completion_queue_driver& driver, verbs::protection_domain& pd,
                       const verbs::queue_pair_capabilities& wanted, std::size_t message_max_bytes)
    : queue_pair_base{driver, pd, wanted},
      sends_{driver.home(), pd, verbs(), message_max_bytes},
      receives_{driver.home(), pd, verbs()} {
  sends_.set_wr_id_base(send_id_base());
  receives_.set_wr_id_base(receive_id_base());
}

queue_pair::~queue_pair() {
  const request_outcome closed{.code = errc::closed, .call = "close"};
  sends_.end_all(closed);
  receives_.end_all(closed);
  verbs().destroy();
  sends_.release_slots();
  receives_.release_slots();
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

/// What never reached the device is flushed here.
void queue_pair::on_failure() noexcept {
  sends_.refuse({.code = errc::disconnected, .call = "post_send"});
  sends_.end_waiting({.code = wc_errc::flushed, .call = "post_send"});
  receives_.end_all(failure_reason());
  if (slots_in_use() == 0) drained_.set();
  sends_idle_.set();
}

}  // namespace cordma
