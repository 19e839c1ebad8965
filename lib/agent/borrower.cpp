#include "borrower.hpp"

#include "base/time_text.hpp"

#include <cordma/coro/with_timeout.hpp>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <memory>
#include <utility>

namespace cordma {

using agent_protocol::kind;
using detail::holding;
using std::chrono::duration_cast;
using std::chrono::microseconds;

namespace {

[[noreturn]] void fail_request(errc why, const char* detail,
                               const char* call = "request_remote_mr") {
  throw error{{.code = why, .call = call, .detail = detail}};
}

[[noreturn]] void fail_late(time_span limit) {
  char text[80];
  std::snprintf(text, sizeof text, "the peer's agent did not answer within %s",
                to_text(limit).c_str());
  fail_request(errc::timed_out, text);
}

/// For memory that was given back, or is on its way: its block knows the reason.
[[noreturn]] void fail_ended(const holding& h, const char* call) {
  const errc why = h.block->refusal(h.block->generation(), nullptr, verbs::access::none);
  throw error{{.code = why, .call = call}};
}

[[noreturn]] void fail_inline(const char* call) {
  fail_request(errc::not_supported, "what a message lends ends with its answer", call);
}

}  // namespace

borrower::borrower(agent_context& context)
    : context_{context},
      landing_{context.memory.allocate_zeroed(1)},
      tags_{holdings_max},
      arrival_{context.executor} {}

borrower::~borrower() {
  fail({.code = errc::closed, .call = "close"});
  while (!free_.empty()) delete &free_.pop_front();
}

holding& borrower::make(bool is_inline) {
  const bool is_again = is_inline && !free_.empty();
  std::unique_ptr<holding> made{is_again ? &free_.pop_front()
                                         : new holding{*this, &on_timer, context_.executor}};
  made->is_inline = is_inline;
  made->block = &lease_block::make(&context_.data.sends());
  made->tag = tags_.insert(*made);
  if (made->tag == 0) fail_request(errc::limit_exceeded, "65536 leases are open with this peer");
  return *made.release();
}

holding* borrower::find_by_lease(std::uint64_t lease) const noexcept {
  holding* found = nullptr;
  tags_.for_each([&](holding& h) {
    if (h.lease == lease) found = &h;
  });
  return found;
}

duration borrower::margin_of(duration lease) const noexcept {
  const agent_options& o = context_.options;
  return std::max<duration>(lease / 100 * o.operation_margin_percent, o.operation_margin_min);
}

// ---- asking -------------------------------------------------------------------------------------

/// The lease counts from the question, so it ends here before it ends at the owner, however long
/// the answer is under way.
void borrower::ask(holding& h, const frame& f) noexcept {
  h.is_asking = true;
  h.asked_at = now();
  h.refusal.reset();
  h.answered.reset();
  h.question.frame = f;
  context_.channel.send(h.question);
}

/// Takes back a question that has not been sent.
void borrower::withdraw(holding& h) noexcept {
  h.question.unlink();
  h.is_asking = false;
}

void borrower::check_request(std::size_t size_bytes, const remote_mr_request& o) const {
  if (failed_) throw error{*failed_};
  if (size_bytes == 0) fail_request(errc::out_of_range, "0 bytes: ask for at least 1");
  if (!std::has_single_bit(o.alignment) || o.alignment > mr_allocator::alignment_max)
    fail_request(errc::out_of_range, "an alignment is a power of two, up to 2 MiB");
  if (o.access == verbs::access::none || !verbs::allows(lending_policy::lendable_access, o.access))
    fail_request(errc::access_denied, "ask for remote_read, remote_write, remote_atomic");
  if (o.lease > std::chrono::hours{24} || o.lease <= margin_of(o.lease))
    fail_request(errc::out_of_range,
                 "a lease is longer than its operation margin, and at most 24 h");
}

task<remote_mr> borrower::request(std::size_t size_bytes, remote_mr_request options) {
  check_request(size_bytes, options);
  const time_span limit = options.timeout.value_or(context_.options.request_timeout);
  // Memory that was dropped in this iteration goes back behind the request, and may be the memory
  // that is missing.
  for (bool may_ask_again = context_.channel.has_put_off();; may_ask_again = false) {
    holding& h = make();
    h.has_handle = true;
    remote_mr memory{h};
    holdings_.push_back(h);
    h.state.move_to(holding_state::asking);
    ask(h, {.kind = kind::request,
            .tag = h.tag,
            .length = size_bytes,
            .access = options.access,
            .duration = duration_cast<microseconds>(duration{options.lease}),
            .alignment_log2 = std::uint8_t(std::countr_zero(options.alignment))});
    if (limit <= duration{0}) fail_late(limit);
    context_.executor.rearm(h, detail::after(h.asked_at, limit));
    co_await h.answered.wait();
    if (h.refusal) {
      if (may_ask_again && h.refusal->code == errc::limit_exceeded) continue;
      throw error{*h.refusal};
    }
    if (h.state == holding_state::asking) fail_late(limit);
    co_return memory;
  }
}

void borrower::refused(holding& h, const failure& why) noexcept {
  h.refusal = why;
  const bool is_over =
      h.question.frame.kind != agent_protocol::kind::renew || h.state == holding_state::returned;
  if (!is_over) return h.answered.set();
  forget(h);
}

// ---- offered ------------------------------------------------------------------------------------

bool borrower::offer(const frame& terms) {
  if (offer_count_ == context_.options.offers_max) return false;
  holding& h = make();
  take_terms(h, terms);
  h.question.frame.duration = terms.duration;
  h.state.move_to(holding_state::offered);
  offers_.push_back(h);
  ++offer_count_;
  arrival_.set();
  return true;
}

task<remote_mr> borrower::receive() {
  while (offers_.empty()) {
    if (failed_) throw error{*failed_};
    arrival_.reset();
    co_await arrival_.wait();
  }
  const environment env = co_await current_environment();
  if (env.stop.stop_requested()) throw cancelled{};  // The offer stays for another call.
  holding& h = offers_.pop_front();
  --offer_count_;
  holdings_.push_back(h);
  h.has_handle = true;
  open(h, now());
  h.notice.frame = {.kind = kind::accept, .tag = h.tag, .lease = h.lease};
  context_.channel.send(h.notice);
  co_return remote_mr{h};
}

// ---- open ---------------------------------------------------------------------------------------

void borrower::take_terms(holding& h, const frame& f) noexcept {
  h.lease = f.lease;
  h.isolation = isolation{f.isolation};
  h.block->grant(f.access, {});
  h.remote = {f.address, std::size_t(f.length), f.rkey, *h.block};
  ++context_.counters.borrowed;
  context_.lending.count_borrowed();
}

void borrower::open(holding& h, time_point since) noexcept {
  const duration lease = h.question.frame.duration;
  h.state.move_to(holding_state::open);
  use_until(h, since + lease - margin_of(lease));
}

void borrower::use_until(holding& h, time_point until) noexcept {
  h.block->grant(h.block->access(), until);
  context_.executor.rearm(h, until);
  if (context_.witness != nullptr)
    context_.witness->borrowed(h.remote.address(), h.remote.rkey(), until);
}

void borrower::granted(holding& h, const frame& terms) noexcept {
  take_terms(h, terms);
  h.question.frame.duration = terms.duration;
  open(h, h.asked_at);
  if (h.has_handle)
    h.answered.set();
  else
    give_back(h);  // The caller has stopped waiting for the answer.
}

/// Memory that a message lends stays borrowed until `end_along`, even if the program drops it
/// before.
remote_mr borrower::borrow_inline(const loan_terms& terms, verbs::access access, time_point until,
                                  std::uint64_t& number) {
  if (failed_) throw error{*failed_};
  holding& h = make(true);
  h.has_handle = true;
  h.state.move_to(holding_state::open);
  h.isolation = terms.isolation;
  h.block->grant(access, until);
  h.remote = {terms.address, std::size_t(terms.length), terms.rkey, *h.block};
  if (context_.witness != nullptr)
    context_.witness->borrowed(h.remote.address(), h.remote.rkey(), until);
  ++context_.counters.borrowed;
  context_.lending.count_borrowed();
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

task<> borrower::renew(holding& h, time_span lease) {
  borrower* const from = h.borrower;
  if (from == nullptr) fail_ended(h, "renew");
  if (lease > std::chrono::hours{24} || lease <= from->margin_of(lease))
    fail_request(errc::out_of_range,
                 "a lease is longer than its operation margin, and at most 24 h", "renew");
  if (h.is_inline) fail_inline("renew");
  const duration limit = from->context_.options.request_timeout;
  scheduler* const owner = &from->context_.executor;
  while (h.is_asking) co_await with_timeout(h.answered.wait(), limit, owner);
  if (h.borrower == nullptr) fail_ended(h, "renew");  // The borrower may be gone, too.
  if (const errc why = from->refusal_of(h); why != errc{})
    throw error{{.code = why, .call = "renew"}};
  from->ask(h, {.kind = kind::renew,
                .tag = h.tag,
                .lease = h.lease,
                .duration = duration_cast<microseconds>(duration{lease})});
  co_await with_timeout(h.answered.wait(), limit, owner);
  if (h.refusal) throw error{*h.refusal};
  if (h.state != holding_state::open) fail_ended(h, "renew");
}

void borrower::renewed(holding& h, duration lease) noexcept {
  if (h.state == holding_state::returned) return forget(h);
  const time_point until = detail::after(h.asked_at, lease - margin_of(lease));
  if (h.state == holding_state::open && until > h.block->usable_until()) use_until(h, until);
  h.answered.set();
}

// ---- flushing, returning ------------------------------------------------------------------------

void borrower::drop(holding& h) noexcept {
  h.has_handle = false;
  switch (h.state.now()) {
    case holding_state::asking:
      // Once the question is sent, its answer comes, and what it grants goes back.
      if (h.question.is_linked()) forget(h);
      return;
    case holding_state::open:
      if (h.is_inline) return refuse(h, errc::lease_ended);
      return give_back(h);
    case holding_state::flushing_for: return h.state.move_to(holding_state::flushing);
    case holding_state::flushed: return send_return(h);
    case holding_state::handing_over:
      if (!h.question.is_linked()) return;
      withdraw(h);
      return send_return(h);
    case holding_state::ended: delete &h; return;
    default: return;
  }
}

void borrower::revoke(holding& h) noexcept {
  if (h.state == holding_state::offered) {
    h.list_hook<holding>::unlink();
    holdings_.push_back(h);
    return send_return(h, holding_state::declining);
  }
  if (h.state == holding_state::open) give_back(h);
}

/// No request on the holding can be posted from now on.
void borrower::refuse(holding& h, errc why) noexcept {
  h.block->refuse(why);
  if (context_.witness != nullptr)
    context_.witness->given_back(h.remote.address(), h.remote.rkey());
}

void borrower::on_timer(timer& self) noexcept {
  auto& h = static_cast<holding&>(self);
  if (h.state == holding_state::asking)
    return h.answered.set();  // The answer is late: the request has failed.
  if (h.state != holding_state::open) return;
  h.status = errc::lease_expired;
  h.borrower->refuse(h, errc::lease_expired);
  h.borrower->give_back(h);
}

void borrower::give_back(holding& h) noexcept {
  h.disarm();
  refuse(h, errc::lease_ended);
  if (needs_flush(h))
    start_flush(h, holding_state::flushing);
  else
    send_return(h);
}

/// A WRITE that has ended may not be visible to the owner yet; a READ that has ended is over.
bool borrower::needs_flush(holding& h) const noexcept {
  const bool may_write = h.block->access() != verbs::access::remote_read;
  return h.block->take_use() && (may_write || h.block->is_in_use());
}

/// Posts a READ behind all that was posted. When the READ has ended, earlier requests have, too,
/// and the owner's processor sees what was written (IBTA 9.5).
void borrower::start_flush(holding& h, holding_state while_it_lasts) noexcept {
  h.state.move_to(while_it_lasts);
  h.flush.emplace(context_.data.sends(),
                  cordma::read(landing_.slice(), context_.flush_word.first(1)), h,
                  [](holding& flushed) noexcept { flushed.borrower->end_flush(flushed); });
  h.flush->post();
}

void borrower::end_flush(holding& h) noexcept {
  const result<std::size_t> outcome = h.flush->outcome();
  h.flush.reset();
  // The owner must not hear that the memory was written: `fail` ends the holding soon.
  if (!outcome.has_value()) return context_.break_after(outcome.failure(), "flush");
  if (h.state == holding_state::flushing) return send_return(h);
  h.state.move_to(holding_state::flushed);
  h.flush_ended.set();
}

void borrower::send_return(holding& h, holding_state until_sent) noexcept {
  h.state.move_to(until_sent);
  h.notice.unlink();  // An acceptance that was not sent is needless now.
  h.notice.frame = {.kind = kind::give_back, .lease = h.lease, .status = std::uint32_t(h.status)};
  h.notice.on_sent = &on_returned;
  context_.channel.send_later(h.notice);
}

void borrower::on_returned(control_channel::outgoing& notice) noexcept {
  holding& h = *static_cast<decltype(holding::notice)&>(notice).of;
  if (h.question.is_linked()) h.borrower->withdraw(h);
  if (h.is_asking)
    h.state.move_to(holding_state::returned);
  else
    h.borrower->forget(h);
}

// ---- flushed, handing over ----------------------------------------------------------------------

task<> borrower::hand_over(remote_mr memory) {
  holding& h = *memory.holding_;
  if (h.is_inline) fail_inline("send_remote_mr");
  while (h.is_asking) co_await h.answered.wait();
  if (h.borrower == nullptr) fail_ended(h, "send_remote_mr");  // The borrower may be gone, too.
  if (const errc why = refusal_of(h); why != errc{})
    throw error{{.code = why, .call = "send_remote_mr"}};
  h.disarm();
  refuse(h, errc::lease_ended);
  if (needs_flush(h))
    start_flush(h, holding_state::flushing_for);
  else
    h.state.move_to(holding_state::flushed);
  if (h.state == holding_state::flushing_for) co_await h.flush_ended.wait();
  if (h.state != holding_state::flushed) throw error{*h.refusal};
  h.state.move_to(holding_state::handing_over);
  ask(h, {.kind = kind::hand_over, .tag = h.tag, .lease = h.lease});
  co_await h.answered.wait();
  if (h.refusal) throw error{*h.refusal};
}

// ---- ended --------------------------------------------------------------------------------------

void borrower::forget(holding& h) noexcept {
  h.disarm();
  h.list_hook<holding>::unlink();
  tags_.erase(h.tag);
  if (h.lease != 0 || h.is_inline) {
    --context_.counters.borrowed;
    context_.lending.count_returned();
  }
  if (h.state == holding_state::offered || h.state == holding_state::declining) --offer_count_;
  refuse(h, errc::lease_ended);
  // A renewal may wait in `flushing`, for its answer.
  const bool awaits_flush = h.state == holding_state::flushing_for;
  h.state.move_to(holding_state::ended);
  h.borrower = nullptr;
  if (!h.has_handle) return recycle(h);
  // The waiting caller may destroy this borrower.
  (awaits_flush ? h.flush_ended : h.answered).set();
}

/// Keeps an inline holding for the next message, most of it as it was.
void borrower::recycle(holding& h) noexcept {
  if (!h.is_inline || failed_ || !frame_cache::is_recycling) {
    delete &h;
    return;
  }
  std::exchange(h.block, nullptr)->release();
  h.borrower = this;
  h.state.move_to(holding_state::made);
  free_.push_front(h);
}

void borrower::fail(const failure& why) noexcept {
  if (failed_) return;
  failed_ = why;
  holdings_.splice_back(offers_);
  while (!holdings_.empty()) {
    holding& h = holdings_.front();
    refuse(h, errc::disconnected);
    if (!h.refusal) h.refusal = why;
    withdraw(h);
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
    one.remaining = std::chrono::ceil<std::chrono::milliseconds>(
        std::max(h.block->usable_until() - now(), duration{}));
  });
}

}  // namespace cordma
