#pragma once

#include "support/access.hpp"

#include <cordma/connection/connection.hpp>
#include <cordma/coro/when_all.hpp>
#include <cordma/io/wait_until.hpp>
#include <cordma/runtime/runtime.hpp>

#include <catch2/catch.hpp>

#include <atomic>
#include <cstdint>

namespace cordma::test {

inline connection_options unreliable() {
  connection_options o;
  o.transport = verbs::queue_pair_type::uc;
  return o;
}

/// Ends when the word is `value`: WRITEs over UC come in order, and nothing else tells of one.
inline auto written(runtime& rt, local_mr& word, std::uint32_t value) {
  auto* const at = reinterpret_cast<std::uint32_t*>(word.bytes().data());
  return wait_until(rt.executor(), [at, value] {
    return std::atomic_ref{*at}.load(std::memory_order_acquire) == value;
  });
}

inline void put(local_mr& word, std::uint32_t value) {
  *reinterpret_cast<std::uint32_t*>(word.bytes().data()) = value;
}

/// A SEND and a WRITE, each without and with immediate data.
inline void check_that_uc_carries_all(runtime& rt, connection& from, connection& to) {
  local_mr out = rt.memory().allocate_zeroed(4);
  local_mr in = rt.memory(all_access).allocate_zeroed(4);
  local_mr word = rt.memory(all_access).allocate_zeroed(4);
  put(out, 1);
  to.post_recv(in.slice());
  const auto [sent, message] = rt.run(when_all(from.send(out.slice()), to.next_message()));
  CHECK(sent == 4);
  CHECK(message.size_bytes == 4);
  CHECK_FALSE(message.immediate);
  CHECK(in.bytes()[0] == std::byte{1});
  to.post_recv(in.slice());
  const auto [more, numbered] =
      rt.run(when_all(from.send_with_imm(out.slice(), 4711), to.next_message()));
  CHECK(more == 4);
  CHECK(numbered.immediate == 4711u);
  put(out, 2);
  rt.run(when_all(from.write(out.slice(), word.remote_slice()), written(rt, word, 2)));
  to.post_recv(in.slice());
  put(out, 3);
  const auto [wrote, told] = rt.run(
      when_all(from.write_with_imm(out.slice(), word.remote_slice(), 42), to.next_message()));
  CHECK(wrote == 4);
  CHECK(told.is_write);
  CHECK(told.immediate == 42u);
  CHECK(word.bytes()[0] == std::byte{3});
}

/// A message that finds no receive, a WRITE after it that arrives, and a message that finds one.
inline void check_that_a_lost_message_is_lost(runtime& rt, connection& from, connection& to) {
  local_mr out = rt.memory().allocate_zeroed(4);
  local_mr in = rt.memory(all_access).allocate_zeroed(4);
  local_mr word = rt.memory(all_access).allocate_zeroed(4);
  put(out, 1);
  CHECK(rt.run(from.send(out.slice())) == 4);
  put(out, 2);
  rt.run(when_all(from.write(out.slice(), word.remote_slice()), written(rt, word, 2)));
  to.post_recv(in.slice());
  put(out, 3);
  const auto [sent, message] = rt.run(when_all(from.send(out.slice()), to.next_message()));
  CHECK(sent == 4);
  CHECK(message.size_bytes == 4);
  CHECK(in.bytes()[0] == std::byte{3});
}

}  // namespace cordma::test
