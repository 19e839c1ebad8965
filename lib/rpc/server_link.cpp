#include "base/caught.hpp"
#include "base/failures.hpp"
#include "server_core.hpp"

#include <cinttypes>
#include <new>
#include <utility>

namespace cordma::rpc::detail {

using call_protocol::bulk;
using call_protocol::header_bytes;
using call_protocol::kind;
using call_protocol::status;
using cordma::detail::detail_text;
using cordma::detail::throw_failure;
using message_protocol::throw_bad_frame;

namespace {

bool lends(const header& h) noexcept { return (h.bulk & call_protocol::loans) != 0; }

bulk first_of(const header& h) noexcept {
  return (h.bulk & call_protocol::source) != 0 ? call_protocol::source : call_protocol::sink;
}

}  // namespace

// ---- a call

incoming_call::incoming_call() noexcept
    : encoded_message{&server_link::on_sent},
      waiter{&server_link::on_step},
      timer{&server_link::on_deadline} {}

void incoming_call::open(server_link& l, arrived_message& a, const header& h) noexcept {
  link = &l;
  asked = h;
  if (!is_ours(asked)) [[unlikely]]
    asked.bulk = call_protocol::no_bulk;  // Another version may put anything there.
  request = l.deliver(a);
}

/// Resets the object in any state. Doing it now spares the next call the time.
void incoming_call::close() noexcept {
  if (is_gone != nullptr) *is_gone = true;
  disarm();
  list_hook<waiter>::unlink();
  take_back();
  body.reset();
  static_cast<call_state&>(*this) = {};
  begin_anew();
  stop.emplace();
}

time_point incoming_call::deadline() noexcept {
  if (!until) {
    until = asked.value == call_protocol::no_deadline
                ? time_point::max()
                : link->executor().about_after(std::chrono::microseconds{asked.value});
  }
  return *until;
}

trace_context incoming_call::trace() const noexcept {
  if (has_span) return span.context;
  if ((asked.bulk & call_protocol::trace) == 0) return {};
  return call_protocol::context_of(request.bytes());
}

// ---- a connection

server_link::server_link(server_core& core, const channel_resources& resources, connection* conn)
    : message_channel{resources, core.options_.stream, order::any}, core_{&core}, conn_{conn} {}

void server_link::tell_if_finished() noexcept {
  if (is_finished()) finished_.set();
}

void server_link::drain() noexcept {
  is_ending_ = true;
  accept();  // Calls that wait in the inbox are refused.
  tell_if_finished();
}

void server_link::reject() noexcept {
  is_turning_away_ = true;
  drain();
}

void server_link::stop_calls() noexcept {
  is_stopping_ = true;
  calls_.for_each([](incoming_call& c) { c.stop->request_stop(); });
  drop_answers();
}

void server_link::drop_answers() noexcept {
  constexpr auto waits = [](const incoming_call& c) { return c.is_answering; };
  while (incoming_call* const c = calls_.find(waits)) end(*c);
}

void server_link::leave() noexcept {
  while (!calls_.empty()) end(calls_.front());
  starved_.unlink();
  core_ = nullptr;
}

void server_link::stop() noexcept {
  is_ending_ = true;
  is_turning_away_ = false;
  stop_calls();
  tell_if_finished();
}

void server_link::on_control(std::span<const std::byte> bytes) {
  const header h = call_protocol::decode(bytes, true);
  if (!is_ours(h) || core_ == nullptr) return;
  if (h.kind != kind::cancel) throw_bad_frame("returns what it was not lent", "rpc");
  const auto is_it = [&](const incoming_call& c) { return c.asked.call == h.call; };
  if (incoming_call* const c = calls_.find(is_it)) return cancel(*c);
  // The call may wait in the inbox.
  const auto asks_for_it = [&](const arrived_message& a) {
    const auto request = a.bytes;
    return request.size() >= header_bytes && call_protocol::call_in(request) == h.call;
  };
  if (arrived_message* const a = inbox().find(asks_for_it)) {
    const header asked = request_in(*a);
    const bool has_lent = is_ours(asked) && lends(asked);
    stream_message request = deliver(*a);
    ++core_->counters.calls;
    ++core_->counters.stopped;
    // Last: sending may let others begin. The note keeps the request's buffer until it is sent, so
    // that there are never more notes than buffers.
    if (has_lent) tell_returned(h.call, false, std::move(request));
  } else if (cancelled_.size() < core_->options_.stream.depth) {
    cancelled_.push_back(h.call);
  } else {
    cancelled_[cancelled_oldest_++ % cancelled_.size()] = h.call;
  }
}

/// Stops a call, and ends its use of the caller's memory at once.
void server_link::cancel(incoming_call& c) noexcept {
  c.stop->request_stop();
  // An answer that waits may come after the client has revoked its memory.
  if (c.is_answering) c.immediate.reset();
  if (!lends(c.asked) || std::exchange(c.is_over, true)) return;
  c.is_in_use |= stop_using(c);
  tell_returned(c.asked.call, c.is_in_use);
}

void server_link::accept() noexcept {
  if (core_ == nullptr || is_accepting_) return;
  const channel_ref stay{*this};
  is_accepting_ = true;
  while (core_ != nullptr && is_open() && !inbox().empty() &&
         (is_ending_ || running_ < core_->options_.calls_per_connection_max)) {
    if (!is_ending_ && core_->is_full()) {
      if (!starved_.is_linked()) core_->starved_.push_back(starved_);
      break;
    }
    try {
      begin(inbox().front());
    } catch (...) {
      break_connection(caught("rpc"));
    }
  }
  is_accepting_ = false;
}

/// \errors errc::bad_frame: not a request.
inline header server_link::request_in(const arrived_message& a) {
  const header h = call_protocol::decode(a.bytes, false);
  if (is_ours(h) && h.kind != kind::request) [[unlikely]]
    throw_bad_frame("answers a server", "rpc");
  return h;
}

inline void server_link::begin(arrived_message& a) {
  const header h = request_in(a);
  incoming_call& c = core_->begin();
  c.open(*this, a, h);
  calls_.push_back(c);
  ++running_;
  if (core_->spans_ != nullptr) [[unlikely]]
    begin_span(c);
  if (!is_ours(h)) [[unlikely]]
    return refuse(c, status::unknown_version, "this server speaks version 1");
  if (is_ending_) [[unlikely]]
    return refuse(c, status::shutting_down, "the server takes no more calls");
  if (c.request.is_large() && was_cancelled(h.call)) [[unlikely]] {
    c.is_over = true;
    return refuse(c, status::stopped, "stopped before it was read");
  }
  c.method = core_->find(h.method);
  if (c.method == nullptr) [[unlikely]] {
    const auto text = detail_text("the server has no method 0x%016" PRIx64, h.method);
    return refuse(c, status::unknown_method, text.view());
  }
  executor().schedule(c);
}

void server_link::begin_span(incoming_call& c) noexcept {
  const served_method* const method = is_ours(c.asked) ? core_->find(c.asked.method) : nullptr;
  c.span = {.kind = tracer::span_kind::server,
            .method = method != nullptr ? method->name : std::string_view{},
            .peer = conn_ != nullptr ? &conn_->peer() : nullptr};
  core_->spans_->begin(c.span, c.trace(), executor());
  c.has_span = true;
}

void server_link::end_span(incoming_call& c) noexcept {
  if (!c.span.context.is_sampled()) return;
  if (!c.is_counted) c.span.outcome = failed() ? failed()->code : make_error_code(errc::closed);
  core_->spans_->end(c.span, executor());
}

bool server_link::was_cancelled(std::uint64_t call) const noexcept {
  return std::ranges::find(cancelled_, call) != cancelled_.end();
}

std::coroutine_handle<> server_link::on_step(cordma::waiter& self) noexcept {
  auto& c = static_cast<incoming_call&>(self);
  if (c.is_answering) [[unlikely]] {
    c.link->refuse(c, status::handler_failed, c.text.view());
  } else if (c.is_started) {
    c.link->finish(c);
  } else {
    c.link->run(c);
  }
  return std::noop_coroutine();
}

inline void server_link::run(incoming_call& c) noexcept {
  c.is_started = true;
  if (c.stop->stop_requested()) return refuse(c, status::stopped, "stopped before it began");
  try {
    c.body = c.method->begin(c.room);
    const auto request = c.request.bytes().subspan(call_protocol::head_bytes(c.asked.bulk));
    if (!c.body->start(request, c.context, c, {&executor(), *c.stop})) {
      if (c.deadline() != time_point::max()) executor().arm(c, c.deadline());
      return;
    }
  } catch (...) {
    const bool is_decoded = c.body != nullptr && c.body->is_decoded;
    return refuse_caught(c, is_decoded ? status::handler_failed : status::bad_request);
  }
  finish(c);
}

void server_link::on_deadline(timer& self) noexcept {
  auto& c = static_cast<incoming_call&>(self);
  if (!c.is_answering) return c.stop->request_stop();
  c.link->break_connection({.code = errc::timed_out,
                            .call = "rpc",
                            .detail = "the client did not take an answer within answer_timeout"});
}

inline void server_link::finish(incoming_call& c) noexcept {
  c.disarm();
  if (failed()) return end(c);
  const encodable_ref* reply = nullptr;
  try {
    reply = &c.body->end();
  } catch (const cancelled&) {
    if (c.stop->stop_requested()) return refuse(c, status::stopped, "the handler was stopped");
    return refuse(c, status::handler_failed, "it threw cancelled, and nobody had stopped it");
  } catch (const std::bad_alloc& e) {
    return refuse(c, status::handler_failed, e.what());  // The handler has run.
  } catch (...) {
    return refuse_caught(c, status::handler_failed);
  }
  try {
    answer(c, kind::reply, 0, *reply);
  } catch (const error& e) {
    const bool is_long = e.failure().code == errc::wrong_length;
    refuse(c, is_long ? status::reply_too_large : status::handler_failed, e.what());
  } catch (const std::bad_alloc&) {
    refuse(c, status::out_of_memory, "the server has no memory for the reply");
  } catch (...) {
    refuse_caught(c, status::handler_failed);
  }
}

/// Answers with the exception that a `catch` handles now.
void server_link::refuse_caught(incoming_call& c, status why) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    refuse(c, status::out_of_memory, "the server has no memory for the call");
  } catch (const std::exception& e) {
    refuse(c, why, e.what());
  } catch (...) {
    refuse(c, why, "it threw what is no std::exception");
  }
}

/// Answers with a failure.
void server_link::refuse(incoming_call& c, status why, std::string_view text) noexcept {
  c.is_gone = nullptr;
  if (failed()) return end(c);
  // At the deadline what was lent ends, which the handler may notice before its stop comes.
  if (why == status::handler_failed && c.until && executor().now() >= *c.until)
    why = status::stopped;
  server_counters& n = core_->counters;
  switch (why) {
    case status::handler_failed:
    case status::out_of_memory: ++n.failed; break;
    case status::reply_too_large: ++n.too_large; break;
    case status::stopped: ++n.stopped; break;
    default: ++n.refused;
  }
  c.is_counted = true;
  c.text = text.substr(0, peer().buffer_bytes - header_bytes);
  if (c.has_span) [[unlikely]] {
    c.span.outcome = code_of(why);
    c.span.text = c.text.view();
  }
  answer(c, kind::failure, std::uint32_t(why), encodable_ref{c.text.view()});
}

/// Sends the answer. The call is mostly closed when this returns.
inline void server_link::answer(incoming_call& c, kind k, std::uint32_t value,
                                const encodable_ref& what) {
  c.is_answering = true;
  bool is_gone = false;
  c.is_gone = &is_gone;
  c.encoded_message::begin({.kind = k, .value = value, .call = c.asked.call});
  if (lends(c.asked)) [[unlikely]]
    end_loans(c);
  c.send(*this, what);
  if (is_gone) [[likely]]
    return;
  c.is_gone = nullptr;
  if (is_stopping_) return drop_answers();
  executor().rearm(c, executor().after(core_->options_.answer_timeout));
}

/// An answer is posted, or cannot be sent. Then a failure is sent in place of a reply.
void server_link::on_sent(encoded_message& self, const std::optional<failure>& why) noexcept {
  auto& c = static_cast<incoming_call&>(self);
  const bool is_reply = !c.is_counted;
  if (why && is_reply && !c.link->failed()) [[unlikely]] {
    c.disarm();
    // The failure's text needs no memory, which may be what was missing.
    c.text = why->detail.empty() ? "the reply cannot be sent" : why->detail.view();
    return c.link->executor().schedule(c);  // `answer` still uses the call.
  }
  if (is_reply && !why) {
    c.is_counted = true;
    ++c.link->core_->counters.replied;
  }
  c.link->end(c);
}

void server_link::end(incoming_call& c) noexcept {
  const channel_ref stay{*this};
  // Destroyed last: giving its buffer back may post frames.
  const stream_message request = std::move(c.request);
  if (c.has_span) [[unlikely]]
    end_span(c);
  if (!c.is_counted) ++core_->counters.stopped;
  if (lends(c.asked)) stop_using(c);
  c.list_hook<incoming_call>::unlink();
  c.close();
  --running_;
  is_turning_away_ = false;
  core_->end(c);
  accept();
  tell_if_finished();
}

// ---- the caller's memory

task<local_mr> server_link::fetch(incoming_call& c, std::size_t bytes_max) {
  const remote_mr from = borrow(c, call_protocol::source);
  if (from.size_bytes() > bytes_max) {
    throw_failure(
        errc::wrong_length, "fetch_source",
        detail_text("a source of %zu bytes, the handler takes %zu", from.size_bytes(), bytes_max));
  }
  local_mr here = memory().allocate_uninitialized(from.size_bytes());
  co_await conn().read(here.slice(), from.slice());
  co_return here;
}

remote_mr server_link::borrow(incoming_call& c, bulk which) {
  const bool is_source = which == call_protocol::source;
  const auto fail = [](const char* what) {
    throw_failure(errc::refused, "rpc::server_call", what);
  };
  if ((c.asked.bulk & which) == 0)
    fail(is_source ? "the caller has no source" : "the caller has no sink");
  if ((c.borrowed & which) != 0) fail("the memory was asked for before");
  if (failed()) throw error{*failed()};
  if (c.is_over) fail("the caller waits no longer");
  const auto access = is_source ? verbs::access::remote_read : verbs::access::remote_write;
  remote_mr lent =
      agent()->borrows.borrow_inline(call_protocol::terms_of(c.request.bytes(), which), access,
                                     c.deadline(), c.borrowings[is_source ? 0 : 1]);
  c.borrowed |= which;
  return lent;
}

/// True: requests on the caller's memory are in flight.
bool server_link::stop_using(incoming_call& c) noexcept {
  bool is_in_use = false;
  for (std::uint64_t& number : c.borrowings)
    if (number != 0 && agent() != nullptr)
      is_in_use |= agent()->borrows.end_along(std::exchange(number, 0));
  return is_in_use;
}

/// Ends the call's loans by the answer, which is sent next. The answer can invalidate one of the
/// caller's windows, and spare the caller that.
void server_link::end_loans(incoming_call& c) noexcept {
  c.is_in_use |= stop_using(c);
  c.is_fenced = c.is_in_use;
  // A fence may delay it. The caller may have its memory back already: by `cancel`, or by an answer
  // that it has read.
  if (c.is_in_use || c.is_over || c.is_known() || agent() == nullptr) return;
  const loan_terms first = call_protocol::terms_of(c.request.bytes(), first_of(c.asked));
  if (!agent()->can_invalidate(first)) return;
  c.immediate = first.rkey;
  c.is_invalidation = true;
}

/// Tells the caller that its memory is not used any more, ahead of the answer or in its place.
void server_link::tell_returned(std::uint64_t call, bool is_fenced, stream_message kept) noexcept {
  try {
    auto* const note = new call_note{{.kind = kind::returned, .call = call}};
    note->is_fenced = is_fenced;
    note->kept = std::move(kept);
    send(*note);
  } catch (const std::bad_alloc&) {
    // The client revokes it itself.
  }
}

}  // namespace cordma::rpc::detail
