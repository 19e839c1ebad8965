#include "base/caught.hpp"
#include "base/failures.hpp"
#include "client_core.hpp"

#include <cordma/io/socket_address.hpp>

#include <algorithm>
#include <utility>

namespace cordma::rpc::detail {

using cordma::detail::detail_text;

namespace {

void say_where(failure& lost, const socket_address& peer) noexcept {
  try {
    lost.detail =
        detail_text("%s: the connection to %s was lost", lost.call, peer.to_string().c_str());
  } catch (const std::bad_alloc&) {
    // The text stays shorter.
  }
}

}  // namespace

// ---- connections

void client_core::attach(cordma::connection conn) {
  conn_ = std::move(conn);
  attach(client_link::resources_of(conn_));
}

void client_core::attach(const channel_resources& resources) {
  auto& link = message_channel::make<client_link>(*this, resources, options_.stream);
  channel_ = channel_ref{link};
  ++counters_.connects;
  if (link.failed()) return;
  link_ = &link;
  pump();
}

void client_core::connect() noexcept {
  if (is_connecting_) return;
  try {
    connecting_.emplace(connect_until_done());
  } catch (const std::bad_alloc&) {
    return fail_waiting(errno_failure(ENOMEM, "connect"));
  }
  is_connecting_ = true;
  // The first attempt is made in a later iteration: this may be the middle of a reap.
  if (connecting_->start(*this, {&executor_, {}})) is_connecting_ = false;
}

std::coroutine_handle<> client_core::on_connect_done(waiter& self) noexcept {
  auto& core = static_cast<client_core&>(self);
  core.is_connecting_ = false;
  core.pump();
  return std::noop_coroutine();
}

/// Waits longer after each attempt, until a server answers.
task<> client_core::connect_until_done() {
  co_await executor_.sleep_for(connect_delay());
  while (!shut_ && link_ == nullptr && !waiting_.empty()) {
    conn_ = {};  // The last attempt may have left one.
    try {
      attach(co_await connector_());
      why_not_connected_.reset();
      ++failed_attempts_;  // Until the first answer.
      co_return;
    } catch (...) {
      why_not_connected_ = caught("the client's connector", errc::disconnected);
    }
    ++failed_attempts_;
    const unsigned most = options_.reconnect.attempts_max;
    if (most != 0 && failed_attempts_ >= most) {
      failed_attempts_ = 0;
      fail_waiting(*why_not_connected_);
    }
    co_await executor_.sleep_for(connect_delay());
  }
}

/// Doubles after each attempt. A random part keeps many clients from connecting at once.
duration client_core::connect_delay() noexcept {
  if (failed_attempts_ == 0) return {};
  const int growth = 1 << std::min(failed_attempts_ - 1, 20u);
  const duration first = options_.reconnect.delay;
  const duration longest =
      std::min(first, duration{options_.reconnect.delay_max} / growth) * growth;
  return longest - longest * (jitter_() % 1024) / 2048;
}

void client_core::say_why_not_connected(failure& late) const noexcept {
  if (!why_not_connected_) return;
  try {
    const auto said = late.detail.view();
    late.detail = detail_text("%.*s: %s", int(said.size()), said.data(),
                              why_not_connected_->to_string().c_str());
  } catch (const std::bad_alloc&) {
    // The text stays shorter.
  }
}

const stream_counters& client_core::stream() const noexcept {
  static constexpr stream_counters none;
  return channel_.get() != nullptr ? channel_->counters() : none;
}

connection* client_core::conn() noexcept { return link_ != nullptr ? &conn_ : nullptr; }

/// Calls that may run again wait for another connection; the others fail. Called in the middle of a
/// reap.
void client_core::on_link_closed(const failure& why) noexcept {
  why_lost_ = why;
  if (why.detail.empty() && conn_) say_where(*why_lost_, conn_.peer());
  link_ = nullptr;  // Still null when `attach` found the link failed.
  const cordma::detail::counted_ref stay{*this};
  intrusive_list<call_slot> lost;
  lost.splice_back(in_flight_);
  while (!lost.empty()) {
    call_slot& s = lost.front();
    const bool is_to_be_repeated =
        can_connect() && !s.is_ending && (!s.may_have_run() || s.target->is_idempotent);
    if (!is_to_be_repeated) {
      fail(s, *why_lost_, counters_.lost);
      continue;
    }
    s.list_hook<call_slot>::unlink();
    s.take_back();
    for (inline_grant& l : s.loans) l.drop();
    s.is_in_flight = false;
    --in_flight_count_;
    if (s.may_have_run()) {
      s.is_repeated = true;
      ++s.span.repeats;
      ++counters_.repeated;
    }
    s.begin_anew();
    waiting_.push_back(s);
  }
  pump();
}

void client_core::fail_waiting(const failure& why) noexcept {
  intrusive_list<call_slot> all;
  all.splice_back(waiting_);
  while (!all.empty()) fail(all.front(), why, counters_.lost);
}

void client_core::shut() noexcept {
  const cordma::detail::counted_ref stay{*this};
  shut_ = failure{.code = errc::closed, .call = "rpc::client"};
  fail_waiting(*shut_);
  // First: without a link, calls do not wait for what they lent, which ends with the connection.
  if (link_ != nullptr) std::exchange(link_, nullptr)->leave();
  while (!in_flight_.empty()) fail(in_flight_.front(), *shut_, counters_.lost);
  connecting_.reset();
  is_connecting_ = false;
  conn_ = {};
}

task<> client_core::close() {
  const cordma::detail::counted_ref stay{*this};
  // A connection that is closed gracefully outlives this: what calls lent must come back before.
  shut_ = failure{.code = errc::closed, .call = "rpc::client"};
  fail_waiting(*shut_);
  intrusive_list<call_slot> all;
  all.splice_back(in_flight_);
  while (!all.empty()) {
    call_slot& s = all.pop_front();
    in_flight_.push_back(s);
    if (s.is_ending) continue;
    note_failure(s, *shut_, counters_.lost);
    give_up(s);
  }
  none_in_flight_.reset();
  if (in_flight_count_ != 0) co_await none_in_flight_.wait();
  cordma::connection conn = std::move(conn_);
  shut();
  if (conn) co_await conn.close();
}

}  // namespace cordma::rpc::detail
