#include "queue_pair_base.hpp"

#include "wr_id.hpp"

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
  return std::make_unique<receive_share>(*pool);
}

}  // namespace

queue_pair_base::queue_pair_base(completion_queue_driver& driver, verbs::protection_domain& pd,
                                 const verbs::queue_pair_capabilities& wanted,
                                 shared_receives* pool)
    : driver_{driver},
      share_{share_of(pool, pd)},
      qp_{pd,     driver.verbs(), driver.verbs(),
          wanted, nullptr,        pool != nullptr ? &pool->verbs() : nullptr},
      num_{qp_.num()},
      entries_{qp_.capabilities().send_wr_max + qp_.capabilities().recv_wr_max},
      wr_id_base_{driver.attach(*this, entries_, pool)} {
  if (share_) share_->belongs_to(*this);
}

queue_pair_base::~queue_pair_base() {
  if (share_) driver_.detach_shared(num_, share_->pool());
  driver_.detach(wr_id_base_, entries_);
  failed_.set();
  last_receive_.set();
}

std::uint64_t queue_pair_base::receive_id_base() const noexcept {
  return wr_id_base_ | wr_id::receive_bit;
}

/// The request that failed has ended with its own status, those behind it will be flushed one by
/// one.
void queue_pair_base::fail(const request_outcome& why) noexcept {
  fail(why, {.code = wc_errc::flushed, .call = "post_send"});
}

void queue_pair_base::fail(const request_outcome& why, const request_outcome& unposted) noexcept {
  if (has_failed()) return;
  reason_ = why;
  try {
    qp_.to_error();  // The device mostly is there already.
  } catch (const error&) {
    // It is gone, then: destroying the queue pair is what remains, and its owner will.
  }
  on_failure(unposted);
  failed_.set();
}

void queue_pair_base::last_receive_taken(const request_outcome& why) noexcept {
  if (!share_) return abort(why);  // Of one without it has no meaning.
  fail(why);
  share_->all_is_known();
  last_receive_.set();
}

/// In ERROR the device gives back the receives that it took from the pool. Some remove a queue
/// pair's entries from the completion queue when they destroy it, and some leave them there.
void queue_pair_base::destroy_verbs() noexcept {
  if (share_) {
    fail({.code = errc::closed, .call = "close"});
    driver_.reap_to_the_end();
    driver_.ignore_requests(wr_id_base_);
  }
  qp_.destroy();
  if (share_) driver_.reap_to_the_end();
}

void queue_pair_base::abort(const request_outcome& why) noexcept {
  fail(why, why);
  end_all(why);
}

}  // namespace cordma
