#pragma once

#include "manual_executor.hpp"
#include "stream_pair.hpp"

#include <cordma/messages/message_stream.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

// Messages of a stream that go where the test says once they are known.
namespace cordma::test::streams {

using support::started;
using arrival = message_stream::arrival;

inline stream_options on_demand(stream_options options = smallest) {
  options.large_ahead = 0;
  return options;
}

/// Notes what it is asked, and gives the memory's first bytes.
struct choice {
  explicit choice(const local_mr_slice& to) : memory{to} {}
  local_mr_slice operator()(const arrival& next) {
    asked.push_back(next.size_bytes);
    return memory.first(next.size_bytes);
  }
  local_mr_slice memory;
  std::vector<size_t> asked;
};

inline task<arrival> receive_at(message_stream& s, choice& where) {
  return s.receive_into([&where](const arrival& next) { return where(next); });
}

/// READs that queue pairs of the runtime have posted.
inline std::uint64_t reads(message_stream& s) {
  return s.connection().qp().driver().requests().of(request_kind::read).posted;
}

/// A pair whose completions come when the test says so.
struct stepped_pair : stream_pair {
  explicit stepped_pair(const stream_options& options) : stream_pair{options, options, by_hand()} {
    // The sides know each other's terms once each has sent something.
    scope opening{rt.executor()};
    opening.spawn(both_ways(a, b, 1));
    step_until([&] { return opening.running() == 0; });
    rt.run(opening.join());
  }
  static runtime_options by_hand() {
    runtime_options options;
    options.cq.mode = completion_mode::manual;
    return options;
  }
  void settle() { rt.run(test::due_timers_fired()); }
  void step_until(auto condition) {
    while (!condition()) {
      rt.poll();
      settle();
    }
  }
};

}  // namespace cordma::test::streams
