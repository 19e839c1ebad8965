#include "cm/id.hpp"

#include "rig.hpp"
#include "support/skip.hpp"

#include <list>

using namespace cordma;
using namespace cordma::cm;
using namespace cordma::cm::test;
using Catch::Matchers::Contains;

namespace {

task<> accepted(listener& from, id& one) { one = co_await from.accept(); }

/// A request that waits for its answer, and the client who sent it.
struct requested : rig {
  explicit requested(std::string_view says = "") : client{*this} {
    client.says = bytes_of(says);
    executor.run(accepted(from, server.conn));
  }

  listener from = listen();
  side server{*this};
  side client;
  started<task<>> knocks{executor, knock(*this, client, from.local_address())};
};

bool starts_with(const peer_message& message, const std::vector<std::byte>& said) {
  return message.size_bytes >= said.size() &&
         std::equal(said.begin(), said.end(), message.data().begin());
}

}  // namespace

TEST_CASE("two identifiers connect queue pairs of our own, which then exchange messages",
          "[cm][device]") {
  connected c;
  CHECK(c.server.conn.from_peer().qpn == c.client.qp.num());
  CHECK(c.client.conn.from_peer().qpn == c.server.qp.num());
  CHECK(c.client.conn.device_name() == c.ctx.name());
  CHECK(c.server.conn.device_name() == c.ctx.name());
  CHECK(c.client.conn.port() == c.port.number);
  CHECK(c.client.conn.peer() == c.to);
  CHECK(c.server.conn.local() == c.to);
  CHECK(c.server.conn.peer() == c.client.conn.local());
  c.send(c.client.qp, c.server.qp);
  c.send(c.server.qp, c.client.qp);
}

TEST_CASE("a client may name the address that it connects from", "[cm][device]") {
  rig r;
  listener from = r.listen();
  side client{r};
  client.conn = id{r.channel};
  r.executor.run(client.conn.resolve(from.local_address(), r.address));
  socket_address local = client.conn.local();
  local.set_port(0);
  CHECK(local == r.address);

  id elsewhere{r.channel};
  const socket_address foreign = socket_address::resolve("203.0.113.1", 0).front();
  CHECK_THAT(r.failure_of(elsewhere.resolve(from.local_address(), foreign)).to_string(),
             Contains("rdma_resolve_addr") && Contains(from.local_address().to_string()));
}

TEST_CASE("private data arrives whole, up to what rdma_cm carries", "[cm][device]") {
  rig r;
  listener from = r.listen();
  struct {
    std::size_t request_bytes;
    std::size_t reply_bytes;
  } const sizes[] = {{0, 0}, {1, 1}, {56, 196}};
  for (const auto& size : sizes) {
    side server{r};
    side client{r};
    client.says.assign(size.request_bytes, std::byte{0xc1});
    server.says.assign(size.reply_bytes, std::byte{0x5e});
    r.executor.run(when_all(serve(from, server), join(r, client, from.local_address())));
    CHECK(starts_with(server.conn.from_peer(), client.says));
    CHECK(starts_with(client.conn.from_peer(), server.says));
  }
}

TEST_CASE("too much private data is refused before anything is sent", "[cm][device]") {
  requested r;
  const std::vector<std::byte> reply(reply_bytes_max + 1);
  const std::vector<std::byte> rejection(rejection_bytes_max + 1);
  const failure by_accept =
      failure_thrown([&] { r.server.conn.accept(r.server.qp.num(), reply, {}); });
  CHECK(by_accept.code == errc::limit_exceeded);
  CHECK_THAT(by_accept.to_string(), Contains("197") && Contains("196"));
  const failure by_reject = failure_thrown([&] { r.server.conn.reject(rejection); });
  CHECK_THAT(by_reject.to_string(), Contains("149") && Contains("148"));
  CHECK_FALSE(r.knocks.has_ended());

  side late{r};
  late.says.resize(request_bytes_max + 1);
  CHECK_THAT(r.failure_of(knock(r, late, r.from.local_address())).to_string(),
             Contains("57") && Contains("56"));
  CHECK(r.from.waiting() == 0);
}

TEST_CASE("a request that is refused ends with the reason that the server gave", "[cm][device]") {
  requested r{"let me in"};
  CHECK(text_of(r.server.conn.from_peer()) == "let me in");
  r.server.conn.reject(bytes_of("not today"));
  const failure why = r.end_of(r.knocks).failure();
  CHECK(why.code == errc::refused);
  CHECK_THAT(why.to_string(), Contains(r.from.local_address().to_string()));
  CHECK(text_of(r.client.conn.from_peer()) == "not today");
  CHECK(r.client.conn.why_ended()->code == errc::refused);
}

TEST_CASE("a request to a port where nobody listens says so", "[cm][device]") {
  rig r;
  socket_address nobody = r.address;
  nobody.set_port(r.listen().local_address().port());  // The listener is closed again.
  side client{r};
  const failure why = r.failure_of(knock(r, client, nobody));
  CHECK(why.code == std::error_code{ECONNREFUSED, std::system_category()});
  CHECK_THAT(why.to_string(), Contains("rdma_connect") && Contains(nobody.to_string()) &&
                                  Contains("nobody listens there"));
}

TEST_CASE("an address that no device leads to says so", "[cm][device]") {
  if (cordma::test::is_soft()) CORDMA_SKIP("soft0 has all addresses of this host");
  rig r;
  id one{r.channel};
  const failure why = r.failure_of(one.resolve(socket_address::loopback(7471)));
  CHECK(why.code == std::error_code{ENODEV, std::system_category()});
  CHECK_THAT(why.to_string(), Contains("127.0.0.1:7471: no RDMA device leads there"));
}

TEST_CASE("many identifiers connect at once", "[cm][device]") {
  rig r;
  listener from = r.listen();
  constexpr std::size_t many = 16;
  std::list<side> servers;
  std::list<side> clients;
  scope all{r.executor};
  for (std::size_t i = 0; i < many; ++i) {
    all.spawn(serve(from, servers.emplace_back(r)));
    all.spawn(join(r, clients.emplace_back(r), from.local_address()));
  }
  r.executor.run(all.join());
  for (side& server : servers) {
    const auto client = std::find_if(clients.begin(), clients.end(), [&](const side& one) {
      return one.qp.num() == server.conn.from_peer().qpn;
    });
    REQUIRE(client != clients.end());
    CHECK(client->conn.from_peer().qpn == server.qp.num());
    r.send(client->qp, server.qp);
  }
}

TEST_CASE("a request may be served by another executor", "[cm][device]") {
  requested r;
  cordma::executor other;
  event_channel others{other};
  r.server.conn.move_to(others);
  initialise(r.server);
  get_ready(r.server);
  r.server.conn.accept(r.server.qp.num(), {}, {});
  REQUIRE(r.end_of(r.knocks).has_value());
  get_ready(r.client);
  r.client.conn.establish();
  other.run(r.server.conn.established());
  r.send(r.client.qp, r.server.qp);
  r.server.conn = id{};
}

TEST_CASE("each side serves and sends no more READs than both can", "[cm][device]") {
  struct {
    parameters client;
    parameters server;
    std::uint8_t client_depth;
    std::uint8_t server_depth;
  } const cases[] = {
      {{.responder_resources = 1, .initiator_depth = 4},
       {.responder_resources = 2, .initiator_depth = 3},
       2,
       1},
      {{.responder_resources = 3, .initiator_depth = 1},
       {.responder_resources = 2, .initiator_depth = 2},
       1,
       2},
  };
  rig r;
  listener from = r.listen();
  for (const auto& one : cases) {
    side server{r};
    side client{r};
    client.own = one.client;
    server.own = one.server;
    r.executor.run(when_all(serve(from, server), join(r, client, from.local_address())));
    CHECK(client.qp.rd_atomic_max() == one.client_depth);
    CHECK(server.qp.rd_atomic_max() == one.server_depth);
    const parameters& agreed = client.conn.from_peer().offer;
    CHECK(agreed.initiator_depth == one.client_depth);
    CHECK(agreed.responder_resources == one.server_depth);
  }
}
