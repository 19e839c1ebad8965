#pragma once

#include <cordma/coro/scheduler.hpp>
#include <cordma/rpc/method.hpp>

#include <memory>
#include <random>

namespace cordma::rpc::detail {

using call_span = tracer::span;

/// Makes the spans of one client or server, and hands them to the tracer.
class call_spans {
 public:
  /// Gives null if there is no tracer. \errors as `random_bytes`.
  static std::unique_ptr<call_spans> make(tracer* to);
  explicit call_spans(tracer& to);

  /// Begins a span below `parent`, which may be none. Kind, method and peer are set.
  void begin(call_span& span, const trace_context& parent, const scheduler& clock) noexcept;
  /// Ends a span whose outcome is set. Called for sampled spans only.
  void end(call_span& span, const scheduler& clock) noexcept;

 private:
  tracer& to_;
  std::mt19937_64 random_;  ///< no system call for each id: ids must differ, but are no secret
};

}  // namespace cordma::rpc::detail
