#include <cordma/queue/shared_receives.hpp>

#include "base/check_option.hpp"
#include "base/failures.hpp"
#include "callback_queue_pair.hpp"
#include "completion_queue_driver.hpp"
#include "memory/chosen_memory.hpp"
#include "verbs/shared_receive_queue.hpp"
#include "wr_id.hpp"

#include <cordma/base/error.hpp>
#include <cordma/detail/base/assert.hpp>
#include <cordma/detail/base/probe.hpp>

#include <algorithm>
#include <utility>

namespace cordma {
namespace {

/// Buffers start on cache lines.
constexpr std::size_t line = 64;

shared_receives_options checked(const shared_receives_options& o,
                                const verbs::device_limits& limits) {
  check({.wr_max = o.buffers}, limits);
  constexpr const char* options = "shared_receives_options";
  check_option(options, "buffers", o.buffers, 1, shared_receives::buffers_max);
  check_option(options, "buffer_bytes", static_cast<long long>(o.buffer_bytes), 1,
               shared_receives::buffer_bytes_max);
  if (!o.for_messages) check_option(options, "share_min", o.share_min, 1, o.buffers);
  if (o.xrc_domain != nullptr && !o.for_messages) {
    cordma::detail::throw_failure(errc::not_supported, options,
                                  "a pool in an XRC domain knows no connections, so streams cannot "
                                  "use it: set for_messages");
  }
  return o;
}

}  // namespace

// ---- a queue pair's share ----

receive_share::receive_share(shared_receives& pool)
    : pool_{pool}, credit_{pool.is_for_messages() ? pool.buffers() : pool.share_min()} {
  const std::uint32_t promise = pool.is_for_messages() ? 0 : credit_;
  if (pool.promised_ + promise > pool.buffers()) {
    pool.reclaim();  // Frees buffers for the next queue pair.
    cordma::detail::throw_failure(
        errc::limit_exceeded, "shared_receives",
        cordma::detail::detail_text(
            "%u of %u shared buffers are promised to %u queue pairs or kept, and each needs "
            "%u: share more buffers, or close a connection",
            pool.promised_, pool.buffers(), pool.shares_, credit_));
  }
  if (pool.may_lack_some_ && pool.shares_ == 0) pool.renew();
  pool.promised_ += promise;
  ++pool.shares_;
  pool.all_.push_back(*this);
  if (pool.promised_ > pool.grown_max()) pool.reclaim();
}

receive_share::~receive_share() {
  pool_.forget_messages(*this);
  if (receive_holder::held > 0) {
    for (detail::receive_holder*& h : pool_.holders_)
      if (h == this) h = &pool_.orphans_;
  }
  pool_.orphans_.held += receive_holder::held;
  growth_request_.unlink();
  pool_.freed(credit_ - receive_holder::held);
  if (--pool_.shares_ == 0) pool_.forget_scheduler();
  if (!is_all_known_) pool_.may_lack_some_ = true;
}

bool receive_share::try_grow(std::uint32_t by) noexcept {
  if (by > pool_.buffers() || pool_.promised_ + by > pool_.buffers()) return false;
  credit_ += by;
  pool_.promised_ += by;
  pool_.is_worth_asking_ = true;
  return true;
}

void receive_share::belongs_to(callback_queue_pair& of) noexcept {
  qp = &of;
  pool_.scheduler_ = &of.driver().executor();
}

std::uint32_t receive_share::want(std::uint32_t most) noexcept {
  const std::uint32_t room = pool_.grown_max() - std::min(pool_.promised_, pool_.grown_max());
  const std::uint32_t more = std::min(most, room);
  const bool is_enough = more == most || more >= pool_.share_min();
  const bool is_next = pool_.is_retrying_ || pool_.growth_requests_.empty() ||
                       &pool_.growth_requests_.front() == &growth_request_;
  if (is_enough && is_next) {
    growth_request_.unlink();
    return try_grow(more) ? more : 0;
  }
  if (qp != nullptr && !growth_request_.is_linked())
    pool_.growth_requests_.push_back(growth_request_);
  if (is_enough)
    pool_.retry_at({});  // The new share queues behind those that wait.
  else if (!pool_.is_retrying_)
    pool_.reclaim();
  return 0;
}

bool receive_share::try_shrink_to(std::uint32_t credit) noexcept {
  CORDMA_ASSERT(credit >= pool_.share_min(), "a share is never smaller than share_min");
  CORDMA_ASSERT(credit <= credit_, "a share shrinks to what it has at most");
  if (receive_holder::held > credit) return false;
  is_asked_ = false;
  if (credit == credit_) return true;
  pool_.ask_next_ = {};
  pool_.freed(std::exchange(credit_, credit) - credit);
  return true;
}

bool receive_share::take(std::uint32_t number) noexcept {
  if (receive_holder::held == credit_) return false;
  ++receive_holder::held;
  pool_.holders_[number] = this;
  ++pool_.kept_;
  last_used_ = ++pool_.uses_;
  return true;
}

void receive_share::admit(detail::admittance what) noexcept {
  admitted_ = what;
  if (what != detail::admittance::all) return;
  for (std::uint32_t n = early_.oldest; n != detail::arrived_list::none;) {
    const std::uint32_t next = pool_.arrived_[n].next;
    pool_.append(pool_.untaken_messages_, std::exchange(n, next));
    pool_.untaken_.release();
  }
  early_ = {};
}

// ---- the pool ----

shared_receives::attachment::attachment(completion_queue_driver* of, shared_receives& attached)
    : driver{of},
      pool{attached},
      wr_id_base{of == nullptr ? wr_id::of_shared(0) : of->attach(attached) | wr_id::receive_bit} {}

shared_receives::attachment::~attachment() {
  if (driver != nullptr) driver->detach(pool, wr_id_base);
}

shared_receives::shared_receives(verbs::protection_domain& pd, mr_allocator& memory,
                                 const shared_receives_options& options,
                                 completion_queue_driver* driver)
    : timer{&on_retry},
      pd_{pd},
      options_{checked(options, pd.limits())},
      stride_{(options.buffer_bytes + line - 1) & ~(line - 1)},
      memory_{memory.allocate_uninitialized(options.buffers * stride_, line)},
      attachment_{options.xrc_domain != nullptr ? driver : nullptr, *this},
      holders_(options.buffers),
      queue_{filled_queue()},
      arrived_(options.for_messages ? options.buffers : 0) {}

shared_receives::~shared_receives() {
  CORDMA_ASSERT(shares_ == 0, "shared receives destroyed before their queue pairs");
  while (take_untaken()) --orphans_.held;  // The pool is in an XRC domain.
  CORDMA_ASSERT(orphans_.held == lost_, "shared receives destroyed before a message of theirs");
  queue_.destroy();
}

/// Makes a queue and posts every receive that the device is to have.
verbs::shared_receive_queue shared_receives::filled_queue() {
  if (memory_.slice().block()->pd() != pd()) {
    throw error{{.code = errc::wrong_protection_domain, .call = "shared_receives"}};
  }
  if (options_.xrc_domain != nullptr &&
      options_.xrc_domain->native_handle()->context != pd()->context) {
    throw error{{.code = errc::wrong_protection_domain,
                 .call = "shared_receives",
                 .detail = "the XRC domain is of another runtime: open one by the same path here"}};
  }
  CORDMA_ASSERT((options_.xrc_domain != nullptr) == (attachment_.driver != nullptr),
                "a pool in an XRC domain has a driver");
  const verbs::shared_receive_queue_capabilities wanted{.wr_max = options_.buffers};
  verbs::shared_receive_queue queue =
      attachment_.driver == nullptr
          ? verbs::shared_receive_queue{pd_, wanted}
          : verbs::shared_receive_queue{pd_, *options_.xrc_domain, attachment_.driver->verbs(),
                                        wanted};
  for (std::uint32_t n = 0; n < options_.buffers; ++n) {
    if (holders_[n] != nullptr) continue;
    const request_outcome how = post(queue, n);
    if (how.has_failed()) throw error{{.code = how.code, .call = how.call}};
  }
  return queue;
}

request_outcome shared_receives::post(verbs::shared_receive_queue& queue,
                                      std::uint32_t number) noexcept {
  ibv_sge buffer{.addr = reinterpret_cast<std::uint64_t>(bytes(number).data()),
                 .length = std::uint32_t(options_.buffer_bytes),
                 .lkey = memory_.slice().lkey()};
  ibv_recv_wr wr{};
  wr.wr_id = attachment_.wr_id_base | number;
  wr.sg_list = &buffer;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  const request_outcome how = request_outcome::of_errno(queue.post(&wr, &bad), "ibv_post_srq_recv");
  if (!how.has_failed()) posted_.add();
  return how;
}

/// Recreates the queue while there is no queue pair, which recovers lost receives. A queue pair
/// that is destroyed in the middle of a message takes its receive with it, unless the device first
/// completed everything in ERROR. Some devices lose the receive even so, and no device says which
/// one it was.
void shared_receives::renew() noexcept {
  try {
    const auto old = std::uint64_t(std::ranges::count(holders_, nullptr));
    queue_ = filled_queue();
    withdrawn_.add(old);
    may_lack_some_ = false;
  } catch (...) {
    return;  // The old queue still serves; a later call tries again.
  }
  if (limit_ == 0) return;
  try {
    arm_limit();
  } catch (...) {
    limit_reached();  // Waits end early rather than never.
  }
}

/// Asks one share at a time to shrink, each once until it has answered; held buffers cannot be
/// given back. \cost one pass over all shares per `ask_interval`, if something has changed since.
void shared_receives::reclaim() noexcept {
  if (scheduler_ == nullptr || !is_worth_asking_) return;
  const time_point now = scheduler_->now();
  if (now < ask_next_) return retry_at(ask_next_);
  ask_next_ = detail::after(now, ask_interval);
  const receive_share* const wanting =
      growth_requests_.has_one() ? &growth_requests_.front().of : nullptr;
  receive_share* idle = nullptr;
  is_worth_asking_ = false;
  all_.for_each([&](receive_share& s) {
    const bool has_some = s.credit_ > share_min() + s.held() && !s.is_asked_ && s.qp != nullptr &&
                          !s.qp->has_failed();
    is_worth_asking_ |= has_some;
    if (!has_some || &s == wanting) return;
    if (idle == nullptr || s.last_used_ < idle->last_used_) idle = &s;
  });
  if (idle == nullptr) return;
  retry_at(ask_next_);  // Retry if the share does not answer.
  idle->is_asked_ = true;
  if (idle->qp->handler_ != nullptr) idle->qp->handler_->on_shrink_wanted();
}

void shared_receives::retry_at(time_point when) noexcept {
  if (growth_requests_.empty() || (is_armed() && retry_at_ <= when)) return;
  retry_at_ = when;
  scheduler_->rearm(*this, when);
}

/// Notifies each share once, in the order in which they wanted more.
void shared_receives::on_retry(timer& self) noexcept {
  auto& pool = static_cast<shared_receives&>(self);
  intrusive_list<receive_share::growth_request> now;
  now.splice_back(pool.growth_requests_);
  pool.is_retrying_ = true;
  while (!now.empty()) {
    message_handler* const handler = now.pop_front().of.qp->handler_;
    if (handler != nullptr) handler->on_growth_possible();
  }
  pool.is_retrying_ = false;
  if (!pool.growth_requests_.empty()) pool.reclaim();
}

void shared_receives::give_back(std::uint32_t number) noexcept {
  CORDMA_ASSERT(holders_[number] != nullptr, "a shared buffer was given back twice");
  const request_outcome how = post(queue_, number);
  if (how.has_failed()) return lose(number, how);
  holder& h = *std::exchange(holders_[number], nullptr);
  --kept_;
  --h.held;
  if (&h == &orphans_) return freed(1);
  is_worth_asking_ = true;
  if (!growth_requests_.empty()) [[unlikely]]
    retry_at(ask_next_);
}

void shared_receives::put_back(std::uint32_t number) noexcept {
  const request_outcome how = post(queue_, number);
  if (!how.has_failed()) return;
  holders_[number] = &orphans_;
  ++kept_;
  ++orphans_.held;
  ++promised_;
  lose(number, how);
}

// ---- plain messages ----

void shared_receives::append(arrived_list& to, std::uint32_t number) noexcept {
  arrived_[number].next = arrived_list::none;
  (to.oldest == arrived_list::none ? to.oldest : arrived_[to.newest].next) = number;
  to.newest = number;
}

void shared_receives::note_arrival(std::uint32_t number, const ibv_wc& wc) noexcept {
  arrived& a = arrived_[number];
  a = {.qpn = wc.qp_num,
       .size_bytes = wc.byte_len,
       .immediate = std::nullopt,
       .is_write = wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM,
       .next = arrived_list::none};
  if ((wc.wc_flags & IBV_WC_WITH_IMM) != 0) a.immediate = be32toh(wc.imm_data);
}

void shared_receives::deliver(receive_share& of, std::uint32_t number, const ibv_wc& wc) noexcept {
  note_arrival(number, wc);
  const bool is_early = of.admitted() != detail::admittance::all;
  append(is_early ? of.early_ : untaken_messages_, number);
  if (!is_early) untaken_.release();
  check_limit();
}

void shared_receives::complete(std::uint32_t number, const ibv_wc& wc) noexcept {
  transfer_tally& tally = attachment_.driver->tally();
  CORDMA_PROBE5(complete, wc.qp_num, unsigned(request_kind::receive), number, wc.status,
                wc.byte_len);
  if (wc.status != IBV_WC_SUCCESS) {
    tally.failed(request_kind::receive);
    return put_back(number);
  }
  tally.completed(request_kind::receive);
  holders_[number] = &orphans_;
  ++orphans_.held;
  ++kept_;
  note_arrival(number, wc);
  append(untaken_messages_, number);
  untaken_.release();
  check_limit();
}

void shared_receives::fail(const request_outcome& why) noexcept {
  failure how{.code = why.code, .call = why.call};
  how.detail = cordma::detail::detail_text(
      "receive queue %u gets no more messages: make another runtime", num());
  if (!untaken_.is_closed()) untaken_.close(how);
  if (limit_ != 0) limit_reached();
}

std::optional<std::uint32_t> shared_receives::take_untaken() noexcept {
  std::uint32_t& oldest = untaken_messages_.oldest;
  if (oldest == arrived_list::none) return std::nullopt;
  return std::exchange(oldest, arrived_[oldest].next);
}

std::optional<shared_receives::message> shared_receives::take_oldest() noexcept {
  const std::optional<std::uint32_t> number = take_untaken();
  if (!number) return std::nullopt;
  const arrived& a = arrived_[*number];
  message m;
  m.pool_ = this;
  m.number_ = *number;
  m.qpn_ = a.qpn;
  m.size_bytes_ = a.size_bytes;
  m.immediate_ = a.immediate;
  m.is_write_ = a.is_write;
  return m;
}

task<shared_receives::message> shared_receives::next_message() {
  if (!is_for_messages()) {
    cordma::detail::throw_failure(errc::not_supported, "shared_receives",
                                  "the pool is for streams: set "
                                  "shared_receives_options::for_messages");
  }
  const environment env = co_await current_environment();
  for (;;) {
    co_await untaken_.acquire();
    // A stopped wait takes no message, even if the permit came first.
    if (env.stop.stop_requested()) {
      untaken_.release();
      throw cancelled{};
    }
    // The message of a permit has gone if its queue pair was destroyed in between.
    if (std::optional<message> m = take_oldest()) co_return std::move(*m);
  }
}

void shared_receives::copy(const message& from, const local_mr_slice& chosen) const {
  using namespace cordma::detail;
  copy_into(part_to_fill(chosen, from.size_bytes(), pd(), "next_message_into"),
            from.payload().bytes());
}

void shared_receives::leave(message&& untaken) noexcept {
  const std::uint32_t number = untaken.number_;
  const bool has_gone = attachment_.driver == nullptr && holders_[number] == &orphans_;
  if (has_gone) return untaken.give_back();
  untaken.pool_ = nullptr;
  arrived_list& list = untaken_messages_;
  if (list.oldest == arrived_list::none) list.newest = number;
  arrived_[number].next = std::exchange(list.oldest, number);
  untaken_.release();
}

void shared_receives::forget_messages(receive_share& of) noexcept {
  holder& owner = of;
  const auto forget = [&](std::uint32_t number) {
    holders_[number] = nullptr;
    --kept_;
    --owner.held;
    put_back(number);
  };
  std::uint32_t n = std::exchange(of.early_, {}).oldest;
  while (n != arrived_list::none) forget(std::exchange(n, arrived_[n].next));
  n = std::exchange(untaken_messages_, {}).oldest;
  while (n != arrived_list::none) {
    const std::uint32_t number = std::exchange(n, arrived_[n].next);
    if (holders_[number] != &owner) {
      append(untaken_messages_, number);
      continue;
    }
    static_cast<void>(untaken_.try_acquire());
    forget(number);
  }
}

task<> shared_receives::runs_low(std::uint32_t limit) {
  check_option("shared_receives", "limit", limit, 1, options_.buffers);
  limit_reached_.reset();
  limit_ = limit;
  arm_limit();
  co_await limit_reached_.wait();
}

void shared_receives::arm_limit() {
  queue_.arm_limit(limit_);
  check_limit();
}

void shared_receives::limit_reached() noexcept {
  limit_ = 0;
  limit_reached_.set();
}

shared_receives::message& shared_receives::message::operator=(message&& other) noexcept {
  if (this == &other) return *this;
  give_back();
  pool_ = std::exchange(other.pool_, nullptr);
  number_ = other.number_;
  qpn_ = other.qpn_;
  size_bytes_ = other.size_bytes_;
  immediate_ = other.immediate_;
  is_write_ = other.is_write_;
  return *this;
}

const_local_mr_slice shared_receives::message::payload() const {
  if (pool_ == nullptr || is_write_) return {};
  return pool_->slice(number_, 0, size_bytes_);
}

void shared_receives::message::give_back() noexcept {
  if (pool_ != nullptr) std::exchange(pool_, nullptr)->give_back(number_);
}

/// Leaves the buffer held, with its credit: the buffers that others were promised exist.
void shared_receives::lose(std::uint32_t number, const request_outcome& why) noexcept {
  ++lost_;
  if (callback_queue_pair* const qp = holders_[number]->qp) qp->abort(why);
}

}  // namespace cordma
