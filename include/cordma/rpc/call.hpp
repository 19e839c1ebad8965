#pragma once

#include <cordma/base/time.hpp>
#include <cordma/memory/slice.hpp>
#include <cordma/messages/message_stream.hpp>

#include <optional>
#include <utility>

namespace cordma::rpc {

struct call_options {
  /// Counted from the start of the call. None: `client_options::call_timeout`.
  std::optional<time_span> timeout{};
  /// Memory that the handler may read one-sidedly, without a copy, while the call runs. It must
  /// not change meanwhile.
  const_local_mr_slice source{};
  /// Memory that the handler may write one-sidedly. Before the call has ended, a part of it may
  /// have been written.
  local_mr_slice sink{};
};

/// A reply that is a view, and the message that it views. The message occupies a receive buffer
/// until this is destroyed: keep few of them, and not for long.
template <class View>
class viewed {
 public:
  viewed(stream_message&& message, View value) noexcept
      : message_{std::move(message)}, value_{value} {}
  const View& operator*() const noexcept { return value_; }
  const View* operator->() const noexcept { return &value_; }

 private:
  stream_message message_;
  View value_;
};

}  // namespace cordma::rpc
