#include "completion_queue_driver.hpp"

#include "queue_pair_base.hpp"
#include "receive_queue.hpp"
#include "send_queue.hpp"
#include "wr_id.hpp"

#include <cordma/queue/shared_receives.hpp>

#include <algorithm>
#include <cstdio>

namespace cordma {
namespace {

unsigned checked_batch(unsigned poll_batch) {
  if (poll_batch >= 1 && poll_batch <= completion_queue_driver::poll_batch_max) return poll_batch;
  char text[80];
  std::snprintf(text, sizeof text, "poll_batch %u is not between 1 and %u", poll_batch,
                completion_queue_driver::poll_batch_max);
  throw error{{.code = errc::limit_exceeded, .call = "completion_queue_driver", .detail = text}};
}

bool uses_channel(completion_mode mode) noexcept {
  return mode == completion_mode::event || mode == completion_mode::adaptive;
}

}  // namespace

completion_queue_driver::completion_queue_driver(cordma::executor& executor, verbs::context& ctx,
                                                 const completion_queue_options& options)
    : executor_{executor},
      mode_{options.mode},
      poll_batch_{checked_batch(options.poll_batch)},
      spin_{options.spin_max},
      channel_{uses_channel(mode_) ? std::make_optional<verbs::completion_channel>(ctx)
                                   : std::nullopt},
      cq_{ctx, options.depth, channel_ ? &*channel_ : nullptr, this},
      doorbells_{executor, options.doorbell_batching && mode_ != completion_mode::manual} {
  add_entries();
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
  const std::size_t place = id.queue_pair() & mask_;
  if (id.is_receive()) {
    receive_queue* const receives = unwatched_receives_[place];
    return receives != nullptr && receives->succeeded(wc);
  }
  send_queue* const sends = unwatched_sends_[place];
  if (sends == nullptr || !sends->oldest_succeeded(wc.wr_id)) return false;
  sends->pump();
  return true;
}

[[gnu::always_inline]] inline void completion_queue_driver::dispatch(const ibv_wc& wc) noexcept {
  if (wc.status != IBV_WC_SUCCESS || !has_succeeded(wc)) [[unlikely]]
    dispatch_any(wc);
}

inline int completion_queue_driver::poll_into(polled& to) noexcept {
  const int n = cq_.poll({to.data(), poll_batch_});
  counters_.polls.add();
  return n;
}

std::size_t completion_queue_driver::reap() noexcept {
  polled some;
  std::size_t reaped = 0;
  while (reaped < completions_per_iteration_max) {
    const int n = poll_into(some);
    if (n < 0) [[unlikely]]
      fail({.code = errc::device_failed, .call = "ibv_poll_cq"});
    if (n <= 0) {
      counters_.empty_polls.add();
      break;
    }
    for (const ibv_wc& wc : std::span{some.data(), std::size_t(n)}) dispatch(wc);
    reaped += std::size_t(n);
    if (unsigned(n) < poll_batch_) break;
  }
  // The queue was empty, so it holds no CQE of a destroyed queue pair.
  if (leaving_ != 0 && reaped < completions_per_iteration_max)
    reserved_ -= std::exchange(leaving_, 0);
  if (reaped == 0) return 0;
  found(reaped);
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
  if (e.key != id.key()) return dispatch_shared(wc);
  if (e.qp != nullptr) e.qp->complete(id.is_receive(), id.sequence(), wc);
}

/// Handles a CQE that may belong to a shared receive; otherwise it is a late one of a destroyed
/// queue pair. `qp_num` can be trusted in a failed CQE, too.
void completion_queue_driver::dispatch_shared(const ibv_wc& wc) noexcept {
  const wr_id id{wc.wr_id};
  if (id.queue_pair() != wr_id::shared) return;
  const auto found = shared_.find(wc.qp_num);
  if (found != shared_.end()) found->second->complete_shared(id.sequence(), wc);
}

bool completion_queue_driver::prepare_wait() noexcept {
  if (mode_ == completion_mode::busy) return false;
  // Adaptive mode reads the clock once the queue ran empty, and then while it stays empty.
  if (mode_ == completion_mode::adaptive && spin_.looks_on(executor_.now())) return false;
  // The system call comes last, so that completed work need not wait for it.
  while (unread_wake_ups_ > 0) {
    --unread_wake_ups_;
    if (!read_event()) return false;
  }
  if (armed_) return true;
  race_point();
  if (const int rc = cq_.arm(); rc != 0) {
    fail({.code = {rc, std::system_category()}, .call = "ibv_req_notify_cq"});
    return true;
  }
  counters_.arms.add();
  armed_ = true;
  race_point();
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
    if (!channel_->get_event()) return true;
  } catch (const error& e) {
    fail({.code = e.code(), .call = "ibv_get_cq_event"});
    return false;
  }
  counters_.events.add();
  armed_ = false;
  cq_.ack_events();
  return true;
}

void completion_queue_driver::fail(const request_outcome& how) noexcept { fail_port(0, how); }

void completion_queue_driver::fail_port(int port, const request_outcome& how) noexcept {
  for (const entry& e : queue_pairs_) {
    if (e.qp == nullptr || (port != 0 && e.qp->verbs().port() != port)) continue;
    e.qp->abort(how);
  }
}

queue_pair_base* completion_queue_driver::find(const ibv_qp* qp) const noexcept {
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

unsigned completion_queue_driver::entries_for(const shared_receives* pool) const noexcept {
  const bool has = pool == nullptr || std::ranges::count(pools_, pool, &pool_entry::pool) > 0;
  return has ? 0 : pool->buffers();
}

std::uint64_t completion_queue_driver::attach(queue_pair_base& qp, unsigned entries,
                                              const shared_receives* pool) {
  // CQEs of destroyed queue pairs still take up the room that those queue pairs gave back.
  reap_all();
  const unsigned needed = entries + entries_for(pool);
  if (needed > room()) {
    char text[200];
    std::snprintf(
        text, sizeof text,
        "%u entries, of the completion queue's %u only %u are free (%u once polled empty): "
        "give it a larger depth or the queue pair less",
        needed, cq_.capacity(), room(), room() + leaving_);
    throw error{{.code = errc::limit_exceeded, .call = "queue_pair", .detail = text}};
  }
  if (free_entries_.empty()) add_entries();
  if (pool != nullptr) attach_shared(qp, *pool);
  const std::uint16_t index = free_entries_.back();
  free_entries_.pop_back();
  queue_pairs_[index].qp = &qp;
  reserved_ += entries;
  return wr_id::base(queue_pairs_[index].key);
}

/// Doubles the table; the index that stands for shared receives stays unused.
void completion_queue_driver::add_entries() {
  const std::size_t before = queue_pairs_.size();
  const std::size_t after = std::max<std::size_t>(2 * before, 1);
  if (before > queue_pairs_max) {
    throw error{{.code = errc::limit_exceeded,
                 .call = "queue_pair",
                 .detail = "65535 queue pairs on one completion queue: make another"}};
  }
  free_entries_.reserve(after);  // Reserve now, so that `detach` cannot fail.
  // `unwatched_sends_` grows first, so that every index of `queue_pairs_` is valid in it.
  unwatched_sends_.resize(after);
  unwatched_receives_.resize(after);
  queue_pairs_.resize(after);
  mask_ = after - 1;
  for (std::size_t i = after; i-- > before;) {
    // The shared index keeps a key that no slot of the table has.
    if (i == wr_id::shared) continue;
    queue_pairs_[i].key = wr_id::first_key(std::uint16_t(i));
    free_entries_.push_back(std::uint16_t(i));
  }
}

void completion_queue_driver::attach_shared(queue_pair_base& qp, const shared_receives& pool) {
  pools_.reserve(pools_.size() + 1);
  shared_.emplace(qp.verbs().num(), &qp);
  const auto known = std::ranges::find(pools_, &pool, &pool_entry::pool);
  if (known != pools_.end()) {
    ++known->queue_pairs;
  } else {
    reserved_ += pool.buffers();
    pools_.push_back({&pool, 1});
  }
}

/// Detaches a queue pair of a pool, whose CQEs have all been reaped.
void completion_queue_driver::detach_shared(std::uint32_t qp_num,
                                            const shared_receives& pool) noexcept {
  shared_.erase(qp_num);
  const auto known = std::ranges::find(pools_, &pool, &pool_entry::pool);
  if (--known->queue_pairs > 0) return;
  pools_.erase(known);
  reserved_ -= pool.buffers();
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

void completion_queue_driver::detach(std::uint64_t wr_id_base, unsigned entries) noexcept {
  const wr_id id{wr_id_base};
  queue_pairs_[id.queue_pair()] = {.qp = nullptr, .key = wr_id::next_key(id.key())};
  set_unwatched(wr_id_base, nullptr, nullptr);
  free_entries_.push_back(id.queue_pair());
  if (mode_ == completion_mode::manual) {
    leaving_ += entries;  // The queue pair's remaining CQEs may not have been reaped.
  } else {
    reserved_ -= entries;  // `attach` reaps before it asks for room.
  }
}

}  // namespace cordma
