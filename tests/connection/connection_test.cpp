#include <cordma/connection/connection.hpp>

#include "support/connected_pair.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>

using namespace cordma;
using namespace std::chrono_literals;
using test::connected_pair;

namespace {

task<> exchange(connected_pair& p) {
  local_mr out = p.rt.memory().allocate_zeroed(64);
  local_mr in = p.rt.memory().allocate_zeroed(64, test::all_access);
  std::memcpy(out.bytes().data(), "from client", 11);
  p.server.post_recv(in.slice(0, 32));
  CHECK(co_await p.client.send(out.slice(0, 11)) == 11);
  const message m = co_await p.server.next_message();
  CHECK(m.size_bytes == 11);
  CHECK(std::memcmp(in.bytes().data(), "from client", 11) == 0);

  const remote_mr_slice remote = in.remote_slice();
  CHECK(co_await p.client.write(out.slice(5, 6), remote.slice(32, 6)) == 6);
  CHECK(std::memcmp(in.bytes().data() + 32, "client", 6) == 0);
  CHECK(co_await p.client.read(out.slice(16, 4), remote.slice(0, 4)) == 4);
  CHECK(std::memcmp(out.bytes().data() + 16, "from", 4) == 0);
  CHECK(co_await p.client.compare_swap(remote.slice(48, 8), 0, 42) == 0);
  CHECK(co_await p.client.fetch_add(remote.slice(48, 8), 1) == 42);
}

task<> end_of_receive(connection& conn, std::error_code& code) {
  const auto outcome = co_await as_result(conn.next_message());
  if (outcome.has_failure()) code = outcome.failure().code;
}

}  // namespace

TEST_CASE("two ends connect by TCP, and move data both ways", "[connection][device][N1]") {
  connected_pair p;
  CHECK(p.client.is_open());
  CHECK(p.client.peer() == p.server.local());
  CHECK(p.client.local() == p.server.peer());
  CHECK(p.client.qp().verbs().query_state() == verbs::queue_pair_state::rts);
  p.rt.run(exchange(p));
  std::swap(p.client, p.server);
  p.rt.run(exchange(p));
}
