#include "message_channel.hpp"

#include "base/caught.hpp"
#include "base/check_option.hpp"
#include "base/failures.hpp"
#include "base/time_text.hpp"

#include <cordma/coro/with_timeout.hpp>
#include "connection/handshake.hpp"
#include "queue/send_queue.hpp"

#include <algorithm>
#include <climits>

namespace cordma::detail {

using message_protocol::header_bytes;

namespace {

stream_options checked(stream_options options, queue_pair& qp) {
  if (const receive_share* const share = qp.share()) {
    // The buffers' size is the pool's: they all have the same.
    const shared_receives& pool = share->pool();
    if (pool.is_for_messages())
      throw_failure(errc::not_supported, "message_stream",
                    "the pool of connection_options::receives_from is for_messages: share other "
                    "receives for streams and calls");
    check_option("shared_receives_options", "buffer_bytes",
                 static_cast<long long>(pool.buffer_bytes()),
                 header_bytes + message_protocol::buffer_bytes_min,
                 header_bytes + message_protocol::buffer_bytes_max);
    check_option("shared_receives_options", "share_min", pool.share_min(),
                 message_protocol::credits_min, message_protocol::credits_max);
    check_option("stream_options", "depth", options.depth, share->credit(),
                 message_protocol::credits_max);
    options.buffer_bytes = pool.buffer_bytes() - header_bytes;
  }
  check(options);
  const verbs::queue_pair_capabilities& caps = qp.verbs().capabilities();
  // Frames must go inline: registered memory may be all in use.
  check_option("queue_pair_capabilities", "inline_max", caps.inline_max,
               message_protocol::frame_bytes_max, INT_MAX);
  check_option("queue_pair_capabilities", "send_sge_max", caps.send_sge_max, 2, INT_MAX);
  if (qp.share() == nullptr) {
    check_option("stream_options", "depth", options.depth, message_protocol::credits_min,
                 qp.receives().depth());
  }
  return options;
}

}  // namespace

channel_resources message_channel::resources_of(connection& conn) {
  queue_pair& data = conn.qp();  // First: it asserts that the connection is not empty.
  cordma::agent* const agent = conn.agent();
  if (data.verbs().type() != verbs::queue_pair_type::rc)
    throw_failure(errc::not_supported, "message_stream",
                  "streams and calls need RC: over UC a message may be lost, and over XRC one side "
                  "sends nothing (connection_options::transport)");
  if (agent == nullptr)
    throw_failure(errc::not_supported, "message_stream",
                  "this side or the peer has no agent: connection_options::agent.enabled");
  if (const std::uint32_t posted = data.receives().posted() + data.receives().pending_messages();
      posted > 0)
    throw_failure(errc::not_supported, "message_stream",
                  detail_text("the connection has %u receives already, and streams and calls post "
                              "their own: leave connection_options::preposted 0",
                              unsigned{posted}));
  // A peer that names a short one must not make us post any number of READs.
  constexpr std::uint64_t read_bytes_least = 64 << 10;
  const std::uint64_t of_peer = std::max(conn.peer_hello().message_max_bytes, read_bytes_least);
  return {.data = data,
          .agent = *agent,
          .memory = conn.memory(),
          .read_bytes_max = std::size_t(std::min(conn.local_hello().message_max_bytes, of_peer))};
}

message_channel::message_channel(const channel_resources& r, const stream_options& options, order o)
    : waiter{&on_opened},
      qp_{&r.data},
      agent_{&r.agent},
      executor_{r.data.driver().executor()},
      memory_{&r.memory},
      options_{checked(options, r.data)},
      order_{o},
      inline_max_{r.data.verbs().capabilities().inline_max},
      read_bytes_max_{r.read_bytes_max},
      pd_{r.data.sends().pd()},
      buffers_{r.data, r.memory, options_.depth, header_bytes + options_.buffer_bytes},
      opened_{executor_} {
  limit_peer(buffers_.credit());
}

/// Not in the constructor: this may call virtual functions of the derived class.
void message_channel::begin() {
  retain();  // The queue pair's reference, until `on_gone`.
  qp_->hand_messages_to(*this);
  buffers_.post_all();
  if (failed_) return;
  agent_->send_note(
      encode(stream_terms{buffers_.credit(), options_.buffer_bytes, options_.message_bytes_max}));
  opening_.emplace(agent_->note_arrived.wait());
  if (opening_->start(*this, {})) on_opened(*this);
}

message_channel::~message_channel() {
  for (intrusive_list<arrived_message>* all : {&inbox_, &behind_})
    while (!all->empty()) buffers_.release(all->pop_front());
}

void message_channel::move_to(state next) noexcept {
  const bool is_edge = next == state::open     ? state_ == state::opening
                       : next == state::failed ? state_ < state::failed
                                               : state_ == state::failed;
  CORDMA_ASSERT(is_edge, "a message channel's states come in order");
  state_ = next;
}

void message_channel::on_gone() noexcept {
  if (!failed_) on_failure();
  move_to(state::gone);
  qp_ = nullptr;
  buffers_.leave();
  release();
}

void message_channel::on_failure() noexcept {
  move_to(state::failed);
  const request_outcome& reason = qp_->failure_reason();
  failed_ = bad_frame_            ? *bad_frame_
            : reason.has_failed() ? reason.to_failure(qp_->verbs().num())
                                  : failure{.code = errc::closed, .call = "close"};
  channel_ref stay{*this};
  agent_ = nullptr;
  opening_.reset();
  for (intrusive_list<outgoing_frame>* all : {&control_, &outbox_}) {
    while (!all->empty()) {
      outgoing_frame& o = all->pop_front();
      o.on_posted(o, failed_);
    }
  }
  end_large();
  opened_.set();
  on_closed();
}

void message_channel::break_connection(const failure& why) noexcept {
  if (failed_) return;
  bad_frame_ = why;
  qp_->abort({.code = why.code, .call = why.call});
}

std::coroutine_handle<> message_channel::on_opened(waiter& self) noexcept {
  auto& channel = static_cast<message_channel&>(self);
  channel.opening_.reset();
  if (channel.failed_) return std::noop_coroutine();
  try {
    channel.peer_ = decode_terms(*channel.agent_->peer_note);
  } catch (...) {
    channel.break_connection(caught("message_stream"));
    return std::noop_coroutine();
  }
  channel.credits_.grow_to(channel.peer().messages);
  channel.move_to(state::open);
  channel.opened_.set();
  channel_ref stay{channel};
  channel.on_open();
  channel.pump();
  return std::noop_coroutine();
}

task<> message_channel::opened() {
  const auto outcome =
      co_await as_result(with_timeout(opened_.wait(), options_.open_timeout, &executor_));
  if (outcome.is_cancelled()) throw cancelled{};
  if (failed_) throw error{*failed_};
  if (outcome.has_value()) co_return;
  throw_failure(errc::timed_out, "send",
                detail_text("the peer made no message stream of this connection in %s",
                            to_text(options_.open_timeout).c_str()));
}

}  // namespace cordma::detail
