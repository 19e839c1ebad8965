#pragma once

#include <cordma/connection/connection.hpp>
#include <cordma/coro/when_all.hpp>
#include <cordma/runtime/runtime.hpp>

#include <catch2/catch.hpp>

namespace cordma::test {

inline void check_that_messages_pass(runtime& rt, connection& from, connection& to) {
  local_mr memory = rt.memory().allocate_zeroed(16);
  const auto [m, sent] =
      rt.run(when_all(to.recv(memory.slice(0, 8)), from.send(memory.slice(8, 8))));
  CHECK(m.size_bytes == sent);
}

}  // namespace cordma::test
