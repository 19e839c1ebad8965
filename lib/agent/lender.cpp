#include "lender.hpp"

#include <cordma/detail/agent/agent.hpp>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <new>

namespace cordma {

using agent_protocol::kind;

namespace {

using detail::grant;

[[noreturn]] void refuse_to_lend(errc why, const char* detail = "") {
  throw error{{.code = why, .call = "lend", .detail = detail}};
}

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

/// What a request takes of the policy: an alignment can take more memory than the bytes.
std::size_t cost_of(const agent_protocol::frame& request) noexcept {
  return std::max<std::uint64_t>(request.length, std::uint64_t{1} << request.alignment_log2);
}

}  // namespace

const char* to_string(loan_end_reason reason) noexcept {
  switch (reason) {
    case loan_end_reason::returned: return "returned";
    case loan_end_reason::expired: return "expired";
    case loan_end_reason::revoked: return "revoked";
    case loan_end_reason::disconnected: return "disconnected";
  }
  return "?";
}

detail::grant::grant(lender& l) noexcept
    : waiter{&lender::on_done},
      timer{&lender::on_timer},
      home{&l},
      bound{l.context_.home},
      ended{l.context_.home} {}

lender::lender(agent_context& context)
    : context_{context}, ids_{context.options.lending.leases_max}, arrival_{context.home} {}

lender::~lender() {
  fail({.code = errc::closed, .call = "close"});
  while (!received_.empty()) forget(received_.front());
  while (!free_.empty()) delete &free_.pop_front();
}

// ---- granting
// ------------------------------------------------------------------------------------

void lender::refuse(const frame& question, unsigned slot, errc why, std::uint64_t limit) noexcept {
  context_.channel.reply(
      slot,
      {.kind = kind::refused, .tag = question.tag, .length = limit, .status = std::uint32_t(why)});
}

void lender::on_request(const frame& f, unsigned slot) noexcept {
  const lending_policy& policy = context_.options.lending;
  grant* g = nullptr;
  errc why = errc::refused;
  try {
    check_request(f);
    g = &make(f.length, cost_of(f));
    g->was_asked_for = true;
    asked_bytes_ += g->cost;
    g->tag = f.tag;
    g->question = slot;
    g->lent = memory_for(f);
    return lend_out(*g, f.access & policy.access_max,
                    std::min<duration>(f.duration, policy.lease_max));
  } catch (const error& e) {
    // Which of our limits memory ran into is no business of a peer's.
    if (e.failure().call == std::string_view{"lend"}) why = errc(e.failure().code.value());
    note_refusal(f, why, e.failure().detail.view());
  } catch (const std::bad_alloc&) {
    note_refusal(f, why, "no memory");
  }
  if (g != nullptr) forget(*g);
  ++context_.counters.refused;
  const bool tells_limit = why == errc::limit_exceeded || why == errc::access_denied;
  refuse(f, slot, why, tells_limit ? policy.bytes_max : 0);
}

void lender::note_refusal(const frame& request, errc why, std::string_view because) noexcept {
  char text[240];
  std::snprintf(text, sizeof text, "asked for %" PRIu64 " bytes of %s: %.*s", request.length,
                to_string(request.access).c_str(), int(because.size()), because.data());
  context_.last_refusal = {.code = why, .call = "lend", .detail = text};
}

lent_memory lender::memory_for(const frame& request) {
  lent_memory found;
  const std::size_t alignment = std::size_t{1} << request.alignment_log2;
  if (stock_.take(request.length, alignment, found)) {
    context_.lending.release(request.length);
    context_.counters.bytes_kept = stock_.bytes();
    return found;
  }
  // What is kept for the peer counts as the peer's.
  while (stock_.bytes() > context_.options.lending.bytes_max - asked_bytes_) drop_kept();
  for (;;) {
    try {
      found.memory = context_.memory.allocate_zeroed(request.length, alignment);
      return found;
    } catch (const error&) {
      if (stock_.is_empty()) throw;
      while (!stock_.is_empty()) drop_kept();  // It may be what is missing.
    }
  }
}

/// Its window is invalid: nobody reaches its registration, which grants nothing. What an alignment
/// took besides is not kept, nor what would be more than the peer may have.
bool lender::keep(grant& g) noexcept {
  if (g.isolation != isolation::exact_registered || !g.was_asked_for || g.is_handed_over ||
      failed_ || !g.lent.registration || g.lent.window || g.cost != g.size_bytes ||
      stock_.bytes() > context_.options.lending.bytes_max - asked_bytes_)
    return false;
  if (stock_.is_full()) drop_kept();
  g.is_kept = stock_.keep(g.lent);
  context_.counters.bytes_kept = stock_.bytes();
  return g.is_kept;
}

void lender::drop_kept() noexcept {
  lent_memory oldest = stock_.take_oldest();
  const std::size_t bytes = oldest.memory.size_bytes();
  context_.counters.bytes_kept = stock_.bytes();
  if (oldest.registration->deregister() != 0) {
    ++context_.counters.stranded;
    context_.lending.strand(std::move(oldest));
  }
  context_.lending.release(bytes);
}

void lender::check_request(const frame& request) const {
  const lending_policy& policy = context_.options.lending;
  if (policy.bytes_max == 0)
    refuse_to_lend(errc::access_denied, "lending_policy::bytes_max is 0, which grants nothing");
  if ((request.access & policy.access_max) == verbs::access::none)
    refuse_to_lend(errc::access_denied, "lending_policy::access_max leaves nothing of that");
  if (cost_of(request) > policy.bytes_max - asked_bytes_)
    refuse_to_lend(errc::limit_exceeded, "more than is left of lending_policy::bytes_max");
}

void lender::check_loan(const local_mr& memory, const loan_options& options) const {
  if (failed_) throw error{*failed_};
  const memory_block* const block = memory.slice().block();
  if (block == nullptr) refuse_to_lend(errc::out_of_range, "no memory");
  if (block->pd() != context_.lending.domain().native_handle())
    refuse_to_lend(errc::wrong_protection_domain, "memory of connection::memory() can be lent");
  if (options.access == verbs::access::none || !verbs::allows(lendable_access, options.access))
    refuse_to_lend(errc::access_denied, "lend for remote_read, remote_write, remote_atomic");
  const bool writes = options.access != verbs::access::remote_read;
  if (writes && !verbs::allows(block->access(), verbs::access::local_write))
    refuse_to_lend(errc::access_denied, "this memory was registered without local_write");
  if (options.lease < std::chrono::milliseconds{1} || options.lease > std::chrono::hours{24})
    refuse_to_lend(errc::out_of_range, "a lease of 1 ms to 24 h");
}

/// Counted everywhere, with nothing to count yet.
grant& lender::make(std::size_t bytes, std::size_t cost, bool is_inline) {
  const bool is_again = is_inline && !free_.empty();
  std::unique_ptr<grant> made{is_again ? &free_.pop_front() : new grant{*this}};
  made->is_inline = is_inline;
  // No frame names an inline grant.
  if (!is_inline && ids_.size() == context_.options.lending.leases_max)
    refuse_to_lend(errc::limit_exceeded, "as many as lending_policy::leases_max are open");
  while (!context_.lending.reserve(cost, context_.options.lending)) {
    if (stock_.is_empty())
      refuse_to_lend(errc::limit_exceeded,
                     "more than lending_policy::total_bytes_max or total_leases_max");
    drop_kept();
  }
  try {
    if (!is_inline) made->id = ids_.insert(*made);
  } catch (...) {
    context_.lending.release(cost);
    throw;
  }
  made->size_bytes = bytes;
  made->cost = cost;
  grants_.push_back(*made);
  ++context_.counters.open;
  context_.counters.bytes_lent += bytes;
  return *made.release();
}

isolation lender::isolation_for(const verbs::memory_region* arena) const {
  const lending_policy& policy = context_.options.lending;
  if (context_.has_own_domain) return isolation::shared_key;
  isolation level =
      std::min(context_.lending.strongest(context_.port, context_.gid), policy.isolation_max);
  const bool can_be_bound =
      arena != nullptr && verbs::allows(arena->flags(), verbs::access::mw_bind);
  if (level == isolation::exact && !can_be_bound) level = isolation::exact_registered;
  if (level >= policy.isolation_min && level != isolation::shared_key) return level;
  char text[100];
  std::snprintf(text, sizeof text, "isolation %s is needed, and %s the best here",
                to_string(policy.isolation_min), to_string(level));
  refuse_to_lend(errc::not_supported, text);
}

/// Without a window then, it needs no bind: it is open to whoever has its key.
void lender::prepare(grant& g, verbs::access access) {
  using enum verbs::access;
  g.access = access;
  const local_mr_slice memory = g.lent.memory.slice();
  const verbs::memory_region* region = memory.block()->registration();
  g.isolation = isolation_for(region);
  if (g.lent.registration) {
    region = &*g.lent.registration;
  } else if (g.isolation != isolation::exact) {
    const auto flags = local_write | (g.isolation == isolation::shared_key ? access : mw_bind);
    g.lent.registration.emplace(context_.lending.domain(), memory.bytes().data(), g.size_bytes,
                                flags);
    region = &*g.lent.registration;
  }
  const bool from_zero = context_.options.lending.zero_based;
  const auto address = from_zero ? 0 : reinterpret_cast<std::uint64_t>(memory.bytes().data());
  if (g.isolation == isolation::shared_key) {
    g.remote = {address, g.size_bytes, region->rkey()};
    return;
  }
  g.lent.window.emplace(context_.lending.take_window());
  g.remote = {address, g.size_bytes, g.lent.window->next_rkey()};
}

/// The bind that opens it, to its `remote` key.
bind_request lender::bind_of(const grant& g) const noexcept {
  const const_local_mr_slice kept = g.lent.memory.slice();
  // Of now: whoever owns memory that we only keep may have freed it.
  const const_local_mr_slice memory{kept.bytes().data(), kept.size_bytes(), kept.lkey(),
                                    *kept.block()};
  const verbs::memory_region& region =
      g.lent.registration ? *g.lent.registration : *memory.block()->registration();
  const bool from_zero = context_.options.lending.zero_based;
  return cordma::bind(*g.lent.window, region, memory,
                      from_zero ? g.access | verbs::access::zero_based : g.access);
}

void lender::return_window(grant& g) noexcept {
  if (!g.lent.window) return;
  context_.lending.give_back(std::move(*g.lent.window));
  g.lent.window.reset();
}

/// May end `g` at once.
void lender::lend_out(grant& g, verbs::access access, duration lease) {
  prepare(g, access);
  g.lease = lease;
  if (!g.lent.window) return open(g);
  g.bind.emplace(context_.data.post(bind_of(g)));
  g.bind->notify_inline();
  if (g.bind->start(g, {})) on_bound(g);
}

std::coroutine_handle<> lender::on_done(waiter& self) noexcept {
  auto& g = static_cast<grant&>(self);
  if (g.bind)
    g.home->on_bound(g);
  else
    g.home->on_invalidated(g);
  return std::noop_coroutine();
}

void lender::on_bound(grant& g) noexcept {
  const result<std::uint32_t> bound = g.bind->take_result();
  g.bind.reset();
  if (bound.has_value()) {
    g.lent.window->bound(*bound);
    return open(g);
  }
  // Refused before it was posted; or by the device, which has broken the queue pair.
  queue_pair& data = context_.data;
  g.bind_failure =
      data.has_failed() ? data.failure_reason().to_failure(data.verbs().num()) : bound.failure();
  if (g.question) {
    agent_protocol::frame no{
        .kind = kind::refused, .tag = g.tag, .status = std::uint32_t(errc::refused)};
    context_.channel.reply(*std::exchange(g.question, std::nullopt), no);
  }
  cut(g);
}

void lender::open(grant& g) noexcept {
  g.state = grant::stage::open;
  if (g.end_is_wanted) {
    g.is_given_back = true;  // The peer has not heard of it.
    return close(g);
  }
  g.expires = context_.home.after(g.lease);
  context_.home.rearm(g, g.expires);
  if (g.question) {
    ++context_.counters.granted;
    context_.channel.reply(*std::exchange(g.question, std::nullopt), terms_of(g, kind::granted));
  } else {
    ++context_.counters.offered;
    g.notice.frame = terms_of(g, kind::offer);
    context_.channel.send(g.notice);
  }
  g.bound.set();
}

// ---- what the holder says
// ------------------------------------------------------------------------

void lender::on_accept(const frame& f) noexcept {
  grant* const g = ids_.find(f.lease);
  if (g == nullptr || g->tag != 0 || g->state == grant::stage::binding) return;  // Not yet offered.
  g->tag = f.tag;
  if (g->state != grant::stage::open) return;
  g->expires = context_.home.after(g->lease);
  context_.home.rearm(*g, g->expires);
}

void lender::on_renew(const frame& f, unsigned slot) noexcept {
  grant* const g = ids_.find(f.lease);
  if (g == nullptr || g->tag != f.tag || g->state != grant::stage::open)
    return refuse(f, slot, errc::lease_ended);
  const duration lease = std::min<duration>(f.duration, context_.options.lending.lease_max);
  g->expires = std::max(g->expires, context_.home.after(lease));
  context_.home.rearm(*g, g->expires);
  context_.channel.reply(
      slot, {.kind = kind::renewed,
             .tag = f.tag,
             .duration = std::chrono::duration_cast<std::chrono::microseconds>(lease)});
}

void lender::on_give_back(const frame& f) noexcept {
  grant* const g = ids_.find(f.lease);
  if (g == nullptr) return;
  if (g->state == grant::stage::open && f.status == std::uint32_t(errc::lease_expired))
    g->reason = loan_end_reason::expired;
  give_back(*g);
}

void lender::give_back(grant& g) noexcept {
  const bool needs_no_slot = g.state == grant::stage::waiting && g.is_invalid;
  const bool is_unheard = g.state == grant::stage::binding && g.is_inline;
  if (g.state != grant::stage::open && g.state != grant::stage::asked && !needs_no_slot &&
      !is_unheard)
    return;
  g.is_given_back = true;
  close(g);
}

void lender::on_hand_over(const frame& f, unsigned slot) noexcept {
  grant* const g = ids_.find(f.lease);
  const bool is_held = g != nullptr && g->tag == f.tag;
  if (is_held && g->state == grant::stage::open) {
    g->question = slot;
    g->is_handed_over = g->was_asked_for;
    g->is_given_back = true;
    return close(*g);
  }
  refuse(f, slot, errc::lease_ended);
  if (!is_held || g->state != grant::stage::asked) return;
  g->is_given_back = true;
  close(*g);
}

// ---- ending
// --------------------------------------------------------------------------------------

void lender::end(grant& g, loan_end_reason why) noexcept {
  if (g.is_inline && g.state == grant::stage::binding) return give_back(g);
  if (g.state == grant::stage::binding && !g.end_is_wanted) {
    g.end_is_wanted = true;
    g.reason = why;
  }
  if (g.state != grant::stage::open) return;
  g.reason = why;
  if (g.notice.is_linked()) {
    g.is_given_back = true;  // The peer has not heard of it.
    return close(g);
  }
  g.state = grant::stage::asked;
  if (!g.is_inline) {
    g.notice.frame = {.kind = kind::revoke, .tag = g.tag, .lease = g.id};
    context_.channel.send(g.notice);
  }
  context_.home.rearm(g, context_.home.after(context_.options.lending.grace));
}

void lender::on_timer(timer& self) noexcept {
  auto& g = static_cast<grant&>(self);
  switch (g.state) {
    case grant::stage::open: return g.home->end(g, loan_end_reason::expired);
    case grant::stage::asked: return g.home->close(g);
    case grant::stage::invalidating:
      // The queue pair does not get there. In ERROR it lets nobody in, and the window can go.
      return g.home->context_.break_connection(errc::timed_out, "revoke");
    default: return;
  }
}

/// The peer has given it back, or had its time: its access ends.
void lender::close(grant& g) noexcept {
  g.notice.unlink();
  if (!g.is_given_back) ++context_.counters.forced;
  if (g.isolation == isolation::shared_key) return cut(g);
  // By a message; or nobody ever heard of it. When its bind may be what broke the queue pair, the
  // window goes with that.
  const bool is_unheard = g.state == grant::stage::binding;
  if (g.is_invalid || is_unheard) {
    if (!is_unheard || !context_.data.has_failed()) return_window(g);
    return cut(g);
  }
  if (can_invalidate()) return start_invalidation(g);
  g.state = grant::stage::waiting;
  g.list_hook<grant>::unlink();
  waiting_.push_back(g);
}

/// By a reserved slot of the send queue, which our program cannot take from us, or one to spare.
bool lender::can_invalidate() const noexcept {
  return invalidating_ < agent::reserved_slots || context_.data.sends().has_room();
}

void lender::start_invalidation(grant& g) noexcept {
  g.state = grant::stage::invalidating;
  ++invalidating_;
  context_.home.rearm(g, context_.home.about_after(context_.options.lending.revoke_deadline));
  context_.data.post_urgent(g.invalidation, cordma::invalidate(g.lent.window->rkey()));
  g.invalidation->notify_inline();
  if (g.invalidation->start(g, {})) on_invalidated(g);
}

void lender::on_invalidated(grant& g) noexcept {
  const result<std::uint32_t> outcome = g.invalidation->take_result();
  const bool is_done = outcome.has_value();
  // What the device says broke the queue pair, or will when this has returned.
  const bool is_told = !is_done && outcome.failure().code.category() == wc_category();
  g.invalidation.reset();
  g.disarm();
  --invalidating_;
  if (is_done)
    return_window(g);
  else if (!is_told && !context_.data.has_failed())
    context_.break_connection(errc::disconnected, "invalidate");
  cut(g);
  // When the queue pair has failed they all end at once, soon: not here, each in the one before.
  while (!failed_ && !context_.data.has_failed() && !waiting_.empty() && can_invalidate()) {
    grant& next = waiting_.pop_front();
    grants_.push_back(next);
    start_invalidation(next);
  }
}

/// Takes what is left of the peer's access away: with a window only when the queue pair is in
/// ERROR.
void lender::cut(grant& g) noexcept {
  int rc = 0;
  if (g.lent.window) {
    rc = g.lent.window->deallocate();
    if (rc == 0) g.lent.window.reset();
  }
  if (rc == 0 && g.lent.registration && !keep(g)) {
    rc = g.lent.registration->deregister();
    if (rc == 0) g.lent.registration.reset();
  }
  if (rc != 0) {
    ++context_.counters.stranded;
    context_.lending.strand(std::exchange(g.lent, {}));
  }
  finish(g);
}

/// The peer reaches it no more.
void lender::finish(grant& g) noexcept {
  if (g.state != grant::stage::binding) ++counter_of(g.reason);
  if (g.question) {
    context_.channel.reply(*std::exchange(g.question, std::nullopt),
                           {.kind = kind::handed_over, .tag = g.tag});
  }
  if (!g.is_handed_over) return forget(g);
  g.state = grant::stage::received;
  g.list_hook<grant>::unlink();
  received_.push_back(g);
  arrival_.set();
}

std::uint64_t& lender::counter_of(loan_end_reason why) noexcept {
  lending_counters& counters = context_.counters;
  switch (why) {
    case loan_end_reason::returned: return counters.returned;
    case loan_end_reason::expired: return counters.expired;
    case loan_end_reason::revoked: return counters.revoked;
    case loan_end_reason::disconnected: break;
  }
  return counters.disconnected;
}

void lender::forget(grant& g) noexcept {
  g.disarm();
  g.list_hook<grant>::unlink();
  if (!g.is_inline) ids_.erase(g.id);
  if (g.was_asked_for) asked_bytes_ -= g.cost;
  if (!g.is_kept) context_.lending.release(g.cost);
  --context_.counters.open;
  context_.counters.bytes_lent -= g.size_bytes;
  g.state = grant::stage::ended;
  g.home = nullptr;
  if (!g.has_loan) {
    inline_grant* const owner = g.owner;
    recycle(g);
    if (owner != nullptr) owner->end();
    return;
  }
  // One of them has somebody waiting, who may destroy it all when it is set.
  event& awaited = g.bound.is_set() ? g.ended : g.bound;
  (&awaited == &g.bound ? g.ended : g.bound).set();
  awaited.set();
}

/// What messages carry comes and goes with each, and leaves most of it as it was.
void lender::recycle(grant& g) noexcept {
  if (!g.is_inline || failed_ || !frame_cache::is_recycling) {
    delete &g;
    return;
  }
  g.home = this;
  g.lent.registration.reset();
  g.lent.memory = {};
  g.owner = nullptr;
  g.is_given_back = g.is_invalid = g.end_is_wanted = false;
  g.state = grant::stage::binding;
  g.reason = loan_end_reason::returned;
  free_.push_front(g);
}

void lender::fail(const failure& why) noexcept {
  if (failed_) return;
  failed_ = why;
  while (!stock_.is_empty()) drop_kept();
  grants_.splice_back(waiting_);
  while (!grants_.empty()) {
    grant& g = grants_.front();
    if (g.state == grant::stage::binding || g.state == grant::stage::open)
      g.reason = loan_end_reason::disconnected;
    if (g.state == grant::stage::binding) g.bind_failure = why;
    g.question.reset();
    g.notice.unlink();
    g.bind.reset();
    g.invalidation.reset();
    cut(g);
  }
  arrival_.set();
}

// ---- our program's side
// --------------------------------------------------------------------------

task<loan> lender::lend(local_mr memory, loan_options options) {
  check_loan(memory, options);
  grant& g = make(memory.size_bytes(), memory.size_bytes());
  g.has_loan = true;
  loan made{g};
  g.lent.memory = std::move(memory);
  try {
    lend_out(g, options.access, options.lease);
  } catch (...) {
    forget(g);
    throw;
  }
  co_await g.bound.wait();
  if (g.bind_failure) throw error{*g.bind_failure};
  co_return made;
}

task<local_mr> lender::receive() {
  while (received_.empty()) {
    if (failed_) throw error{*failed_};
    arrival_.reset();
    co_await arrival_.wait();
  }
  const environment env = co_await current_environment();
  if (env.stop.stop_requested()) throw cancelled{};  // Nobody takes what it would give.
  grant& g = received_.front();
  local_mr memory = std::move(g.lent.memory);
  forget(g);
  co_return memory;
}

void lender::list(std::vector<lease_info>& into) {
  const time_point now = context_.home.now();
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
    if (g.is_inline) add(g);
  });
}

// ---- what a message carries
// ---------------------------------------------------------------------

void lender::lend_inline(inline_grant& l, local_mr memory, verbs::access access) {
  check_loan(memory, {.access = access});
  if (context_.data.sends().batch_max() <= inline_grant::per_message_max)
    refuse_to_lend(errc::limit_exceeded, "beside a message: send_wr_max of 5 or more");
  grant& g = make(memory.size_bytes(), memory.size_bytes(), true);
  g.expires = time_point::max();
  g.lent.memory = std::move(memory);
  try {
    prepare(g, access);
  } catch (...) {
    forget(g);
    throw;
  }
  g.owner = &l;
  l.grant_ = &g;
}

void lender::open_inline(grant& g) noexcept {
  g.state = grant::stage::open;
  if (g.lent.window) g.lent.window->bound(g.remote.rkey());
  ++context_.counters.offered;
}

bool inline_grant::needs_bind() const noexcept { return grant_->lent.window.has_value(); }
bind_request inline_grant::bind() const noexcept {
  bind_request bind = grant_->home->bind_of(*grant_);
  bind.send_flags = 0;
  return bind;
}

void inline_grant::posted() noexcept { grant_->home->open_inline(*grant_); }

loan_terms inline_grant::terms() const noexcept {
  return {.address = grant_->remote.address(),
          .length = grant_->size_bytes,
          .rkey = grant_->remote.rkey(),
          .isolation = grant_->isolation};
}

void inline_grant::give_back(std::optional<std::uint32_t> invalidated) noexcept {
  if (grant_ == nullptr) return;
  if (invalidated == grant_->remote.rkey()) grant_->is_invalid = true;
  grant_->home->give_back(*grant_);
}

void inline_grant::revoke() noexcept {
  if (grant_ != nullptr) grant_->home->end(*grant_, loan_end_reason::revoked);
}

void inline_grant::leave(bool is_known) noexcept {
  grant_->owner = nullptr;
  if (is_known)
    revoke();
  else
    give_back();
  grant_ = nullptr;
}

// ---- loan
// ----------------------------------------------------------------------------------------

namespace {

task<loan_end> end_of(grant& g) {
  co_await g.ended.wait();
  co_return loan_end{std::move(g.lent.memory), g.reason};
}

}  // namespace

task<loan_end> loan::ended() {
  CORDMA_ASSERT(grant_ != nullptr, "used an empty loan");
  return end_of(*grant_);
}
task<loan_end> loan::revoke() {
  CORDMA_ASSERT(grant_ != nullptr, "used an empty loan");
  if (grant_->home != nullptr) grant_->home->end(*grant_, loan_end_reason::revoked);
  return end_of(*grant_);
}
bool loan::has_ended() const noexcept { return grant_->state == grant::stage::ended; }
isolation loan::isolation() const noexcept { return grant_->isolation; }
std::size_t loan::size_bytes() const noexcept { return grant_->size_bytes; }
remote_mr_slice loan::remote_slice() const noexcept { return grant_->remote; }

void loan::drop() noexcept {
  grant* const g = std::exchange(grant_, nullptr);
  if (g == nullptr) return;
  g->has_loan = false;
  if (g->home == nullptr)
    delete g;
  else
    g->home->end(*g, loan_end_reason::revoked);
}

}  // namespace cordma
