#include "borrower.hpp"

#include <cordma/coro/with_timeout.hpp>

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cstdio>

namespace cordma {

using agent_protocol::kind;
using std::chrono::duration_cast;
using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

using detail::holding;

constexpr std::size_t alignment_max = mr_allocator::alignment_max;

[[noreturn]] void fail_frame(const char* what) {
  throw error{{.code = errc::bad_frame, .call = "agent", .detail = what}};
}
[[noreturn]] void fail_request(errc why, const char* detail,
                               const char* call = "request_remote_mr") {
  throw error{{.code = why, .call = call, .detail = detail}};
}

[[noreturn]] void fail_late(const char* call, milliseconds limit) {
  char text[80];
  std::snprintf(text, sizeof text, "the peer's agent did not answer within %lld ms",
                static_cast<long long>(limit.count()));
  throw error{{.code = errc::timed_out, .call = call, .detail = text}};
}

/// What is on its way back, or is back, says why.
[[noreturn]] void fail_ended(const holding& h, const char* call) {
  const errc why = h.block->refusal(h.block->generation(), nullptr, verbs::access::none);
  throw error{{.code = why, .call = call}};
}

[[noreturn]] void fail_inline(const char* call) {
  fail_request(errc::not_supported, "what a message lends ends with its answer", call);
}

/// What a refusal may say: anything else would let a peer pass off an error of ours.
failure failure_of(const agent_protocol::frame& refused) noexcept {
  const errc said{int(refused.status)};
  failure f{.code = errc::refused, .call = "agent", .detail = "the peer could not"};
  switch (said) {
    case errc::access_denied:
      f.detail = refused.length == 0
                     ? "the peer lends nothing: set bytes_max of its lending_policy "
                       "(connection_options::agent.lending), which is 0 by default"
                     : "the peer's lending_policy::access_max leaves nothing of the access";
      break;
    case errc::limit_exceeded: {
      char text[120];
      std::snprintf(text, sizeof text,
                    "the peer's lending_policy: bytes_max, %" PRIu64
                    " at once, or one of its numbers of leases",
                    refused.length);
      f.detail = text;
      break;
    }
    case errc::not_supported: f.detail = "the peer's device cannot lend"; break;
    case errc::lease_ended: f.detail = "the owner has ended it"; break;
    default: return f;
  }
  f.code = said;
  return f;
}

}  // namespace

detail::holding::holding(borrower& b) noexcept
    : waiter{&borrower::on_flushed},
      timer{&borrower::on_timer},
      home{&b},
      answered{b.context_.home},
      flush_ended{b.context_.home} {
  notice.of = this;
}

detail::holding::~holding() {
  if (block != nullptr) block->let_go();
}

borrower::borrower(agent_context& context, remote_mr_slice flush_word)
    : context_{context},
      flush_word_{flush_word},
      landing_{context.memory.allocate_zeroed(1)},
      tags_{holdings_max},
      arrival_{context.home} {}

borrower::~borrower() {
  fail({.code = errc::closed, .call = "close"});
  while (!free_.empty()) delete &free_.pop_front();
}

holding& borrower::make(bool is_inline) {
  const bool is_again = is_inline && !free_.empty();
  std::unique_ptr<holding> made{is_again ? &free_.pop_front() : new holding{*this}};
  made->is_inline = is_inline;
  made->block = &lease_block::make(&context_.data.sends());
  made->tag = tags_.insert(*made);
  if (made->tag == 0) fail_request(errc::limit_exceeded, "65536 leases are open with this peer");
  return *made.release();
}

duration borrower::margin_of(duration lease) const noexcept {
  const agent_options& o = context_.options;
  return std::max<duration>(lease / 100 * o.operation_margin_percent, o.operation_margin_min);
}

// ---- asking
// --------------------------------------------------------------------------------------

void borrower::ask(holding& h, const frame& f) noexcept {
  h.is_asking = true;
  h.asked = f;
  h.asked_at = now();  // Of the lease: it ends here before it ends there, whatever the way takes.
  h.refusal.reset();
  h.answered.reset();
  h.question.frame = f;
  context_.channel.send(h.question);
}

/// Whose question the frame answers.
holding& borrower::answered(const frame& f, kind question) {
  holding* const h = tags_.find(f.tag);
  if (h == nullptr || !h->is_asking || h->question.is_linked()) fail_frame("answers no question");
  if (question != kind::refused && h->asked.kind != question)
    fail_frame("answers another question");
  h->is_asking = false;
  return *h;
}

void borrower::check_request(std::size_t size_bytes, const remote_mr_request& o) const {
  if (failed_) throw error{*failed_};
  if (size_bytes == 0) fail_request(errc::out_of_range, "0 bytes: ask for at least 1");
  if (!std::has_single_bit(o.alignment) || o.alignment > alignment_max)
    fail_request(errc::out_of_range, "an alignment is a power of two, up to 2 MiB");
  if (o.access == verbs::access::none || !verbs::allows(lendable_access, o.access))
    fail_request(errc::access_denied, "ask for remote_read, remote_write, remote_atomic");
  if (o.lease > std::chrono::hours{24} || o.lease <= margin_of(o.lease))
    fail_request(errc::out_of_range,
                 "a lease is longer than its operation margin, and at most 24 h");
}

task<remote_mr> borrower::request(std::size_t size_bytes, remote_mr_request options) {
  check_request(size_bytes, options);
  const milliseconds limit = options.timeout.value_or(context_.options.request_timeout);
  // What was dropped in this turn goes back behind the request, and may be what is missing.
  for (bool may_ask_again = context_.channel.has_put_off();; may_ask_again = false) {
    holding& h = make();
    h.has_handle = true;
    remote_mr memory{h};
    holdings_.push_back(h);
    ask(h, {.kind = kind::request,
            .tag = h.tag,
            .length = size_bytes,
            .access = options.access,
            .duration = duration_cast<microseconds>(options.lease),
            .alignment_log2 = std::uint8_t(std::countr_zero(options.alignment))});
    if (limit <= milliseconds{0}) fail_late("request_remote_mr", limit);
    context_.home.rearm(h, after(h.asked_at, limit));
    co_await h.answered.wait();
    if (h.refusal) {
      if (may_ask_again && h.refusal->code == errc::limit_exceeded) continue;
      throw error{*h.refusal};
    }
    if (h.state == holding::stage::asking) fail_late("request_remote_mr", limit);
    co_return memory;
  }
}

void borrower::check_terms(const frame& asked, const frame& granted) const {
  if (granted.length != asked.length) fail_frame("grants another length");
  if (!verbs::allows(asked.access, granted.access)) fail_frame("grants more access than was asked");
  if (granted.duration > asked.duration) fail_frame("grants a longer lease than was asked");
  if (granted.address % (std::uint64_t{1} << asked.alignment_log2) != 0)
    fail_frame("grants another alignment");
}

void borrower::take_terms(holding& h, const frame& f) noexcept {
  h.lease = f.lease;
  h.isolation = isolation{f.isolation};
  h.block->grant(f.access, {});
  h.remote = {f.address, std::size_t(f.length), f.rkey, *h.block};
  ++context_.counters.borrowed;
}

void borrower::open(holding& h, time_point since) noexcept {
  const duration lease = h.asked.duration;
  h.state = holding::stage::open;
  h.block->grant(h.block->access(), since + lease - margin_of(lease));
  context_.home.rearm(h, h.block->usable_until());
}

void borrower::on_granted(const frame& f) {
  holding& h = answered(f, kind::request);
  check_terms(h.asked, f);
  take_terms(h, f);
  h.asked.duration = f.duration;
  open(h, h.asked_at);
  if (h.has_handle)
    h.answered.set();
  else
    give_back(h);  // Nobody waited for it any longer.
}

void borrower::on_refused(const frame& f) {
  holding& h = answered(f, kind::refused);
  h.refusal = failure_of(f);
  const bool is_over = h.asked.kind != kind::renew || h.state == holding::stage::returned;
  if (!is_over) return h.answered.set();
  forget(h);
}

void borrower::on_renewed(const frame& f) {
  holding& h = answered(f, kind::renew);
  if (f.duration > h.asked.duration) fail_frame("grants a longer lease than was asked");
  if (h.state == holding::stage::returned) return forget(h);
  const duration lease = f.duration;
  const time_point until = after(h.asked_at, lease - margin_of(lease));
  if (h.state == holding::stage::open && until > h.block->usable_until()) {
    h.block->grant(h.block->access(), until);
    context_.home.rearm(h, until);
  }
  h.answered.set();
}

task<> borrower::renew(holding& h, milliseconds lease) {
  if (lease > std::chrono::hours{24} || lease <= margin_of(lease))
    fail_request(errc::out_of_range,
                 "a lease is longer than its operation margin, and at most 24 h", "renew");
  if (h.is_inline) fail_inline("renew");
  const duration limit = context_.options.request_timeout;
  scheduler* const home = &context_.home;
  while (h.is_asking) co_await with_timeout(h.answered.wait(), limit, home);
  if (h.home == nullptr) fail_ended(h, "renew");  // And we may be gone.
  if (const errc why = refusal_of(h); why != errc{}) throw error{{.code = why, .call = "renew"}};
  ask(h, {.kind = kind::renew,
          .tag = h.tag,
          .lease = h.lease,
          .duration = duration_cast<microseconds>(lease)});
  co_await with_timeout(h.answered.wait(), limit, home);
  if (h.refusal) throw error{*h.refusal};
  if (h.state != holding::stage::open) fail_ended(h, "renew");
}

// ---- what is offered
// -----------------------------------------------------------------------------

/// Its lease runs.
void borrower::accept(holding& h) noexcept {
  h.has_handle = true;
  open(h, now());
  h.notice.frame = {.kind = kind::accept, .tag = h.tag, .lease = h.lease};
  context_.channel.send(h.notice);
}

void borrower::on_offer(const frame& f, unsigned slot) {
  if (offer_count_ == context_.options.offers_max)
    return context_.channel.reply(slot, {.kind = kind::give_back, .lease = f.lease});
  holding& h = make();
  take_terms(h, f);
  h.asked.duration = f.duration;
  h.state = holding::stage::offered;
  h.is_offer = true;
  offers_.push_back(h);
  ++offer_count_;
  context_.channel.release(slot);
  arrival_.set();
}

task<remote_mr> borrower::receive() {
  while (offers_.empty()) {
    if (failed_) throw error{*failed_};
    arrival_.reset();
    co_await arrival_.wait();
  }
  const environment env = co_await current_environment();
  if (env.stop.stop_requested()) throw cancelled{};  // As in `lender::receive`.
  holding& h = offers_.pop_front();
  h.is_offer = false;
  --offer_count_;
  holdings_.push_back(h);
  accept(h);
  co_return remote_mr{h};
}

void borrower::on_revoke(const frame& f) noexcept {
  if (f.tag != 0) {
    holding* const h = tags_.find(f.tag);
    if (h != nullptr && h->lease == f.lease) revoke(*h);
    return;
  }
  // When it was sent, the owner had not heard that the offer was accepted: perhaps it was not.
  holding* found = nullptr;
  tags_.for_each([&](holding& h) {
    if (h.lease == f.lease) found = &h;
  });
  if (found != nullptr) revoke(*found);
}

void borrower::revoke(holding& h) noexcept {
  if (h.state == holding::stage::offered) {
    h.list_hook<holding>::unlink();
    holdings_.push_back(h);
    return send_return(h);
  }
  if (h.state == holding::stage::open) give_back(h);
}

// ---- what a message carries
// ---------------------------------------------------------------------

/// There until `end_along`, also when it was dropped before.
remote_mr borrower::borrow_inline(const loan_terms& terms, verbs::access access, time_point until,
                                  std::uint64_t& number) {
  if (failed_) throw error{*failed_};
  holding& h = make(true);
  h.has_handle = true;
  h.state = holding::stage::open;
  h.isolation = terms.isolation;
  h.block->grant(access, until);
  h.remote = {terms.address, std::size_t(terms.length), terms.rkey, *h.block};
  ++context_.counters.borrowed;
  holdings_.push_back(h);
  number = h.tag;
  return remote_mr{h};
}

bool borrower::end_along(std::uint64_t number) noexcept {
  holding* const h = tags_.find(number);
  if (h == nullptr) return false;
  const bool is_in_use = h->block->is_in_use();
  forget(*h);
  return is_in_use;
}

// ---- giving back
// ---------------------------------------------------------------------------------

void borrower::drop(holding& h) noexcept {
  h.has_handle = false;
  switch (h.state) {
    case holding::stage::asking:
      // When the frame is gone, its answer comes, and what it grants goes back.
      if (h.question.is_linked()) forget(h);
      return;
    case holding::stage::open:
      if (h.is_inline) return h.block->refuse(errc::lease_ended);
      return give_back(h);
    case holding::stage::flushing: h.is_for_hand_over = false; return;
    case holding::stage::flushed:
      if (!h.question.is_linked()) return;
      h.question.unlink();
      h.is_asking = false;
      return send_return(h);
    case holding::stage::ended: delete &h; return;
    case holding::stage::offered:
    case holding::stage::returning:
    case holding::stage::returned: return;
  }
}

void borrower::on_timer(timer& self) noexcept {
  auto& h = static_cast<holding&>(self);
  if (h.state == holding::stage::asking)
    return h.answered.set();  // Late: it is over for who asked.
  if (h.state != holding::stage::open) return;
  h.has_expired = true;
  h.block->refuse(errc::lease_expired);
  h.home->give_back(h);
}

void borrower::give_back(holding& h) noexcept {
  h.disarm();
  h.block->refuse(errc::lease_ended);
  if (needs_flush(h))
    start_flush(h);
  else
    send_return(h);
}

/// What was written may not be visible yet though it has ended; a READ that has ended is over.
bool borrower::needs_flush(holding& h) const noexcept {
  const bool may_write = h.block->access() != verbs::access::remote_read;
  return h.block->take_use() && (may_write || h.block->is_in_use());
}

/// A READ behind all that was posted: when it has ended, so has that, and what was written is
/// visible to the owner's processor (IBTA 9.5).
void borrower::start_flush(holding& h) noexcept {
  h.state = holding::stage::flushing;
  h.flush.emplace(context_.data.post(cordma::read(landing_.slice(), flush_word_.first(1))));
  h.flush->notify_inline();
  if (h.flush->start(h, {})) end_flush(h);
}

std::coroutine_handle<> borrower::on_flushed(waiter& self) noexcept {
  auto& h = static_cast<holding&>(self);
  h.home->end_flush(h);
  return std::noop_coroutine();
}

void borrower::end_flush(holding& h) noexcept {
  static_cast<void>(h.flush->take_result());  // A failure ends the connection, and all leases.
  h.flush.reset();
  if (!h.is_for_hand_over) return send_return(h);
  h.state = holding::stage::flushed;
  h.flush_ended.set();
}

void borrower::send_return(holding& h) noexcept {
  h.state = holding::stage::returning;
  h.notice.unlink();  // An acceptance that was not sent is needless now.
  h.notice.frame = {.kind = kind::give_back,
                    .lease = h.lease,
                    .status = h.has_expired ? std::uint32_t(errc::lease_expired) : 0};
  h.notice.on_sent = &on_returned;
  context_.channel.send_later(h.notice);
}

void borrower::on_returned(control_channel::outgoing& notice) noexcept {
  holding& h = *static_cast<decltype(holding::notice)&>(notice).of;
  if (h.question.is_linked()) {
    h.question.unlink();
    h.is_asking = false;
  }
  if (h.is_asking)
    h.state = holding::stage::returned;
  else
    h.home->forget(h);
}

task<> borrower::hand_over(remote_mr memory) {
  holding& h = *memory.holding_;
  if (h.is_inline) fail_inline("send_remote_mr");
  while (h.is_asking) co_await h.answered.wait();
  if (h.home == nullptr) fail_ended(h, "send_remote_mr");  // And we may be gone.
  if (const errc why = refusal_of(h); why != errc{})
    throw error{{.code = why, .call = "send_remote_mr"}};
  h.disarm();
  h.block->refuse(errc::lease_ended);
  h.is_for_hand_over = true;
  h.state = holding::stage::flushed;
  if (needs_flush(h)) start_flush(h);
  if (h.state == holding::stage::flushing) co_await h.flush_ended.wait();
  if (h.state != holding::stage::flushed) throw error{*h.refusal};
  ask(h, {.kind = kind::hand_over, .tag = h.tag, .lease = h.lease});
  co_await h.answered.wait();
  if (h.refusal) throw error{*h.refusal};
}

void borrower::on_handed_over(const frame& f) { forget(answered(f, kind::hand_over)); }

void borrower::forget(holding& h) noexcept {
  h.disarm();
  h.list_hook<holding>::unlink();
  tags_.erase(h.tag);
  if (h.lease != 0 || h.is_inline) --context_.counters.borrowed;
  if (h.is_offer) --offer_count_;
  h.block->refuse(errc::lease_ended);
  // A renewal may wait while what has expired is flushed.
  const bool awaits_flush = h.state == holding::stage::flushing && h.is_for_hand_over;
  h.state = holding::stage::ended;
  h.home = nullptr;
  if (!h.has_handle) return recycle(h);
  // Whoever waits may destroy it all.
  (awaits_flush ? h.flush_ended : h.answered).set();
}

/// What messages carry comes and goes with each, and leaves most of it as it was.
void borrower::recycle(holding& h) noexcept {
  if (!h.is_inline || failed_ || !frame_cache::is_recycling) {
    delete &h;
    return;
  }
  std::exchange(h.block, nullptr)->let_go();
  h.home = this;
  free_.push_front(h);
}

void borrower::fail(const failure& why) noexcept {
  if (failed_) return;
  failed_ = why;
  holdings_.splice_back(offers_);
  while (!holdings_.empty()) {
    holding& h = holdings_.front();
    h.block->refuse(errc::disconnected);
    if (!h.refusal) h.refusal = why;
    h.is_asking = false;
    h.question.unlink();
    h.notice.unlink();
    h.flush.reset();
    forget(h);
  }
  arrival_.set();
}

void borrower::list(std::vector<lease_info>& into) const {
  tags_.for_each([&](const holding& h) {
    if (h.lease == 0 && !h.is_inline) return;
    lease_info& one = into.emplace_back();
    one.is_borrowed = true;
    one.size_bytes = h.remote.size_bytes();
    one.access = h.block->access();
    one.isolation = h.isolation;
    one.remaining =
        std::chrono::ceil<milliseconds>(std::max(h.block->usable_until() - now(), duration{}));
  });
}

// ---- remote_mr
// -----------------------------------------------------------------------------------

verbs::access remote_mr::access() const noexcept {
  return holding_ == nullptr ? verbs::access::none : holding_->block->access();
}
isolation remote_mr::isolation() const noexcept { return holding_->isolation; }
remote_mr_slice remote_mr::slice() const noexcept {
  return holding_ == nullptr ? remote_mr_slice{} : holding_->remote;
}

milliseconds remote_mr::remaining() const noexcept {
  if (holding_ == nullptr || holding_->state != holding::stage::open) return {};
  const duration left = holding_->block->usable_until() - holding_->home->now();
  return std::chrono::ceil<milliseconds>(std::max(left, duration{}));
}

namespace {

task<> refuse_to_renew(const holding& h) {
  fail_ended(h, "renew");
  co_return;
}

}  // namespace

task<> remote_mr::renew(milliseconds lease) {
  CORDMA_ASSERT(holding_ != nullptr, "used an empty remote_mr");
  if (holding_->home == nullptr) return refuse_to_renew(*holding_);
  return holding_->home->renew(*holding_, lease);
}

void remote_mr::drop() noexcept {
  holding* const h = std::exchange(holding_, nullptr);
  if (h == nullptr) return;
  if (h->home != nullptr)
    h->home->drop(*h);
  else
    delete h;
}

}  // namespace cordma
