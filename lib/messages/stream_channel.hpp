#pragma once

#include "message_channel.hpp"

#include <cordma/coro/semaphore.hpp>
#include <cordma/detail/messages/pending_fill.hpp>

namespace cordma::detail {

/// The state of a `message_stream`: the channel, and the messages that wait to be received.
class stream_channel final : public message_channel {
 public:
  stream_channel(connection& conn, const stream_options& options)
      : stream_channel{resources_of(conn), options} {}
  stream_channel(const channel_resources& resources, const stream_options& options)
      : message_channel{resources, options, order::as_sent} {}

  /// One permit for each message to `deliver`; closed when no more will come.
  [[nodiscard]] semaphore& messages() noexcept { return messages_; }

 private:
  friend class pending_fill;
  waiting waiting_tasks() noexcept override {
    const bool is_fill_next = !fills_.empty() && fills_.front().permit_->is_next();
    return {.next_fill = is_fill_next ? &fills_.front() : nullptr,
            .has_any = messages_.has_waiters(),
            .has_fills = !fills_.empty()};
  }
  void on_message() noexcept override { messages_.release(); }
  void on_closed() noexcept override { messages_.close(*failed()); }

  semaphore messages_{0};
  intrusive_list<pending_fill> fills_;  ///< wait among `messages_`, in the same order
};

}  // namespace cordma::detail
