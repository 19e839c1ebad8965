// Addresses of sockets by rdma_cm, in the program of what uses rdma_cm.

#include "cm/rig.hpp"
#include "connection/addresses.hpp"
#include "sockets.hpp"
#include "support/leaks.hpp"

#include <cordma/coro/when_all.hpp>

#include <poll.h>

#include <memory>
#include <optional>
#include <string>

using namespace cordma;
using namespace cordma::test;
using Catch::Matchers::Contains;

namespace {

const datagram_options public_options{.qkey = datagram_address::rdma_cm_qkey};

/// Two sockets that rdma_cm can tell of, and the address of their device.
struct two_public_sockets : two_sockets {
  two_public_sockets() : two_sockets{options_of(), options_of()} {}
  /// The row of the device's table that the address has.
  static datagram_options options_of() {
    datagram_options made = public_options;
    verbs::context ctx{device_name()};
    const verbs::port_info port = ctx.active_port();
    const socket_address address = cm::test::device_address(ctx, port.number);
    made.gid_index =
        verbs::choose_gid(ctx.gid_table(port.number), {.local_ip = verbs::gid_of(*address.data())})
            .index;
    return made;
  }
  endpoint where() {
    return detail::endpoint_of(
        cm::test::device_address(rt.context(), rt.context().active_port().number));
  }
};

/// A peer that is not cordma: librdmacm's own way to ask, and to answer.
class foreign_datagram_peer {
 public:
  foreign_datagram_peer() : channel_{rdma_create_event_channel()} {
    REQUIRE(channel_ != nullptr);
    REQUIRE(rdma_create_id(channel_, &id_, nullptr, RDMA_PS_UDP) == 0);
  }
  foreign_datagram_peer(const foreign_datagram_peer&) = delete;
  foreign_datagram_peer& operator=(const foreign_datagram_peer&) = delete;
  ~foreign_datagram_peer() {
    rdma_destroy_id(id_);
    rdma_destroy_event_channel(channel_);
  }

  socket_address listen(socket_address at) {
    REQUIRE(rdma_bind_addr(id_, const_cast<sockaddr*>(at.data())) == 0);
    REQUIRE(rdma_listen(id_, 1) == 0);
    at.set_port(ntohs(rdma_get_src_port(id_)));
    return at;
  }
  [[nodiscard]] bool has_request() const {
    pollfd waits{channel_->fd, POLLIN, 0};
    return ::poll(&waits, 1, 0) == 1;
  }
  /// Takes a request, and answers with the number of a queue pair; without one it is refused.
  void answer(std::optional<std::uint32_t> qpn) {
    rdma_cm_event* event = next(RDMA_CM_EVENT_CONNECT_REQUEST);
    rdma_cm_id* const request = event->id;
    REQUIRE(rdma_ack_cm_event(event) == 0);
    rdma_conn_param parameters{};
    parameters.qp_num = qpn.value_or(0);
    REQUIRE((qpn ? rdma_accept(request, &parameters) : rdma_reject(request, nullptr, 0)) == 0);
    rdma_destroy_id(request);
  }
  void ask(const socket_address& to) {
    REQUIRE(rdma_resolve_addr(id_, nullptr, const_cast<sockaddr*>(to.data()), 2000) == 0);
    REQUIRE(rdma_ack_cm_event(next(RDMA_CM_EVENT_ADDR_RESOLVED)) == 0);
    REQUIRE(rdma_resolve_route(id_, 2000) == 0);
    REQUIRE(rdma_ack_cm_event(next(RDMA_CM_EVENT_ROUTE_RESOLVED)) == 0);
    rdma_conn_param request{};
    REQUIRE(rdma_connect(id_, &request) == 0);
  }
  rdma_ud_param told() {
    rdma_cm_event* const event = next(RDMA_CM_EVENT_ESTABLISHED);
    const rdma_ud_param told = event->param.ud;
    REQUIRE(rdma_ack_cm_event(event) == 0);
    return told;
  }

 private:
  rdma_cm_event* next(rdma_cm_event_type kind) {
    pollfd waits{channel_->fd, POLLIN, 0};
    REQUIRE(::poll(&waits, 1, 60'000) == 1);
    rdma_cm_event* event = nullptr;
    REQUIRE(rdma_get_cm_event(channel_, &event) == 0);
    REQUIRE(event->event == kind);
    return event;
  }

  rdma_event_channel* channel_;
  rdma_cm_id* id_ = nullptr;
};

}  // namespace

TEST_CASE("a socket's address is found by host and port, and takes datagrams",
          "[datagram][device][rdma_cm]") {
  two_public_sockets s;
  const endpoint where = s.b.publish(s.where());
  CHECK(where.port != 0);
  CHECK(where.kind == endpoint::bootstrap::rdma_cm);
  const datagram_address found = s.rt.run(s.a.resolve(where));
  CHECK(found.qpn == s.b.address().qpn);
  CHECK(found.qkey == s.b.address().qkey);
  CHECK(found.path.gid.raw[15] == s.b.address().path.gid.raw[15]);
  s.post_to(s.b);
  s.rt.run(s.a.send_to(found, s.text("found")));
  CHECK(text_of(s.next(s.b)) == "found");
}

TEST_CASE("several ask at once, and each gets the address", "[datagram][device][rdma_cm]") {
  two_public_sockets s;
  const endpoint where = s.b.publish(s.where());
  const auto ask = [&] { return s.a.resolve(where); };
  auto [first, second, third, fourth] = s.rt.run(when_all(ask(), ask(), ask(), ask()));
  for (const datagram_address& found : {first, second, third, fourth})
    CHECK(found.qpn == s.b.address().qpn);
}

TEST_CASE("an address that nobody publishes is refused, and named", "[datagram][device][rdma_cm]") {
  two_public_sockets s;
  std::optional other{s.rt.open_datagram(public_options)};
  const endpoint where = other->publish(s.where());
  other.reset();
  const failure refused = s.failure_of(s.a.resolve(where));
  CHECK(refused.code == std::error_code{ECONNREFUSED, std::system_category()});
  CHECK_THAT(refused.to_string(), Contains(std::to_string(where.port)));
}

TEST_CASE("a published address moves, and frees the former port", "[datagram][device][rdma_cm]") {
  two_public_sockets s;
  const endpoint first = s.b.publish(s.where());
  const endpoint second = s.b.publish(s.where());
  CHECK(s.rt.run(s.a.resolve(second)).qpn == s.b.address().qpn);
  CHECK(s.failure_of(s.a.resolve(first)).code);
  CHECK_NOTHROW(s.a.publish(first));
}

TEST_CASE("a published address stays when another cannot be had, or is the same",
          "[datagram][device][rdma_cm]") {
  two_public_sockets s;
  const endpoint taken = s.a.publish(s.where());
  const endpoint where = s.b.publish(s.where());
  CHECK_THROWS_WITH(s.b.publish(taken), Contains("the port is taken"));
  CHECK(s.rt.run(s.a.resolve(where)).qpn == s.b.address().qpn);
  CHECK(s.b.publish(where).port == where.port);
  CHECK(s.rt.run(s.a.resolve(where)).qpn == s.b.address().qpn);
}

TEST_CASE("a published address moves to all addresses of its port, and back",
          "[datagram][device][rdma_cm]") {
  two_public_sockets s;
  const endpoint one = s.b.publish(s.where());
  const endpoint all{"0.0.0.0", one.port};
  const bool is_one_first = GENERATE(true, false);
  if (!is_one_first) CHECK(s.b.publish(all).port == one.port);
  for (int n = 0; n < 2; ++n) {
    const bool is_one = (n == 0) != is_one_first;
    const endpoint moved = s.b.publish(is_one ? one : all);
    CHECK(moved.host == (is_one ? one : all).host);
    CHECK(moved.port == one.port);
    CHECK(s.rt.run(s.a.resolve(one)).qpn == s.b.address().qpn);
  }
}

TEST_CASE("a published address comes back when another of its port cannot be had",
          "[datagram][device][rdma_cm]") {
  two_public_sockets s;
  const endpoint where = s.b.publish(s.where());
  // An address for documents (RFC 5737), which is no host's.
  CHECK_THROWS_WITH(s.b.publish(endpoint{"192.0.2.1", where.port}), Contains("192.0.2.1"));
  CHECK(s.rt.run(s.a.resolve(where)).qpn == s.b.address().qpn);
  CHECK(s.b.publish(where).port == where.port);
}

TEST_CASE("a port that is taken is refused", "[datagram][device][rdma_cm]") {
  two_public_sockets s;
  const endpoint where = s.b.publish(s.where());
  CHECK_THROWS_WITH(s.a.publish(where), Contains("the port is taken"));
  CHECK(s.rt.run(s.a.resolve(where)).qpn == s.b.address().qpn);
}

TEST_CASE("a Q_Key that rdma_cm does not tell is refused by name, and so is a Unix socket",
          "[datagram][device][rdma_cm]") {
  two_sockets s;
  CHECK_THROWS_WITH(s.a.publish({}), Contains("0x1234") && Contains("0x1234567"));
  CHECK_THAT(s.failure_of(s.a.resolve("unix:/run/x")).to_string(), Contains("unix:/run/x"));
}

TEST_CASE("a program that uses librdmacm in its own way finds a socket",
          "[datagram][device][rdma_cm]") {
  two_public_sockets s;
  socket_address to = cm::test::device_address(s.rt.context(), 1);
  to.set_port(s.b.publish(s.where()).port);
  foreign_datagram_peer client;
  client.ask(to);
  s.rt.run(with_timeout(until(s.rt.executor(), [&] { return client.has_request(); }),
                        std::chrono::seconds{60}));
  const rdma_ud_param told = client.told();
  CHECK(told.qp_num == s.b.address().qpn);
  CHECK(told.qkey == s.b.address().qkey);
}

TEST_CASE("a server that uses librdmacm in its own way gives an address, or refuses",
          "[datagram][device][rdma_cm]") {
  two_public_sockets s;
  foreign_datagram_peer server;
  const socket_address at = server.listen(cm::test::device_address(s.rt.context(), 1));
  const endpoint where = detail::endpoint_of(at);
  const auto answer = [&](std::optional<std::uint32_t> qpn) -> task<> {
    co_await until(s.rt.executor(), [&] { return server.has_request(); });
    server.answer(qpn);
  };
  auto [found, done] = s.rt.run(when_all(s.a.resolve(where), answer(0x1234)));
  CHECK(found.qpn == 0x1234);
  auto [refused, also] = s.rt.run(when_all(as_result(s.a.resolve(where)), answer(std::nullopt)));
  REQUIRE(refused.has_failure());
  CHECK(refused.failure().code == errc::refused);
}

TEST_CASE("a look-up that is stopped or dropped leaves nothing", "[datagram][device][rdma_cm]") {
  two_public_sockets s;
  static_cast<void>(s.rt.run(s.a.resolve(s.b.publish(s.where()))));
  foreign_datagram_peer server;  // The server never answers.
  const endpoint where =
      detail::endpoint_of(server.listen(cm::test::device_address(s.rt.context(), 1)));
  const std::string before = holdings();
  const failure late = s.failure_of(with_timeout(s.a.resolve(where), std::chrono::milliseconds{1}));
  CHECK(late.code == errc::timed_out);
  CHECK(settled_holdings(s.rt.executor(), before) == before);
}
