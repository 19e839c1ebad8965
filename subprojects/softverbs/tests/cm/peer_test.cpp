#include "fixture.hpp"

#include <cerrno>

// Peers that die, destroy their identifiers, or lie.

using namespace softverbs;
using namespace softverbs::cm;
using namespace softverbs::cm::test;

using std::chrono::milliseconds;

namespace {

/// A message from the peer that the peer's machine would not send.
void forge(process& at, const message& what) {
  for (double_conversation* one : at.net->live) one->inbox.push_back(what);
}

constexpr message_kind all_kinds[] = {message_kind::request,
                                      message_kind::reply,
                                      message_kind::ready,
                                      message_kind::reject,
                                      message_kind::disconnect_request,
                                      message_kind::disconnect_reply,
                                      message_kind::sidr_request,
                                      message_kind::sidr_reply};

}  // namespace

TEST_CASE("a peer that dies ends the connection in each state", "[cm][fault]") {
  two_processes both;
  both.listen();
  SECTION("the listener, before it accepts") {
    both.request();
    both.server_process.die();
    both.client_process.run();
    const seen_event found = both.take(both.client, event_kind::unreachable, both.client_user);
    CHECK(found.status() == -ETIMEDOUT);
  }
  SECTION("the requester, before it is accepted") {
    both.request();
    both.client_process.die();
    both.server_process.run();
    CHECK_FALSE(both.server.readable());  // The program has not taken the connection.
    CHECK(both.server.accept(both.server_id, 1, parameters(1)) == EINVAL);
    CHECK(both.server.reject(both.server_id) == EINVAL);
  }
  SECTION("the requester, before it is ready") {
    both.request();
    both.reply();
    both.client_process.die();
    both.server_process.run();
    const seen_event found = both.take(both.server, event_kind::unreachable, both.server_user);
    CHECK(found.status() == -ETIMEDOUT);
  }
  SECTION("the listener, after its reply") {
    both.request();
    both.reply();
    both.server_process.die();
    both.client_process.run();
    both.take(both.client, event_kind::unreachable, both.client_user);
    CHECK(both.client.accept(both.client_id, 0, rdma_ucm_conn_param{}) == EINVAL);
  }
  SECTION("a connected peer") {
    both.request();
    both.reply();
    both.ready();
    both.client_process.die();
    both.server_process.run();
    CHECK(both.take(both.server, event_kind::disconnected, both.server_user).status() == 0);
    CHECK(both.server.disconnect(both.server_id) == 0);
    both.all.now += milliseconds{2048};
    both.server_process.run();
    both.take(both.server, event_kind::timewait_exit, both.server_user);
  }
  SECTION("a peer that should answer a disconnect") {
    both.request();
    both.reply();
    both.ready();
    REQUIRE(both.server.disconnect(both.server_id) == 0);
    both.client_process.die();
    both.server_process.run();
    both.take(both.server, event_kind::disconnected, both.server_user);
  }
}

TEST_CASE("a destroyed identifier says goodbye as its state demands", "[cm]") {
  two_processes both;
  both.listen();
  SECTION("a request that waits for its reply") {
    both.request();
    both.client.destroy(both.client_id);
    both.run();
    CHECK_FALSE(both.server.readable());
    CHECK(both.server.accept(both.server_id, 1, parameters(1)) == EINVAL);
  }
  SECTION("a request that was not accepted") {
    both.request();
    both.server.destroy(both.server_id);
    both.run();
    CHECK(both.take(both.client, event_kind::rejected, both.client_user).status() == 28);
  }
  SECTION("a request that the program never saw") {
    both.client_id = both.resolved();
    REQUIRE(both.client.connect(both.client_id, parameters(1)) == 0);
    both.run();
    CHECK(both.server.readable());
    CHECK(both.server.destroy(both.listener) == 0);
    CHECK_FALSE(both.server.readable());
    both.run();
    CHECK(both.take(both.client, event_kind::rejected, both.client_user).status() == 28);
    CHECK(both.server.create(RDMA_PS_TCP, 1) == both.listener);  // All numbers are free.
    CHECK(both.server.create(RDMA_PS_TCP, 1) == both.listener + 1);
  }
  SECTION("a reply that was not answered") {
    both.request();
    both.reply();
    both.server.destroy(both.server_id);
    both.run();
    CHECK(both.take(both.client, event_kind::rejected, both.client_user).status() == 28);
  }
  SECTION("a reply that was not taken") {
    both.request();
    both.reply();
    both.client.destroy(both.client_id);
    both.run();
    CHECK(both.take(both.server, event_kind::rejected, both.server_user).status() == 28);
  }
  SECTION("an established connection") {
    both.request();
    both.reply();
    both.ready();
    both.client.destroy(both.client_id);
    both.run();
    CHECK(both.take(both.server, event_kind::disconnected, both.server_user).status() == 0);
  }
  SECTION("a connection that the peer disconnects") {
    both.request();
    both.reply();
    both.ready();
    REQUIRE(both.client.disconnect(both.client_id) == 0);
    both.run();
    both.server.destroy(both.server_id);
    both.run();
    CHECK(both.take(both.client, event_kind::disconnected, both.client_user).status() == 0);
  }
  SECTION("a request that waits for room") {
    both.server.destroy(both.listener);
    both.listen(RDMA_PS_TCP, 1);
    for (int n = 0; n < 2; ++n) {
      both.client_id = both.resolved();
      REQUIRE(both.client.connect(both.client_id, parameters(1)) == 0);
    }
    both.run();
    both.server.destroy(both.listener);
    both.run();
    for (int n = 0; n < 2; ++n)
      CHECK(both.take(both.client, event_kind::rejected, both.client_user).status() == 28);
  }
}

TEST_CASE("a closed channel destroys what it has", "[cm]") {
  two_processes both;
  {
    file passing{both.server_process};
    const std::uint32_t id = passing.create(RDMA_PS_TCP, 1);
    REQUIRE(passing.bind(id, v4("127.0.0.1", both.port)) == 0);
    REQUIRE(passing.listen(id) == 0);
    both.client_id = both.resolved();
    REQUIRE(both.client.connect(both.client_id, parameters(1)) == 0);
    both.run();
  }
  CHECK(both.all.names.size() == 1);  // The client's name remains.
  both.run();
  CHECK(both.take(both.client, event_kind::rejected, both.client_user).status() == 28);
}

TEST_CASE("a connection that nobody was told of ends whatever its number is", "[cm]") {
  two_processes both;
  {
    file passing{both.server_process};
    const std::uint32_t first = passing.create(RDMA_PS_TCP, 1);
    const std::uint32_t id = passing.create(RDMA_PS_TCP, 1);
    REQUIRE(passing.bind(id, v4("127.0.0.1", both.port)) == 0);
    REQUIRE(passing.listen(id) == 0);
    passing.destroy(first);
    both.client_id = both.resolved();
    REQUIRE(both.client.connect(both.client_id, parameters(1)) == 0);
    both.run();
    CHECK(passing.readable());
    SECTION("the channel closes") {}
    SECTION("the program destroys the connection by its number") {
      passing.destroy(first);  // The connection has the free number.
      CHECK_FALSE(passing.readable());
    }
  }
  both.run();
  CHECK(both.take(both.client, event_kind::rejected, both.client_user).status() == 28);
}

TEST_CASE("messages that make no sense in a state are ignored", "[cm][fault]") {
  two_processes both;
  both.listen();
  both.client_id = both.resolved();
  REQUIRE(both.client.connect(both.client_id, parameters(both.client_qpn)) == 0);
  SECTION("before the reply") {
    for (const message_kind kind : all_kinds)
      if (kind != message_kind::reply && kind != message_kind::reject)
        forge(both.client_process, plain_message(kind));
    both.client_process.run();
    CHECK_FALSE(both.client.readable());
    both.run();
    both.server_id = both.take(both.server, event_kind::connect_request, both.listener_user).raw.id;
    both.reply();
  }
  SECTION("to a request") {
    both.run();
    both.server_id = both.take(both.server, event_kind::connect_request, both.listener_user).raw.id;
    for (const message_kind kind : all_kinds)
      if (kind != message_kind::reject) forge(both.server_process, plain_message(kind));
    both.run();
    CHECK_FALSE(both.server.readable());
    both.reply();
  }
  SECTION("to a connection") {
    both.run();
    both.server_id = both.take(both.server, event_kind::connect_request, both.listener_user).raw.id;
    both.reply();
    both.ready();
    for (const message_kind kind :
         {message_kind::request, message_kind::reply, message_kind::ready,
          message_kind::disconnect_reply, message_kind::sidr_request, message_kind::sidr_reply}) {
      forge(both.server_process, plain_message(kind));
      forge(both.client_process, plain_message(kind));
    }
    both.run();
    CHECK_FALSE(both.server.readable());
    CHECK_FALSE(both.client.readable());
  }
}

TEST_CASE("a request that lies is refused", "[cm][fault]") {
  two_processes both;
  both.listen();
  both.client_id = both.resolved();
  const auto rejected_with = [&](auto&& change) {
    both.client_id = both.resolved();
    REQUIRE(both.client.connect(both.client_id, parameters(1)) == 0);
    change(both.server_process.net->arrivals.front().request);
    both.run();
    CHECK_FALSE(both.server.readable());
    return both.take(both.client, event_kind::rejected, both.client_user).status();
  };
  CHECK(rejected_with([](message& one) { one.qp_type = IBV_QPT_UC; }) == 28);
  CHECK(rejected_with([](message& one) { one.qp_type = IBV_QPT_XRC_SEND; }) == 28);
  CHECK(rejected_with([](message& one) { one.qp_type = IBV_QPT_XRC_RECV; }) == 28);
  CHECK(rejected_with([](message& one) { one.path_mtu = 0; }) == 26);
  CHECK(rejected_with([](message& one) { one.path_mtu = 6; }) == 26);
  // An address that this host does not have.
  CHECK(rejected_with([](message& one) { one.destination = v4("240.0.0.1").at(); }) == 12);
  // A peer on another host has the address of its socket.
  both.all.peer_host = v4("192.0.2.1").at().address;
  CHECK(rejected_with([](message&) {}) == 12);
}

TEST_CASE("a request's numbers are bounded", "[cm][fault]") {
  two_processes both;
  both.listen();
  both.client_id = both.resolved();
  REQUIRE(both.client.connect(both.client_id, parameters(1)) == 0);
  message& request = both.server_process.net->arrivals.front().request;
  request.retry_count = request.rnr_retry_count = request.ack_timeout = 255;
  request.private_bytes = 255;
  std::memset(request.private_data, 'x', sizeof request.private_data);
  both.run();
  const seen_event found = both.take(both.server, event_kind::connect_request, both.listener_user);
  CHECK(found.raw.param.conn.retry_count == 7);
  CHECK(found.raw.param.conn.rnr_retry_count == 7);
  CHECK(found.raw.param.conn.private_data_len == request_private_bytes);
  CHECK(found.raw.param.conn.private_data[request_private_bytes] == 0);
  both.server_id = found.raw.id;
  both.reply();
  ib_uverbs_qp_attr attr{};
  REQUIRE(both.server.init_qp_attr(both.server_id, IBV_QPS_RTS, attr) == 0);
  CHECK(attr.timeout == 31);
  CHECK(attr.retry_cnt == 7);
}
