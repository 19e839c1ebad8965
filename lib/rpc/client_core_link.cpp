#include "client_core.hpp"

#include <cstdio>
#include <new>
#include <utility>

namespace cordma::rpc::detail {

namespace {

void say_where(failure& lost, const socket_address& peer) noexcept {
  try {
    char text[200];
    std::snprintf(text, sizeof text, "%s: the connection to %s was lost", lost.call,
                  peer.to_string().c_str());
    lost.detail = text;
  } catch (const std::bad_alloc&) {
    // The text stays shorter.
  }
}

}  // namespace

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
  const client_ref stay{*this};
  intrusive_list<call_slot> lost;
  lost.splice_back(in_flight_);
  while (!lost.empty()) {
    call_slot& s = lost.front();
    const bool is_to_be_repeated = reconnector_.can_connect() && !s.is_ending &&
                                   (!s.may_have_run() || s.target->is_idempotent);
    if (!is_to_be_repeated) {
      fail(s, *why_lost_, counters_.lost);
      continue;
    }
    s.list_hook<call_slot>::unlink();
    s.take_back();
    s.source.drop();
    s.sink.drop();
    s.is_in_flight = false;
    --in_flight_count_;
    if (s.may_have_run()) {
      s.is_repeated = true;
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
  const client_ref stay{*this};
  shut_ = failure{.code = errc::closed, .call = "rpc::client"};
  fail_waiting(*shut_);
  // First: without a link, calls do not wait for what they lent, which ends with the connection.
  if (link_ != nullptr) std::exchange(link_, nullptr)->leave();
  while (!in_flight_.empty()) fail(in_flight_.front(), *shut_, counters_.lost);
  reconnector_.stop();
  conn_ = {};
}

task<> client_core::close() {
  const client_ref stay{*this};
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
