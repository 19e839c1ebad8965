#include "lender.hpp"

#include "agent.hpp"
#include "queue/send_queue.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

namespace cordma {

using agent_protocol::kind;
using detail::grant;

namespace {

/// The events of the leases that ended for each `loan_end_reason`.
constexpr event_log::kind end_events[] = {
    event_log::kind::lease_returned, event_log::kind::lease_expired, event_log::kind::lease_revoked,
    event_log::kind::lease_disconnected};

/// Counters of the leases that ended for each `loan_end_reason`.
constexpr std::uint64_t lending_counters::* ends[] = {
    &lending_counters::returned, &lending_counters::expired, &lending_counters::revoked,
    &lending_counters::disconnected};

agent_protocol::frame terms_of(const grant& g, kind k) noexcept {
  return {.kind = k,
          .tag = g.tag,
          .lease = g.id,
          .length = g.size_bytes,
          .address = g.remote.address(),
          .rkey = g.remote.rkey(),
          .access = g.access,
          .duration = std::chrono::duration_cast<std::chrono::microseconds>(g.lease),
          .isolation = std::uint8_t(g.isolation)};
}

}  // namespace

lender::lender(agent_context& context)
    : context_{context}, memory_{context}, ids_{leases_limit}, arrival_{context.executor} {}

lender::~lender() {
  fail({.code = errc::closed, .call = "close"});
  while (!received_.empty()) forget(received_.front());
  while (!free_.empty()) delete &free_.pop_front();
}

// ---- unheard ------------------------------------------------------------------------------------

/// Every count includes the grant from here on, until `forget`.
grant& lender::make(std::size_t bytes, std::size_t cost, grant_origin origin) {
  const bool is_inline = origin == grant_origin::by_a_message;
  const bool is_again = is_inline && !free_.empty();
  std::unique_ptr<grant> made{is_again ? &free_.pop_front()
                                       : new grant{*this, &on_timer, context_.executor}};
  made->origin = origin;
  // Frames name grants by their number; none names an inline grant.
  if (!is_inline && ids_.size() >= context_.options.lending.leases_max)
    refuse_to_lend(errc::limit_exceeded, "as many as lending_policy::leases_max are open");
  memory_.reserve(cost);
  try {
    if (!is_inline) made->id = ids_.insert(*made);
  } catch (...) {
    memory_.release(cost);
    throw;
  }
  if (made->was_requested()) memory_.add_requested(cost);
  made->size_bytes = bytes;
  made->cost = cost;
  grants_.push_back(*made);
  ++context_.counters.open;
  context_.counters.bytes_lent += bytes;
  context_.lending.count_lent(bytes);
  return *made.release();
}

/// Forgets `g` if `act` throws.
void lender::forget_on_error(grant& g, auto act) {
  try {
    act();
  } catch (...) {
    forget(g);
    throw;
  }
}

void lender::grant_request(const agent_protocol::frame& request, unsigned slot) {
  const lending_policy& policy = context_.options.lending;
  const verbs::access access = request.access & policy.access_max;
  const std::size_t alignment = std::size_t{1} << request.alignment_log2;
  // An alignment can take more memory than the length.
  const std::size_t cost = std::max<std::size_t>(request.length, alignment);
  if (policy.bytes_max == 0)
    refuse_to_lend(errc::access_denied, "lending_policy::bytes_max is 0, which grants nothing");
  if (access == verbs::access::none)
    refuse_to_lend(errc::access_denied, "lending_policy::access_max leaves nothing of that");
  if (cost > memory_.left_bytes())
    refuse_to_lend(errc::limit_exceeded, "more than is left of lending_policy::bytes_max");
  grant& g = make(request.length, cost, grant_origin::requested);
  g.tag = request.tag;
  forget_on_error(g, [&] {
    g.lent = memory_.find(request.length, alignment);
    g.question = slot;
    start(g, access, std::min<duration>(request.duration, policy.lease_max));
  });
}

void lender::check_loan(const local_mr& memory, const loan_options& options) const {
  if (failed_) throw error{*failed_};
  const memory_block* const block = memory.slice().block();
  if (block == nullptr) refuse_to_lend(errc::out_of_range, "no memory");
  if (block->pd() != context_.lending.domain().native_handle())
    refuse_to_lend(errc::wrong_protection_domain, "memory of connection::memory() can be lent");
  if (options.access == verbs::access::none ||
      !verbs::allows(lending_policy::lendable_access, options.access))
    refuse_to_lend(errc::access_denied, "lend for remote_read, remote_write, remote_atomic");
  const bool writes = options.access != verbs::access::remote_read;
  if (writes && !verbs::allows(block->access(), verbs::access::local_write))
    refuse_to_lend(errc::access_denied, "this memory was registered without local_write");
  if (options.lease < std::chrono::milliseconds{1} || options.lease > std::chrono::hours{24})
    refuse_to_lend(errc::out_of_range, "a lease of 1 ms to 24 h");
}

task<loan> lender::lend(local_mr memory, loan_options options) {
  check_loan(memory, options);
  grant& g = make(memory.size_bytes(), memory.size_bytes(), grant_origin::offered);
  g.has_loan = true;
  loan made{g};
  g.lent.memory = std::move(memory);
  forget_on_error(g, [&] { start(g, options.access, options.lease); });
  co_await g.bound.wait();
  if (g.bind_failure) throw error{*g.bind_failure};
  co_return made;
}

void lender::lend_inline(inline_grant& l, local_mr memory, verbs::access access) {
  check_loan(memory, {.access = access});
  if (context_.data.sends().batch_max() <= inline_grant::per_message_max)
    refuse_to_lend(errc::limit_exceeded, "beside a message: send_wr_max of 5 or more");
  grant& g = make(memory.size_bytes(), memory.size_bytes(), grant_origin::by_a_message);
  g.expires = time_point::max();
  g.lent.memory = std::move(memory);
  forget_on_error(g, [&] { memory_.prepare(g, access); });
  g.owner = &l;
  l.grant_ = &g;
}

// ---- binding, open ------------------------------------------------------------------------------

/// Forgets `g` at once if the bind cannot be posted.
void lender::start(grant& g, verbs::access access, duration lease) {
  memory_.prepare(g, access);
  g.lease = lease;
  if (!g.lent.window) return open(g);
  g.state.move_to(grant_state::binding);
  g.bind.emplace(context_.data.sends(), memory_.bind_of(g), g,
                 [](grant& bound) noexcept { bound.lender->on_bound(bound); });
  g.bind->post();
}

void lender::on_bound(grant& g) noexcept {
  const result<std::uint32_t> bound = g.bind->outcome();
  g.bind.reset();
  if (bound.has_value()) {
    g.lent.window->bound(*bound);
    return open(g);
  }
  // The bind was refused before it was posted; or the device failed it, and broke the queue pair.
  queue_pair& data = context_.data;
  g.bind_failure =
      data.has_failed() ? data.failure_reason().to_failure(data.verbs().num()) : bound.failure();
  if (g.question)
    context_.log_lease(event_log::kind::lease_refused, g.size_bytes, {}, &*g.bind_failure);
  answer(g, {.kind = kind::refused, .tag = g.tag, .status = std::uint32_t(errc::refused)});
  cut(g);
}

/// Answers the holder's question, if it has one open.
void lender::answer(grant& g, const agent_protocol::frame& f) noexcept {
  if (g.question) context_.channel.reply(*std::exchange(g.question, std::nullopt), f);
}

/// Lets the witness see that the peer may use the memory.
void lender::witness(const grant& g) const noexcept {
  if (context_.witness == nullptr) return;
  context_.witness->lent(g.remote.address(), g.size_bytes, g.remote.rkey(),
                         g.access != verbs::access::remote_read);
}

void lender::open(grant& g) noexcept {
  const bool is_unwanted = g.state == grant_state::unwanted;
  g.state.move_to(grant_state::open);
  witness(g);
  context_.log_lease(event_log::kind::lease_opened, g.size_bytes, to_string(g.isolation));
  if (is_unwanted) return close(g);  // The peer has not heard of it.
  rearm(g, context_.executor.after(g.lease));
  if (g.question) {
    ++context_.counters.granted;
    answer(g, terms_of(g, kind::granted));
  } else {
    ++context_.counters.offered;
    g.notice.frame = terms_of(g, kind::offer);
    context_.channel.send(g.notice);
  }
  g.bound.set();
}

void lender::open_inline(grant& g) noexcept {
  g.state.move_to(grant_state::open);
  if (g.lent.window) g.lent.window->bound(g.remote.rkey());
  witness(g);
  ++context_.counters.offered;
}

void lender::rearm(grant& g, time_point expires) noexcept {
  g.expires = expires;
  context_.executor.rearm(g, expires);
}

void lender::accept(grant& g, std::uint64_t tag) noexcept {
  g.tag = tag;
  if (g.state == grant_state::open) rearm(g, context_.executor.after(g.lease));
}

void lender::renew(grant& g, duration lease) noexcept {
  rearm(g, std::max(g.expires, context_.executor.after(lease)));
}

// ---- asked --------------------------------------------------------------------------------------

void lender::end(grant& g, loan_end_reason why) noexcept {
  if (g.state == grant_state::unheard) return give_back(g);
  if (g.state == grant_state::binding) {
    g.state.move_to(grant_state::unwanted);
    g.reason = why;
  }
  if (g.state != grant_state::open) return;
  g.reason = why;
  if (g.notice.is_linked()) return close(g);  // The offer has not been sent.
  g.state.move_to(grant_state::asked);
  if (!g.is_inline()) {
    g.notice.frame = {.kind = kind::revoke, .tag = g.tag, .lease = g.id};
    context_.channel.send(g.notice);
  }
  context_.executor.rearm(g, context_.executor.after(context_.options.lending.grace));
}

void lender::give_back(grant& g, bool window_is_invalid) noexcept {
  switch (g.state.now()) {
    case grant_state::unheard:
    case grant_state::open:
    case grant_state::asked: return close(g, window_is_invalid);
    case grant_state::waiting:
      if (window_is_invalid) close(g, true);  // No slot is needed any more.
      return;
    default: return;
  }
}

void lender::hand_over(grant& g, unsigned slot) noexcept {
  g.question = slot;
  g.is_handed_over = g.was_requested();  // A loan of the program's goes back to its `loan`.
  close(g);
}

void lender::on_timer(timer& self) noexcept {
  auto& g = static_cast<grant&>(self);
  switch (g.state.now()) {
    case grant_state::open: return g.lender->expire(g);
    case grant_state::asked: ++g.lender->context_.counters.forced; return g.lender->close(g);
    case grant_state::invalidating:
      // The device does not get to the invalidation. In ERROR the queue pair lets nobody in, and
      // the window can go.
      return g.lender->context_.break_connection(errc::timed_out, "revoke");
    default: return;
  }
}

void lender::expire(grant& g) noexcept {
  const bool is_known_to_holder = g.tag != 0;
  if (context_.witness != nullptr && is_known_to_holder)
    context_.witness->expired(g.remote.address(), g.remote.rkey());
  end(g, loan_end_reason::expired);
}

// ---- waiting, invalidating ----------------------------------------------------------------------

/// Ends the peer's access: the holder has given the memory back, never heard of it, or had its
/// time.
void lender::close(grant& g, bool window_is_invalid) noexcept {
  g.notice.unlink();
  if (g.isolation == isolation::shared_key) return cut(g);
  const bool is_unheard = g.state == grant_state::unheard;
  if (window_is_invalid || is_unheard) {
    // The bind of an unheard grant may have broken the queue pair: the window goes with that.
    if (!is_unheard || !context_.data.has_failed()) memory_.return_window(g);
    return cut(g);
  }
  if (can_invalidate()) return start_invalidation(g);
  g.state.move_to(grant_state::waiting);
  g.list_hook<grant>::unlink();
  waiting_.push_back(g);
}

/// The reserved slots of the send queue are out of the program's reach; others serve when free.
bool lender::can_invalidate() const noexcept {
  return invalidating_ < agent::reserved_slots || context_.data.sends().has_room();
}

void lender::start_invalidation(grant& g) noexcept {
  g.state.move_to(grant_state::invalidating);
  ++invalidating_;
  context_.executor.rearm(g,
                          context_.executor.about_after(context_.options.lending.revoke_timeout));
  g.invalidation.emplace(context_.data.sends(), cordma::invalidate(g.lent.window->rkey()), g,
                         [](grant& ended) noexcept { ended.lender->on_invalidated(ended); });
  g.invalidation->post_urgent();
}

void lender::on_invalidated(grant& g) noexcept {
  const result<std::uint32_t> outcome = g.invalidation->outcome();
  g.invalidation.reset();
  g.disarm();
  --invalidating_;
  if (outcome.has_value())
    memory_.return_window(g);
  else
    context_.break_after(outcome.failure(), "invalidate");
  cut(g);
  // When the queue pair has failed, `fail` ends them all soon: ending them here would recurse.
  while (!failed_ && !context_.data.has_failed() && !waiting_.empty() && can_invalidate()) {
    grant& next = waiting_.pop_front();
    grants_.push_back(next);
    start_invalidation(next);
  }
}

// ---- received, ended ----------------------------------------------------------------------------

/// Takes the rest of the peer's access away, and with it the grant leaves the peer.
void lender::cut(grant& g) noexcept {
  const bool is_kept = memory_.take_back(g);
  if (!is_unopened(g.state.now())) {
    ++(context_.counters.*ends[std::size_t(g.reason)]);
    if (g.reason == loan_end_reason::expired) context_.lending.totals().expired.add();
    if (context_.witness != nullptr)
      context_.witness->taken_back(g.remote.address(), g.remote.rkey(),
                                   g.reason == loan_end_reason::returned);
  }
  answer(g, {.kind = kind::handed_over, .tag = g.tag});
  if (!g.is_handed_over) return forget(g, is_kept);
  g.state.move_to(grant_state::received);
  g.list_hook<grant>::unlink();
  context_.log_lease(event_log::kind::lease_handed_over, g.size_bytes, to_string(g.isolation));
  received_.push_back(g);
  arrival_.set();
}

/// Logs the end of a lease that the peer could use, and has not handed over.
void lender::log_end(const grant& g) const noexcept {
  if (is_unopened(g.state.now()) || g.state == grant_state::received) return;
  context_.log_lease(end_events[std::size_t(g.reason)], g.size_bytes, to_string(g.isolation));
}

/// \param is_kept  the memory is kept, and counts on.
void lender::forget(grant& g, bool is_kept) noexcept {
  g.disarm();
  g.list_hook<grant>::unlink();
  if (!g.is_inline()) {
    ids_.erase(g.id);
    log_end(g);
  }
  if (g.was_requested()) memory_.remove_requested(g.cost);
  if (!is_kept) memory_.release(g.cost);
  --context_.counters.open;
  context_.counters.bytes_lent -= g.size_bytes;
  context_.lending.count_end(g.size_bytes);
  g.state.move_to(grant_state::ended);
  g.lender = nullptr;
  if (!g.has_loan) {
    inline_grant* const owner = g.owner;
    recycle(g);
    if (owner != nullptr) owner->end();
    return;
  }
  // A caller waits for one of the two events, and may destroy the grant when that is set.
  event& awaited = g.bound.is_set() ? g.ended : g.bound;
  (&awaited == &g.bound ? g.ended : g.bound).set();
  awaited.set();
}

/// Keeps an inline grant for the next message, most of it as it was.
void lender::recycle(grant& g) noexcept {
  if (!g.is_inline() || failed_ || !frame_cache::is_recycling) {
    delete &g;
    return;
  }
  g.lender = this;
  g.lent.registration.reset();
  g.lent.memory = {};
  g.owner = nullptr;
  g.state.move_to(grant_state::unheard);
  g.reason = loan_end_reason::returned;
  free_.push_front(g);
}

void lender::fail(const failure& why) noexcept {
  if (failed_) return;
  failed_ = why;
  grants_.splice_back(waiting_);
  while (!grants_.empty()) {
    grant& g = grants_.front();
    const bool is_new = is_unopened(g.state.now());
    if (is_new || g.state == grant_state::open) g.reason = loan_end_reason::disconnected;
    if (is_new) g.bind_failure = why;
    g.question.reset();
    g.notice.unlink();
    g.bind.reset();
    g.invalidation.reset();
    cut(g);
  }
  memory_.drop_all();
  arrival_.set();
}

task<local_mr> lender::receive() {
  while (received_.empty()) {
    if (failed_) throw error{*failed_};
    arrival_.reset();
    co_await arrival_.wait();
  }
  const environment env = co_await current_environment();
  if (env.stop.stop_requested()) throw cancelled{};  // The memory stays for another call.
  grant& g = received_.front();
  local_mr memory = std::move(g.lent.memory);
  forget(g);
  co_return memory;
}

void lender::list(std::vector<lease_info>& into) {
  const time_point now = context_.executor.now();
  const auto add = [&](const grant& g) {
    lease_info& one = into.emplace_back();
    one.size_bytes = g.size_bytes;
    one.access = g.access;
    one.isolation = g.isolation;
    one.remaining =
        std::chrono::ceil<std::chrono::milliseconds>(std::max(g.expires - now, duration{}));
  };
  ids_.for_each(add);
  grants_.for_each([&](const grant& g) {
    if (g.is_inline()) add(g);
  });
}

}  // namespace cordma
