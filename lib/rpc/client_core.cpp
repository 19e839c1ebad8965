#include "client_core.hpp"

#include "base/caught.hpp"

#include <algorithm>
#include <new>
#include <string_view>

namespace cordma::rpc::detail {

using call_protocol::kind;
using call_protocol::status;
using message_protocol::throw_bad_frame;

namespace {

constexpr unsigned index_bits = 16;

}  // namespace

call_slot::call_slot(client_core& c, std::uint16_t i) noexcept
    : encoded_message{&client_core::on_sent},
      timer{&client_core::on_deadline},
      suspension{&client_core::on_stop},
      core{c},
      index{i} {}

call_slot::lending::lending(call_slot& s) noexcept
    : inline_grant{&client_core::on_loan_ended}, slot{s} {}

client_core::client_core(cordma::executor& executor, const client_options& options,
                         client::connector connect)
    : waiter{&on_connect_done},
      executor_{executor},
      options_{options},
      spans_{call_spans::make(options.tracer)},
      connector_{std::move(connect)} {
  check(options);
}

client_core::~client_core() = default;

// ---- a call

inline call_slot& client_core::begin(const call_target& target) {
  if (free_.empty()) {
    const std::size_t index = slots_.size();
    if (index > UINT16_MAX)
      throw error{{.code = errc::limit_exceeded,
                   .call = target.name,
                   .detail = "a client has at most 65536 calls, waiting ones included"}};
    slots_.push_back(std::make_unique<call_slot>(*this, std::uint16_t(index)));
    free_.push_back(*slots_.back());
  }
  call_slot& s = free_.pop_front();
  s.number = ((s.number >> index_bits) + 1) << index_bits | s.index;
  s.target = &target;
  s.begin_anew();
  s.is_in_flight = s.has_lent = s.is_ending = s.has_ended = s.is_abandoned = s.is_repeated = false;
  s.was_stopped = s.has_context = s.is_traced = false;
  return s;
}

inline bool client_core::start(call_slot& s, const call_options& options,
                               const encodable_ref& request, waiter& w,
                               const environment& env) noexcept {
  ++counters_.calls;
  s.options = &options;
  s.request = &request;
  if (env.stop.stop_requested()) {
    ++counters_.stopped;
    return s.was_stopped = s.has_ended = true;
  }
  if (spans_ != nullptr || !options.trace.is_none()) [[unlikely]]
    begin_span(s, options.trace);
  const duration limit = s.options->timeout.value_or(options_.call_timeout);
  const bool goes_now = waiting_.empty() && may_send();
  // Before the timer is armed, so that the server works meanwhile. For the same reason a call that
  // ends leaves its timer armed: the slot's next call can send first.
  if (goes_now) send(s, limit);
  if (s.has_ended) return true;
  s.deadline = executor_.about_after(limit);
  executor_.rearm(s, s.deadline);
  if (!goes_now) {
    waiting_.push_back(s);
    pump();
  }
  if (s.has_ended) return true;
  s.suspension::begin(w, {env.scheduler != nullptr ? env.scheduler : &executor_, env.stop});
  return false;
}

inline stream_message client_core::take(call_slot& s) {
  if (s.was_stopped) throw cancelled{};
  if (s.why) throw error{*s.why};
  return std::move(s.reply);
}

void client_core::leave(call_slot& s) noexcept {
  if (!s.has_ended) {
    s.suspension::forget();
    s.is_abandoned = true;
    return stop(s);
  }
  s.reply.reset();
  s.why.reset();
  free_.push_front(s);
}

/// Sends waiting calls while there is room. `fail` may call this again, which then does nothing.
void client_core::pump() noexcept {
  if (is_pumping_) return;
  const cordma::detail::counted_ref stay{*this};
  is_pumping_ = true;
  while (!waiting_.empty()) {
    if (link_ == nullptr || shut_) {
      if (!shut_ && can_connect()) {
        connect();
        break;
      }
      fail(waiting_.front(), shut_ ? *shut_ : *why_lost_, counters_.lost);
    } else {
      if (!may_send()) break;
      call_slot& next = waiting_.pop_front();
      send(next, next.deadline - executor_.now());
    }
  }
  is_pumping_ = false;
}

inline bool client_core::may_send() const noexcept {
  return link_ != nullptr && !shut_ && link_->is_open() && in_flight_count_ < options_.calls_max;
}

inline void client_core::send(call_slot& s, duration limit) noexcept {
  in_flight_.push_back(s);
  ++in_flight_count_;
  s.is_in_flight = true;
  header h{.call = s.number, .method = s.target->id};
  if (s.options->source.size_bytes() != 0) h.bulk |= call_protocol::source;
  if (s.options->sink.size_bytes() != 0) h.bulk |= call_protocol::sink;
  if (s.has_context) h.bulk |= call_protocol::trace;
  const auto left = std::chrono::ceil<std::chrono::microseconds>(limit).count();
  h.value = std::uint32_t(std::clamp<std::int64_t>(left, 0, call_protocol::no_deadline));
  try {
    s.encoded_message::begin(h);
    if (s.has_context) [[unlikely]]
      s.add(s.span.context);
    if ((h.bulk & call_protocol::loans) != 0) [[unlikely]]
      lend(s);
    s.encoded_message::send(*link_, *s.request);
  } catch (...) {
    // A call that is not in flight was told of the link's failure.
    if (s.is_in_flight) fail(s, caught("rpc"), counters_.refused);
  }
}

void client_core::on_sent(encoded_message& self, const std::optional<failure>& why) noexcept {
  auto& s = static_cast<call_slot&>(self);
  // A link that has failed is about to call `on_link_closed`.
  if (why && s.core.link_ != nullptr && !s.core.link_->failed())
    s.core.fail(s, *why, s.core.counters_.refused);
}

// ---- its end

void client_core::on_deadline(timer& self) noexcept {
  auto& s = static_cast<call_slot&>(self);
  if (s.is_ending || s.has_ended) return;
  failure why{.code = errc::timed_out,
              .detail = s.may_have_run() ? "the server did not answer before the deadline"
                        : s.is_repeated  ? "lost, and not sent again before the deadline"
                                         : "not sent before the deadline"};
  if (!s.may_have_run() && s.core.link_ == nullptr) s.core.say_why_not_connected(why);
  note_failure(s, why, s.core.counters_.timed_out);
  s.core.give_up(s);
}

void client_core::on_stop(stop_callback& self) noexcept {
  auto& s = static_cast<call_slot&>(static_cast<suspension&>(self));
  s.core.stop(s);
}

void client_core::stop(call_slot& s) noexcept {
  if (s.is_ending) return;
  s.was_stopped = true;
  ++counters_.stopped;
  give_up(s);
}

void client_core::note_failure(call_slot& s, const failure& why,
                               std::uint64_t& counted_in) noexcept {
  s.why = why;
  s.why->call = s.target->name;
  ++counted_in;
}

void client_core::fail(call_slot& s, const failure& why, std::uint64_t& counted_in) noexcept {
  if (!s.is_ending) note_failure(s, why, counted_in);
  settle(s);
}

/// Ends a call whose outcome is set. Tells the server, if that may know of the call.
void client_core::give_up(call_slot& s) noexcept {
  s.is_ending = true;
  if (s.is_in_flight && s.may_have_run()) cancel(s.number);
  settle(s);
}

/// Ends a call whose outcome is set: with the return of what it lent, which the server may still
/// use while there is a connection.
void client_core::settle(call_slot& s) noexcept {
  s.is_ending = true;
  if (link_ != nullptr && s.may_have_run()) {
    for (inline_grant& l : s.loans) l.revoke();
    if (s.is_lending()) return;
  }
  if (!s.has_ended) end(s);
}

/// Ends the call, and tells the operation.
void client_core::end(call_slot& s) noexcept {
  s.list_hook<call_slot>::unlink();
  if (std::exchange(s.is_in_flight, false) && --in_flight_count_ == 0 && shut_)
    none_in_flight_.set();
  s.take_back();
  for (inline_grant& l : s.loans) l.drop(s.may_have_run());
  s.has_ended = true;
  if (s.is_traced) [[unlikely]]
    end_span(s);
  if (s.is_abandoned) {
    leave(s);
  } else if (s.is_waiting()) {
    s.suspension::end();
  }
  if (!waiting_.empty()) pump();
}

void client_core::begin_span(call_slot& s, const trace_context& parent) noexcept {
  s.span = {.kind = tracer::span_kind::client, .method = s.target->name};
  if (spans_ != nullptr) {
    spans_->begin(s.span, parent, executor_);
    s.is_traced = s.span.context.is_sampled();
  } else {
    s.span.context = parent;
  }
  s.has_context = !s.span.context.is_none();
}

void client_core::end_span(call_slot& s) noexcept {
  if (conn_) s.span.peer = &conn_.peer();
  if (s.was_stopped) {
    s.span.outcome = std::make_error_code(std::errc::operation_canceled);
  } else if (s.why) {
    s.span.outcome = s.why->code;
    s.span.text = s.why->detail.view();
  }
  spans_->end(s.span, executor_);
}

void client_core::cancel(std::uint64_t number) noexcept {
  if (link_ == nullptr) return;
  try {
    link_->send(*new call_note{{.kind = kind::cancel, .call = number}});
  } catch (const std::bad_alloc&) {
    // The server stops the call at its deadline.
  }
}

inline call_slot* client_core::find(std::uint64_t number) noexcept {
  const std::size_t index = number & ((1u << index_bits) - 1);
  if (index >= slots_.size()) return nullptr;
  call_slot& s = *slots_[index];
  return s.number == number && s.is_in_flight ? &s : nullptr;
}

inline void client_core::on_answer(client_link& from) {
  arrived_message& a = from.inbox().front();
  const header h = call_protocol::decode(a.bytes, false);
  if (is_ours(h) && h.kind == kind::request) [[unlikely]]
    throw_bad_frame("calls a client", "rpc");
  const std::optional<std::uint32_t> invalidated = a.invalidated();
  call_slot* const s = find(h.call);
  if (s == nullptr || s->is_ending) [[unlikely]] {
    ++counters_.late;
    const stream_message late = from.deliver();
    if (s != nullptr) give_back(*s, invalidated);
    return;
  }
  if (!s->may_have_run()) [[unlikely]]
    throw_bad_frame("answers what was not asked", "rpc");
  if (!is_ours(h)) [[unlikely]] {
    const stream_message unknown = from.deliver();
    give_back(*s, invalidated);
    if (s->has_ended) return;  // The link has failed meanwhile.
    return fail(*s,
                {.code = errc::incompatible_peer,
                 .detail = "the server answers in another version of the protocol"},
                counters_.refused);
  }
  failed_attempts_ = 0;
  // First: giving back a buffer may break the link, which fails calls that are not ending.
  s->is_ending = true;
  if (h.kind == kind::failure) [[unlikely]] {
    const auto text = a.bytes.subspan(call_protocol::header_bytes);
    note_failure(
        *s,
        {.code = code_of(status{h.value}),
         .detail = std::string_view{reinterpret_cast<const char*>(text.data()), text.size()}},
        counters_.refused);
    static_cast<void>(from.deliver());
  } else {
    ++counters_.answered;
    s->reply = from.deliver();
  }
  if (s->has_ended) return;
  if (!s->is_lending()) [[likely]]
    return end(*s);
  give_back(*s, invalidated);
}

// ---- bulk

/// Lends the source and the sink: the request carries their terms.
void client_core::lend(call_slot& s) {
  const auto lend_part = [&](call_slot::lending& l, const const_local_mr_slice& part,
                             verbs::access access) {
    if (part.size_bytes() == 0) return;
    link_->lender().lends.lend_inline(l, local_mr::keep(part), access);
    s.add(l);
  };
  lend_part(s.loans[0], s.options->source, verbs::access::remote_read);
  lend_part(s.loans[1], s.options->sink, verbs::access::remote_write);
  s.has_lent = true;
}

/// The server says that it no longer uses what the call lent. `on_loan_ended` tells when the device
/// cannot reach it either.
void client_core::give_back(call_slot& s, std::optional<std::uint32_t> invalidated) noexcept {
  for (inline_grant& l : s.loans) l.give_back(invalidated);
}

void client_core::on_returned(const header& h) {
  call_slot* const s = find(h.call);
  if (s == nullptr) return;  // The call has ended meanwhile.
  if (!s->may_have_run() || !s->has_lent) throw_bad_frame("returns what was not lent", "rpc");
  give_back(*s);
}

void client_core::on_loan_ended(inline_grant& self) noexcept {
  call_slot& s = static_cast<call_slot::lending&>(self).slot;
  // A call that is not ending waits for its answer.
  if (s.is_ending && !s.is_lending() && !s.has_ended) s.core.end(s);
}

// ---- the operation

call_handle::call_handle(client_core& core, const call_target& target) noexcept
    : core_{core}, target_{target} {}

void call_handle::leave::operator()(call_slot* slot) const noexcept { slot->core.leave(*slot); }

bool call_handle::begin(waiter& w, const environment& env) noexcept {
  try {
    slot_.reset(&core_->begin(target_));
  } catch (...) {
    return fail_to_encode(std::current_exception());
  }
  static constexpr call_options none;
  return core_->start(*slot_, options_ ? *options_ : none, *encoded_, w, env);
}

bool call_handle::fail_to_encode(std::exception_ptr why) noexcept {
  why_not_encoded_ = std::move(why);
  return true;
}

scheduler* call_handle::own_scheduler() const noexcept { return &core_->executor(); }

bool call_handle::failed() const noexcept {
  return why_not_encoded_ != nullptr || slot_->was_stopped || slot_->why;
}

stream_message call_handle::end() {
  if (why_not_encoded_) std::rethrow_exception(why_not_encoded_);
  return core_->take(*slot_);
}

std::span<const std::byte> call_handle::reply_in(const stream_message& m) noexcept {
  return m.bytes().subspan(call_protocol::header_bytes);
}

// ---- the link

void client_link::on_message() noexcept {
  if (core_ == nullptr || failed()) [[unlikely]]
    return static_cast<void>(deliver());
  try {
    core_->on_answer(*this);
  } catch (...) {
    break_connection(caught("rpc"));
  }
}

void client_link::on_control(std::span<const std::byte> bytes) {
  const header h = call_protocol::decode(bytes, true);
  if (!is_ours(h) || core_ == nullptr) return;
  if (h.kind != kind::returned) throw_bad_frame("cancels a call of ours", "rpc");
  core_->on_returned(h);
}

void client_link::on_open() noexcept {
  if (core_ != nullptr) core_->pump();
}

void client_link::on_closed() noexcept {
  if (core_ != nullptr) std::exchange(core_, nullptr)->on_link_closed(*failed());
}

}  // namespace cordma::rpc::detail
