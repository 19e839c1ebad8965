#include "cm/listener.hpp"

#include "rig.hpp"
#include "support/leaks.hpp"

#include <list>

using namespace cordma;
using namespace cordma::cm;
using namespace cordma::cm::test;
using Catch::Matchers::Contains;

TEST_CASE("a listener on port 0 says which port it has", "[cm][device]") {
  rig r;
  const listener from = r.listen();
  CHECK(from.local_address().port() != 0);
  socket_address expected = r.address;
  expected.set_port(from.local_address().port());
  CHECK(from.local_address() == expected);
}

TEST_CASE("a listener that cannot be says why, and what to do", "[cm][device]") {
  rig r;
  const listener first = r.listen();
  const failure taken = failure_thrown([&] { listener{r.channel, first.local_address()}; });
  CHECK(taken.code == std::error_code{EADDRINUSE, std::system_category()});
  CHECK_THAT(taken.to_string(),
             Contains(first.local_address().to_string()) && Contains("the port is taken"));

  const socket_address elsewhere = socket_address::resolve("203.0.113.1", 0).front();
  const failure foreign = failure_thrown([&] { listener{r.channel, elsewhere}; });
  CHECK_THAT(foreign.to_string(), Contains("203.0.113.1") && Contains("address"));

  CHECK(failure_thrown([&] { r.listen(0); }).code == errc::limit_exceeded);
}

TEST_CASE("closing a listener ends the wait for a request, and frees the port", "[cm][device]") {
  rig r;
  listener from = r.listen();
  const socket_address at = from.local_address();
  started<task<id>> waits{r.executor, from.accept()};
  from.close();
  from.close();
  CHECK(r.end_of(waits).failure().code == errc::closed);
  CHECK(r.failure_of(from.accept()).code == errc::closed);
  const listener again{r.channel, at};
  CHECK(again.local_address() == at);
}

TEST_CASE("a wait for a request that is stopped loses no request", "[cm][device]") {
  rig r;
  listener from = r.listen();
  started<task<id>> waits{r.executor, from.accept()};
  waits.request_stop();
  CHECK(r.end_of(waits).is_cancelled());
  side server{r};
  side client{r};
  r.executor.run(when_all(serve(from, server), join(r, client, from.local_address())));
  CHECK(server.conn.from_peer().qpn == client.qp.num());
}

TEST_CASE("a request that waits for accept is refused when the listener is closed",
          "[cm][device]") {
  rig r;
  listener from = r.listen();
  knocking one{r, from.local_address()};
  r.run_until([&] { return from.waiting() == 1; });
  CHECK_FALSE(one.knocks.has_ended());
  from.close();
  CHECK(r.end_of(one.knocks).failure().code == errc::refused);
}

TEST_CASE("requests beyond the backlog are refused, and those that wait are served",
          "[cm][device]") {
  rig r;
  listener from{r.channel, r.address, 2, bytes_of("full")};
  const socket_address to = from.local_address();
  std::list<knocking> early;
  early.emplace_back(r, to);
  early.emplace_back(r, to);
  r.run_until([&] { return from.waiting() == 2; });
  for (unsigned i = 0; i < 3; ++i) {
    side late{r};
    CHECK(r.failure_of(knock(r, late, to)).code == errc::refused);
    CHECK(text_of(late.conn.from_peer()) == "full");
  }
  CHECK(from.refused() == 3);
  for (; !early.empty(); early.pop_front()) {
    side server{r};
    started<task<>> serves{r.executor, serve(from, server)};
    r.run_until([&] { return server.conn.from_peer().qpn != 0; });
    // The two requests may come in any order.
    if (server.conn.from_peer().qpn != early.front().client.qp.num()) early.reverse();
    side& client = early.front().client;
    REQUIRE(r.end_of(early.front().knocks).has_value());
    get_ready(client);
    client.conn.establish();
    REQUIRE(r.end_of(serves).has_value());
    r.send(client.qp, server.qp);
  }
}

TEST_CASE("a listener with requests that nobody took leaves nothing", "[cm][device]") {
  rig r;
  {
    side server{r};
    side client{r};
    listener from = r.listen();
    r.executor.run(when_all(serve(from, server), join(r, client, from.local_address())));
  }
  const std::string before = cordma::test::holdings();
  {
    listener from = r.listen();
    const knocking client{r, from.local_address()};
    r.run_until([&] { return from.waiting() == 1; });
  }
  CHECK(cordma::test::settled_holdings(r.executor, before) == before);
}
