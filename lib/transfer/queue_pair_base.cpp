#include <cordma/transfer/queue_pair_base.hpp>

#include "wr_id.hpp"

namespace cordma {

queue_pair_base::queue_pair_base(completion_queue_driver& driver, verbs::protection_domain& pd,
                                 const verbs::queue_pair_capabilities& wanted)
    : driver_{driver},
      qp_{pd, driver.verbs(), driver.verbs(), wanted},
      entries_{qp_.capabilities().send_wr_max + qp_.capabilities().recv_wr_max},
      wr_id_base_{driver.attach(*this, entries_)} {}

queue_pair_base::~queue_pair_base() {
  driver_.detach(wr_id_base_, entries_);
  failed_.set();
}

std::uint64_t queue_pair_base::receive_id_base() const noexcept {
  return wr_id_base_ | wr_id::receive_bit;
}

/// The request that failed has ended with its own status, those behind it will be flushed one by
/// one.
void queue_pair_base::fail(const request_outcome& why) noexcept {
  if (has_failed()) return;
  reason_ = why;
  try {
    qp_.to_error();  // The device mostly is there already.
  } catch (const error&) {
    // It is gone, then: destroying the queue pair is what remains, and its owner will.
  }
  on_failure();
  failed_.set();
}

void queue_pair_base::abort(const request_outcome& why) noexcept {
  fail(why);
  end_all(why);
}

}  // namespace cordma
