#include "completion_queue_driver.hpp"

#include "base/caught.hpp"
#include "base/check_option.hpp"
#include "base/failures.hpp"
#include "callback_queue_pair.hpp"
#include "receive_queue.hpp"
#include "send_queue.hpp"
#include "wr_id.hpp"

#include <cordma/queue/shared_receives.hpp>

#include <algorithm>
#include <span>
#include <utility>

namespace cordma {
namespace {

unsigned checked_batch(unsigned poll_batch) {
  check_option("completion_queue_options", "poll_batch", poll_batch, 1,
               completion_queue_driver::poll_batch_max);
  return poll_batch;
}

bool uses_channel(completion_mode mode) noexcept {
  return mode == completion_mode::event || mode == completion_mode::adaptive;
}

}  // namespace

completion_queue_driver::completion_queue_driver(cordma::executor& executor, verbs::context& ctx,
                                                 const completion_queue_options& options,
                                                 const verbs::protection_domain* pd)
    : executor_{executor},
      mode_{options.mode},
      poll_batch_{checked_batch(options.poll_batch)},
      spin_{options.spin_max},
      channel_{uses_channel(mode_) ? std::make_optional<verbs::completion_channel>(ctx)
                                   : std::nullopt},
      cq_{ctx, options.depth, channel_ ? &*channel_ : nullptr, 0, pd},
      doorbells_{executor, options.doorbell_batching && mode_ != completion_mode::manual} {
  grow();
  if (channel_) watch_.emplace(*this);
  if (mode_ != completion_mode::manual) executor_.add(*this);
}

completion_queue_driver::~completion_queue_driver() {
  CORDMA_ASSERT(reserved_ == leaving_, "completion queue destroyed before its queue pairs");
  if (channel_) static_cast<void>(read_event());
}

[[gnu::always_inline]] inline bool completion_queue_driver::has_succeeded(
    const ibv_wc& wc) noexcept {
  const wr_id id{wc.wr_id};
  const std::size_t index = id.queue_pair() & mask_;
  if (id.is_receive()) {
    receive_queue* const receives = unwatched_receives_[index];
    return receives != nullptr && receives->succeeded(wc);
  }
  send_queue* const sends = unwatched_sends_[index];
  if (sends == nullptr || !sends->oldest_succeeded(wc.wr_id)) return false;
  sends->pump();
  return true;
}

std::size_t completion_queue_driver::reap() noexcept {
  CORDMA_ASSERT(!is_reaping_, "a completion queue is reaped in the middle of a reap");
  std::array<ibv_wc, poll_batch_max> some;
  std::size_t reaped = 0;
  while (reaped < completions_per_iteration_max) {
    const int n = cq_.poll({some.data(), poll_batch_});
    counters_.polls.add();
    if (n < 0) [[unlikely]]
      fail({.code = errc::device_failed, .call = "ibv_poll_cq"});
    if (n <= 0) {
      counters_.empty_polls.add();
      break;
    }
    is_reaping_ = true;
    for (const ibv_wc& wc : std::span{some.data(), std::size_t(n)}) {
      if (wc.status != IBV_WC_SUCCESS || !has_succeeded(wc)) [[unlikely]]
        dispatch_any(wc);
    }
    is_reaping_ = false;
    reaped += std::size_t(n);
    if (unsigned(n) < poll_batch_) break;
  }
  // The queue was empty, so it holds no CQE of a destroyed queue pair.
  if (leaving_ != 0 && reaped < completions_per_iteration_max)
    reserved_ -= std::exchange(leaving_, 0);
  if (reaped == 0) return 0;
  counters_.completions.add(reaped);
  if (!spin_.found()) [[unlikely]]
    spin_.woke(executor_.now());
  return reaped;
}

completion_counters completion_queue_driver::counters() const noexcept {
  return {.polls = counters_.polls.value(),
          .empty_polls = counters_.empty_polls.value(),
          .completions = counters_.completions.value(),
          .wake_ups = counters_.wake_ups.value(),
          .events = counters_.events.value(),
          .arms = counters_.arms.value()};
}

void completion_queue_driver::reap_all() noexcept {
  if (mode_ != completion_mode::manual) reap_to_the_end();
}

void completion_queue_driver::reap_to_the_end() noexcept {
  for (std::size_t reaped = 0; reaped < cq_.capacity();) {
    const std::size_t n = reap();
    if (n == 0) return;
    reaped += n;
  }
}

void completion_queue_driver::dispatch_any(const ibv_wc& wc) noexcept {
  const wr_id id{wc.wr_id};
  const entry& e = queue_pairs_[id.queue_pair() & mask_];
  if (e.key == id.key()) {
    if (e.qp != nullptr)
      e.qp->complete(id.is_receive(), id.sequence(), wc);
    else if (e.pool != nullptr)
      e.pool->complete(id.sequence(), wc);
  } else if (id.queue_pair() == wr_id::shared) {
    // `qp_num` can be trusted in a failed CQE, too.
    const auto found = shared_.find(wc.qp_num);
    if (found != shared_.end()) found->second->complete_shared(id.sequence(), wc);
  }
}

bool completion_queue_driver::prepare_wait() noexcept {
  if (mode_ == completion_mode::busy) return false;
  // Adaptive mode reads the clock once the queue ran empty, and then while it stays empty.
  if (mode_ == completion_mode::adaptive && spin_.should_spin(executor_.now())) return false;
  // The system call comes last, so that completed work need not wait for it.
  while (unread_wake_ups_ > 0) {
    --unread_wake_ups_;
    if (!read_event()) return false;
  }
  if (armed_) return true;
  if (const int rc = cq_.arm(); rc != 0) {
    fail(request_outcome::of_errno(rc, "ibv_req_notify_cq"));
    return true;
  }
  counters_.arms.add();
  armed_ = true;
  return reap() == 0;
}

void completion_queue_driver::on_channel(fd_watch& watch) noexcept {
  completion_queue_driver& driver = static_cast<channel_watch&>(watch).driver;
  driver.counters_.wake_ups.add();
  ++driver.unread_wake_ups_;
  if (!watch.is_watching()) {
    driver.fail({.code = errc::device_failed, .call = "poll completion channel"});
  }
  driver.reap();
}

/// Reads the channel's event. One arming raises one event, and nobody else arms, so a second read
/// would find none. A further event would still raise its own edge, and each event read leads to a
/// new arming. Returns false if the channel cannot be read; everything has failed then.
bool completion_queue_driver::read_event() noexcept {
  try {
    if (channel_->get_event() == nullptr) return true;
  } catch (...) {
    fail({.code = caught("ibv_get_cq_event").code, .call = "ibv_get_cq_event"});
    return false;
  }
  counters_.events.add();
  armed_ = false;
  cq_.ack_events();
  return true;
}

void completion_queue_driver::fail(const request_outcome& how, int port) noexcept {
  for (const entry& e : queue_pairs_) {
    if (e.pool != nullptr && port == 0) e.pool->fail(how);
    if (e.qp == nullptr || (port != 0 && e.qp->verbs().port() != port)) continue;
    e.qp->abort(how);
  }
}

void completion_queue_driver::fail_one(std::uint64_t wr_id_base,
                                       const request_outcome& why) noexcept {
  if (auto* const qp = queue_pairs_[wr_id{wr_id_base}.queue_pair()].qp) qp->fail(why);
}

callback_queue_pair* completion_queue_driver::find(const ibv_qp* qp) const noexcept {
  for (const entry& e : queue_pairs_) {
    if (e.qp != nullptr && e.qp->verbs().native_handle() == qp) return e.qp;
  }
  return nullptr;
}

std::shared_ptr<held_by_queues> completion_queue_driver::held_of(const ibv_pd* pd) {
  std::erase_if(held_, [](const auto& known) { return known.second.expired(); });
  std::weak_ptr<held_by_queues>& known = held_[pd];
  std::shared_ptr<held_by_queues> held = known.lock();
  if (held == nullptr) known = held = std::make_shared<held_by_queues>(pd);
  return held;
}

unsigned completion_queue_driver::cqes_for(const shared_receives* pool) const noexcept {
  if (pool == nullptr) return 0;
  return pools_.contains(pool) ? 0 : pool->buffers();
}

std::uint64_t completion_queue_driver::attach(callback_queue_pair& qp) {
  // CQEs of destroyed queue pairs still take up the room that those queue pairs gave back.
  reap_all();
  const shared_receives* const pool = qp.pool();
  const unsigned needed = qp.cqes_max() + cqes_for(pool);
  check_room(needed, "queue_pair");
  if (free_indices_.empty()) grow();
  if (pool != nullptr) {
    unsigned& queue_pairs = pools_[pool];
    shared_.emplace(qp.verbs().num(), &qp);
    ++queue_pairs;
  }
  reserved_ += needed;
  entry& taken = take_entry();
  taken.qp = &qp;
  return wr_id::base(taken.key);
}

std::uint64_t completion_queue_driver::attach(shared_receives& pool) {
  reap_all();
  check_room(pool.buffers(), "shared_receives");
  if (free_indices_.empty()) grow();
  reserved_ += pool.buffers();
  entry& taken = take_entry();
  taken.pool = &pool;
  return wr_id::base(taken.key);
}

void completion_queue_driver::check_room(unsigned needed, const char* call) const {
  if (needed <= room()) return;
  cordma::detail::throw_failure(
      errc::limit_exceeded, call,
      cordma::detail::detail_text(
          "%u entries, of the completion queue's %u only %u are free (%u once polled empty): "
          "give it a larger depth or the queue pair less",
          needed, cq_.capacity(), room(), room() + leaving_));
}

completion_queue_driver::entry& completion_queue_driver::take_entry() noexcept {
  entry& taken = queue_pairs_[free_indices_.back()];
  free_indices_.pop_back();
  return taken;
}

/// Doubles the table; the index that stands for shared receives stays unused.
void completion_queue_driver::grow() {
  const std::size_t before = queue_pairs_.size();
  const std::size_t after = std::max<std::size_t>(2 * before, 1);
  if (before > queue_pairs_max) {
    throw error{{.code = errc::limit_exceeded,
                 .call = "queue_pair",
                 .detail = "65535 queue pairs on one completion queue: make another"}};
  }
  free_indices_.reserve(after);  // Reserve now, so that `detach` cannot fail.
  // `unwatched_sends_` grows first, so that every index of `queue_pairs_` is valid in it.
  unwatched_sends_.resize(after);
  unwatched_receives_.resize(after);
  queue_pairs_.resize(after);
  mask_ = after - 1;
  for (std::size_t i = after; i-- > before;) {
    // The shared index keeps a key that no slot of the table has.
    if (i == wr_id::shared) continue;
    queue_pairs_[i].key = wr_id::first_key(std::uint16_t(i));
    free_indices_.push_back(std::uint16_t(i));
  }
}

void completion_queue_driver::ignore_requests(std::uint64_t wr_id_base) noexcept {
  set_unwatched(wr_id_base, nullptr, nullptr);
  queue_pairs_[wr_id{wr_id_base}.queue_pair()].qp = nullptr;
}

void completion_queue_driver::set_unwatched(std::uint64_t wr_id_base, send_queue* sends,
                                            receive_queue* receives) noexcept {
  const std::uint16_t index = wr_id{wr_id_base}.queue_pair();
  unwatched_sends_[index] = sends;
  unwatched_receives_[index] = receives;
}

void completion_queue_driver::detach(const callback_queue_pair& qp,
                                     std::uint64_t wr_id_base) noexcept {
  if (const shared_receives* const pool = qp.pool()) {
    shared_.erase(qp.sends().num());  // The verbs object is gone.
    if (const auto known = pools_.find(pool); --known->second == 0) {
      pools_.erase(known);
      reserved_ -= pool->buffers();
    }
  }
  free_entry(wr_id_base);
  give_up(qp.cqes_max());
}

void completion_queue_driver::detach(const shared_receives& pool,
                                     std::uint64_t wr_id_base) noexcept {
  free_entry(wr_id_base);
  give_up(pool.buffers());
}

void completion_queue_driver::free_entry(std::uint64_t wr_id_base) noexcept {
  const wr_id id{wr_id_base};
  queue_pairs_[id.queue_pair()] = {.key = wr_id::next_key(id.key())};
  set_unwatched(wr_id_base, nullptr, nullptr);
  free_indices_.push_back(id.queue_pair());
}

void completion_queue_driver::give_up(unsigned cqes) noexcept {
  if (mode_ == completion_mode::manual) {
    leaving_ += cqes;  // The remaining CQEs may not have been reaped.
  } else {
    reserved_ -= cqes;  // `attach` reaps before it asks for room.
  }
}

}  // namespace cordma
