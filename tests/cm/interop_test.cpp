// Identifiers of cordma and programs that use librdmacm in its own way.

#include "foreign_peer.hpp"
#include "rig.hpp"

using namespace cordma;
using namespace cordma::cm;
using namespace cordma::cm::test;

namespace {

/// Posts a receive into the first bytes of the rig's memory.
void post_receive(rig& r, side& one) {
  REQUIRE(raw::try_post(one.qp, raw::receive{raw::piece(r.bytes.data(), 64, r.mr.lkey())}) == 0);
}

void exchange(rig& r, side& one, foreign_peer& other) {
  other.send(std::byte{0xf0});
  r.reap(1);
  CHECK(r.bytes.front() == std::byte{0xf0});
  std::memset(r.bytes.data() + 4096, 0xc0, 64);
  raw::request message{IBV_WR_SEND, raw::piece(r.bytes.data() + 4096, 64, r.mr.lkey())};
  REQUIRE(raw::try_post(one.qp, message) == 0);
  r.reap(1);
  CHECK(other.receive() == std::byte{0xc0});
}

}  // namespace

TEST_CASE("a listener serves a client that uses librdmacm in its own way", "[cm][device]") {
  rig r;
  listener from = r.listen();
  side server{r};
  server.says = bytes_of("welcome");
  foreign_peer client;
  client.connect(from.local_address(), bytes_of("hello"));

  started<task<>> serves{r.executor, serve(from, server)};
  r.run_until([&] { return server.qp.state() == verbs::queue_pair_state::rts; });
  post_receive(r, server);
  client.expect(RDMA_CM_EVENT_ESTABLISHED);
  REQUIRE(r.end_of(serves).has_value());
  CHECK(text_of(server.conn.from_peer()) == "hello");
  CHECK(client.said() == "welcome");
  exchange(r, server, client);

  client.disconnect();
  r.run_until([&] { return server.conn.why_ended().has_value(); });
  CHECK(server.conn.why_ended()->code == errc::disconnected);
  client.expect(RDMA_CM_EVENT_DISCONNECTED);
}

TEST_CASE("an identifier connects to a server that uses librdmacm in its own way", "[cm][device]") {
  rig r;
  foreign_peer server;
  const socket_address to = server.listen(r.address);
  side client{r};
  client.says = bytes_of("hello");
  r.executor.run(reach(r, client, to));
  post_receive(r, client);
  started<task<>> connects{r.executor,
                           client.conn.connect(client.qp.num(), client.says, client.own)};
  server.accept(bytes_of("welcome"));
  CHECK(server.said() == "hello");
  REQUIRE(r.end_of(connects).has_value());
  CHECK(text_of(client.conn.from_peer()) == "welcome");
  get_ready(client);
  client.conn.establish();
  server.expect(RDMA_CM_EVENT_ESTABLISHED);
  exchange(r, client, server);

  client.conn.disconnect();
  server.expect(RDMA_CM_EVENT_DISCONNECTED);
  server.disconnect();
  r.run_until([&] { return client.conn.why_ended().has_value(); });
  CHECK(client.conn.why_ended()->code == errc::disconnected);
}

TEST_CASE("a server that uses librdmacm refuses with its reason", "[cm][device]") {
  rig r;
  foreign_peer server;
  side client{r};
  r.executor.run(reach(r, client, server.listen(r.address)));
  started<task<>> connects{r.executor, client.conn.connect(client.qp.num(), {}, {})};
  server.refuse(bytes_of("no room"));
  CHECK(r.end_of(connects).failure().code == errc::refused);
  CHECK(text_of(client.conn.from_peer()) == "no room");
}
