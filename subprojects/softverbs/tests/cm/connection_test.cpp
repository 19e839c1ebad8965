#include "fixture.hpp"

#include "node/gid_table.hpp"

#include <cerrno>

using namespace softverbs;
using namespace softverbs::cm;
using namespace softverbs::cm::test;

using std::chrono::milliseconds;

namespace {

constexpr milliseconds timewait{2048};                    // RoCE's ACK timeout determines it.
constexpr milliseconds request_time{16 * (2048 + 4096)};  // The time of all the kernel's tries.
constexpr milliseconds reply_time{16 * 4096};

}  // namespace

TEST_CASE("a connection goes from its request to the end of timewait", "[cm]") {
  two_processes both;
  both.listen();
  const seen_event request = both.request("hello");
  CHECK(request.raw.param.conn.private_data_len == request_private_bytes);
  CHECK(data_of(request.raw.param.conn) == "hello");
  CHECK(request.raw.param.conn.qp_num == both.client_qpn);
  CHECK(request.raw.param.conn.responder_resources == 2);  // The requester's initiator depth.
  CHECK(request.raw.param.conn.initiator_depth == 4);
  CHECK(request.raw.param.conn.retry_count == 7);
  CHECK(request.raw.param.conn.rnr_retry_count == 6);

  const auto server_address = both.server.query(both.server_id);
  CHECK(address{&server_address.src_addr, 128}.port() == both.port);
  CHECK(server_address.node_guid != 0);
  const auto client_address = both.client.query(both.client_id);
  CHECK(address{&server_address.dst_addr, 128}.port() ==
        address{&client_address.src_addr, 128}.port());

  const seen_event reply = both.reply("welcome");
  CHECK(reply.raw.param.conn.private_data_len == reply_private_bytes);
  CHECK(data_of(reply.raw.param.conn) == "welcome");
  CHECK(reply.raw.param.conn.qp_num == both.server_qpn);
  both.ready();

  REQUIRE(both.client.disconnect(both.client_id) == 0);
  both.run();
  both.take(both.server, event_kind::disconnected, both.server_user);
  CHECK_FALSE(both.client.readable());  // The client waits for the answer.
  REQUIRE(both.server.disconnect(both.server_id) == 0);
  both.run();
  CHECK(both.take(both.client, event_kind::disconnected, both.client_user).status() == 0);
  both.pass(timewait - milliseconds{1});
  CHECK_FALSE(both.client.readable());
  both.pass(milliseconds{1});
  both.take(both.client, event_kind::timewait_exit, both.client_user);
  both.take(both.server, event_kind::timewait_exit, both.server_user);
  CHECK(both.client.disconnect(both.client_id) == 0);  // There is nothing to do.
  CHECK(both.client.destroy(both.client_id) == 5);
  CHECK(both.server.destroy(both.server_id) == 3);
  CHECK(both.server.destroy(both.listener) == 1);
}

TEST_CASE("both sides may disconnect at once", "[cm]") {
  two_processes both;
  both.establish();
  REQUIRE(both.client.disconnect(both.client_id) == 0);
  REQUIRE(both.server.disconnect(both.server_id) == 0);
  both.run();
  both.take(both.client, event_kind::disconnected, both.client_user);
  both.take(both.server, event_kind::disconnected, both.server_user);
  // Each side takes the other's request like any request: the program answers.
  REQUIRE(both.client.disconnect(both.client_id) == 0);
  both.run();
  both.pass(timewait);
  both.take(both.client, event_kind::timewait_exit, both.client_user);
  both.take(both.server, event_kind::timewait_exit, both.server_user);
}

TEST_CASE("the attributes of the queue pairs follow from the messages", "[cm]") {
  two_processes both;
  ib_uverbs_qp_attr at_client{};
  ib_uverbs_qp_attr at_server{};
  const auto client_attr = [&](ibv_qp_state state) {
    return both.client.init_qp_attr(both.client_id, state, at_client);
  };
  const auto server_attr = [&](ibv_qp_state state) {
    return both.server.init_qp_attr(both.server_id, state, at_server);
  };
  both.listen();
  both.client_id = both.resolved();
  REQUIRE(client_attr(IBV_QPS_INIT) == 0);
  CHECK(at_client.qp_attr_mask ==
        (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
  CHECK(at_client.qp_access_flags == 0);
  CHECK(at_client.port_num == 1);
  REQUIRE(both.client.connect(both.client_id, parameters(both.client_qpn)) == 0);
  CHECK(client_attr(IBV_QPS_RTR) == EINVAL);  // The peer has not said anything.
  both.run();
  both.server_id = both.take(both.server, event_kind::connect_request, both.listener_user).raw.id;

  REQUIRE(server_attr(IBV_QPS_INIT) == 0);
  CHECK(at_server.qp_access_flags ==
        (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC));
  REQUIRE(server_attr(IBV_QPS_RTR) == 0);
  const ib_uverbs_qp_attr server_rtr = at_server;
  REQUIRE(server_attr(IBV_QPS_RTS) == 0);
  const ib_uverbs_qp_attr server_rts = at_server;
  both.reply();
  REQUIRE(client_attr(IBV_QPS_RTR) == 0);
  const ib_uverbs_qp_attr client_rtr = at_client;
  REQUIRE(client_attr(IBV_QPS_RTS) == 0);
  const ib_uverbs_qp_attr client_rts = at_client;

  CHECK(server_rtr.dest_qp_num == both.client_qpn);
  CHECK(client_rtr.dest_qp_num == both.server_qpn);
  CHECK(server_rtr.rq_psn == client_rts.sq_psn);
  CHECK(client_rtr.rq_psn == server_rts.sq_psn);
  CHECK(server_rtr.path_mtu == IBV_MTU_4096);
  CHECK(server_rtr.max_dest_rd_atomic == 2);
  CHECK(server_rts.max_rd_atomic == 4);
  CHECK(server_rts.retry_cnt == 7);
  CHECK(server_rts.rnr_retry == 6);
  CHECK(client_rts.retry_cnt == 7);
  CHECK(client_rts.rnr_retry == 6);  // The replier asked for 6.
  CHECK(client_rts.timeout == 19);
  CHECK(server_rts.timeout == 19);
  const ibv_gid loopback = gid_at(gid_count() - 1);
  CHECK(std::memcmp(client_rtr.ah_attr.grh.dgid, loopback.raw, sizeof loopback.raw) == 0);
  CHECK(client_rtr.ah_attr.grh.sgid_index == gid_count() - 1);
  CHECK(client_rtr.ah_attr.is_global == 1);
  CHECK(client_rtr.ah_attr.grh.flow_label == server_rtr.ah_attr.grh.flow_label);

  CHECK(client_attr(IBV_QPS_SQD) == EINVAL);
  CHECK(client_attr(static_cast<ibv_qp_state>(7)) == EINVAL);
  const rdma_ucm_init_qp_attr command{reinterpret_cast<std::uintptr_t>(&at_client), both.client_id,
                                      IBV_QPS_INIT};
  CHECK(both.client.write(RDMA_USER_CM_CMD_INIT_QP_ATTR, command, sizeof at_client - 1) == ENOSPC);
  both.ready();
  REQUIRE(both.client.disconnect(both.client_id) == 0);
  CHECK(client_attr(IBV_QPS_RTS) == EINVAL);
}

TEST_CASE("the ACK timeout is an option", "[cm]") {
  two_processes both;
  both.listen();
  const std::uint8_t timeout = 14;
  both.client_id = both.client.create(RDMA_PS_TCP, both.client_user);
  const rdma_ucm_set_option option{reinterpret_cast<std::uintptr_t>(&timeout), both.client_id,
                                   RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, 1};
  REQUIRE(both.client.write(RDMA_USER_CM_CMD_SET_OPTION, option) == 0);
  REQUIRE(both.client.resolve(both.client_id, v4("127.0.0.1", both.port)) == 0);
  REQUIRE(both.client.resolve_route(both.client_id) == 0);
  REQUIRE(both.client.connect(both.client_id, parameters(both.client_qpn)) == 0);
  both.run();
  both.server_id = both.take(both.server, event_kind::connect_request, both.listener_user).raw.id;
  both.take(both.client, event_kind::address_resolved, both.client_user);
  both.take(both.client, event_kind::route_resolved, both.client_user);
  both.reply();
  ib_uverbs_qp_attr attr{};
  REQUIRE(both.client.init_qp_attr(both.client_id, IBV_QPS_RTS, attr) == 0);
  CHECK(attr.timeout == timeout);
}

TEST_CASE("an initiator of XRC connects with a target", "[cm]") {
  two_processes both;
  both.listener = both.server.create(RDMA_PS_IB, both.listener_user, IBV_QPT_XRC_RECV);
  REQUIRE(both.server.bind(both.listener, v4("0.0.0.0", both.port)) == 0);
  REQUIRE(both.server.listen(both.listener) == 0);
  both.client_id = both.client.create(RDMA_PS_IB, both.client_user, IBV_QPT_XRC_SEND);
  REQUIRE(both.client.resolve(both.client_id, v4("127.0.0.1", both.port)) == 0);
  both.take(both.client, event_kind::address_resolved, both.client_user);
  REQUIRE(both.client.resolve_route(both.client_id) == 0);
  both.take(both.client, event_kind::route_resolved, both.client_user);
  REQUIRE(both.client.connect(both.client_id, parameters(both.client_qpn)) == 0);
  both.run();
  both.server_id = both.take(both.server, event_kind::connect_request, both.listener_user).raw.id;
  both.reply();
  both.ready();
  ib_uverbs_qp_attr of_initiator{}, of_target{};
  const auto attributes = [&](ibv_qp_state state) {
    REQUIRE(both.client.init_qp_attr(both.client_id, state, of_initiator) == 0);
    REQUIRE(both.server.init_qp_attr(both.server_id, state, of_target) == 0);
  };
  attributes(IBV_QPS_RTR);
  constexpr int of_responder = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  CHECK((of_initiator.qp_attr_mask & of_responder) == 0);
  CHECK((of_target.qp_attr_mask & of_responder) == of_responder);
  attributes(IBV_QPS_RTS);
  constexpr int of_requester = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  CHECK((of_initiator.qp_attr_mask & of_requester) == of_requester);
  CHECK((of_target.qp_attr_mask & of_requester) == 0);
  CHECK((of_target.qp_attr_mask & IBV_QP_TIMEOUT) != 0);
}

TEST_CASE("a request is rejected with data, or for want of a vendor's option", "[cm]") {
  two_processes both;
  both.listen();
  both.request();
  CHECK(both.server.reject(both.server_id, "no", 5) == EINVAL);  // Programs may not give reason 5.
  REQUIRE(both.server.reject(both.server_id, "no") == 0);
  CHECK(both.server.reject(both.server_id, "no") == EINVAL);
  both.run();
  const seen_event rejected = both.take(both.client, event_kind::rejected, both.client_user);
  CHECK(rejected.status() == 28);
  CHECK(rejected.raw.param.conn.private_data_len == reject_private_bytes);
  CHECK(data_of(rejected.raw.param.conn) == "no");
  CHECK(both.client.connect(both.client_id, parameters(1)) == EINVAL);

  both.request();
  REQUIRE(both.server.reject(both.server_id, "", 35) == 0);
  both.run();
  CHECK(both.take(both.client, event_kind::rejected, both.client_user).status() == 35);
}

TEST_CASE("the requester may reject a reply", "[cm]") {
  two_processes both;
  both.listen();
  both.request();
  both.reply();
  REQUIRE(both.client.reject(both.client_id, "changed my mind") == 0);
  both.run();
  const seen_event rejected = both.take(both.server, event_kind::rejected, both.server_user);
  CHECK(rejected.status() == 28);
  CHECK(data_of(rejected.raw.param.conn) == "changed my mind");
}

TEST_CASE("private data has the kernel's sizes", "[cm]") {
  two_processes both;
  both.listen();
  both.client_id = both.resolved();
  rdma_ucm_conn_param with = parameters(both.client_qpn);
  with.private_data_len = request_private_bytes + 1;
  CHECK(both.client.connect(both.client_id, with) == EINVAL);
  with.private_data_len = 255;
  CHECK(both.client.connect(both.client_id, with) == EINVAL);
  with.private_data_len = request_private_bytes;
  CHECK(both.client.connect(both.client_id, with) == 0);
  both.run();
  both.server_id = both.take(both.server, event_kind::connect_request, both.listener_user).raw.id;
  rdma_ucm_reject reject{};
  reject.id = both.server_id;
  reject.private_data_len = reject_private_bytes + 1;
  CHECK(both.server.write(RDMA_USER_CM_CMD_REJECT, reject) == EINVAL);
  with.private_data_len = reply_private_bytes + 1;
  CHECK(both.server.accept(both.server_id, both.server_user, with) == EINVAL);
  both.run();  // An accept that fails rejects.
  CHECK(both.take(both.client, event_kind::rejected, both.client_user).status() == 28);
  CHECK(both.server.accept(both.server_id, both.server_user, parameters(1)) == EINVAL);
}

TEST_CASE("CONNECT and ACCEPT are refused in the wrong state, and may be short", "[cm]") {
  two_processes both;
  both.listen();
  const std::uint32_t id = both.client.create(RDMA_PS_TCP, both.client_user);
  CHECK(both.client.connect(id, parameters(1)) == EINVAL);  // No device.
  CHECK(both.client.accept(id, 1, parameters(1)) == EINVAL);
  CHECK(both.client.reject(id) == EINVAL);
  CHECK(both.client.disconnect(id) == EINVAL);
  REQUIRE(both.client.bind(id, v4("127.0.0.1")) == 0);
  CHECK(both.client.connect(id, parameters(1)) == EINVAL);  // No route.
  CHECK(both.client.disconnect(id) == EINVAL);
  both.client_id = both.resolved();
  CHECK(both.client.accept(both.client_id, 1, parameters(1)) == EINVAL);
  CHECK(both.client.connect(both.client_id, rdma_ucm_conn_param{}) == EINVAL);  // Not valid.
  rdma_ucm_connect connect{};
  connect.conn_param = parameters(both.client_qpn);
  connect.id = both.client_id;
  connect.ece = {0x111111, 0x22};
  constexpr std::size_t without_ece = offsetof(rdma_ucm_connect, ece);
  CHECK(both.client.write(RDMA_USER_CM_CMD_CONNECT, connect, 0, without_ece - 1) == EINVAL);
  REQUIRE(both.client.write(RDMA_USER_CM_CMD_CONNECT, connect, 0, without_ece) == 0);
  both.run();
  const seen_event request =
      both.take(both.server, event_kind::connect_request, both.listener_user);
  CHECK(request.raw.ece.vendor_id == 0);
  CHECK(both.client.accept(both.client_id, 0, rdma_ucm_conn_param{}) == EINVAL);  // No reply yet.
}

TEST_CASE("ECE goes to the peer and back", "[cm]") {
  two_processes both;
  both.listen();
  both.client_id = both.resolved();
  rdma_ucm_connect connect{};
  connect.conn_param = parameters(both.client_qpn);
  connect.id = both.client_id;
  connect.ece = {0x15b3, 0xabcd};
  REQUIRE(both.client.write(RDMA_USER_CM_CMD_CONNECT, connect) == 0);
  both.run();
  const seen_event request =
      both.take(both.server, event_kind::connect_request, both.listener_user);
  CHECK(request.raw.ece.vendor_id == 0x15b3);
  CHECK(request.raw.ece.attr_mod == 0xabcd);
  rdma_ucm_accept accept{};
  accept.uid = both.server_user;
  accept.conn_param = parameters(both.server_qpn);
  accept.id = request.raw.id;
  accept.ece = {0x15b3, 0x1};
  REQUIRE(both.server.write(RDMA_USER_CM_CMD_ACCEPT, accept) == 0);
  both.run();
  const seen_event reply = both.take(both.client, event_kind::connect_response, both.client_user);
  CHECK(reply.raw.ece.vendor_id == 0x15b3);
  CHECK(reply.raw.ece.attr_mod == 1);
}

TEST_CASE("nobody listens: rejected, with the reason that the kernel gives", "[cm]") {
  two_processes both;
  both.client_id = both.resolved();
  REQUIRE(both.client.connect(both.client_id, parameters(1)) == 0);
  both.run();
  both.pass(search_time - milliseconds{1});
  CHECK_FALSE(both.client.readable());
  both.pass(search_period);
  const seen_event rejected = both.take(both.client, event_kind::rejected, both.client_user);
  CHECK(rejected.status() == 8);
  CHECK(rejected.raw.param.conn.private_data_len == reject_private_bytes);
}

TEST_CASE("a request waits a moment for somebody to listen", "[cm]") {
  for (const std::uint16_t space : {RDMA_PS_TCP, RDMA_PS_UDP}) {
    two_processes both;
    both.client_id = both.resolved(space);
    REQUIRE(both.client.connect(both.client_id, parameters(1)) == 0);
    both.run();
    const std::uint32_t gives_up = both.resolved(space);
    REQUIRE(both.client.connect(gives_up, parameters(1)) == 0);
    both.run();
    both.client.destroy(gives_up);
    both.listen(space);
    both.pass(search_period);
    both.take(both.server, event_kind::connect_request, both.listener_user);
    CHECK_FALSE(both.server.readable());
    CHECK_FALSE(both.client.readable());
  }
}

TEST_CASE("a listener is bound, listens once, and may be without an address", "[cm]") {
  two_processes both;
  const std::uint32_t id = both.server.create(RDMA_PS_TCP, 1);
  REQUIRE(both.server.listen(id) == 0);
  const auto answer = both.server.query(id);
  CHECK(answer.src_size == sizeof(sockaddr_in));
  CHECK(address{&answer.src_addr, 128}.port() != 0);
  CHECK(both.server.listen(id) == EINVAL);
  CHECK(both.server.bind(id, v4("127.0.0.1")) == EINVAL);
  const std::uint32_t resolved = both.client.create(RDMA_PS_TCP, 1);
  REQUIRE(both.client.resolve(resolved, v4("127.0.0.1", 1)) == 0);
  CHECK(both.client.listen(resolved) == EINVAL);
}

TEST_CASE("requests beyond the backlog wait, and beyond as many more are rejected", "[cm]") {
  two_processes both;
  both.listen(RDMA_PS_TCP, 2);
  std::vector<std::uint32_t> clients;
  for (int n = 0; n < 5; ++n) {
    clients.push_back(both.resolved());
    REQUIRE(both.client.connect(clients.back(), parameters(1)) == 0);
  }
  both.run();
  const seen_event refused = both.take(both.client, event_kind::rejected, both.client_user);
  CHECK(refused.status() == 3);
  CHECK(refused.raw.id == clients.back());
  CHECK_FALSE(both.client.readable());
  CHECK(both.client.destroy(clients[3]) == 2);  // A requester that waits gives up.
  both.run();
  for (int n = 0; n < 3; ++n)
    both.take(both.server, event_kind::connect_request, both.listener_user);
  CHECK_FALSE(both.server.readable());
}

TEST_CASE("few requests wait, however long the backlog is", "[cm]") {
  two_processes both;
  constexpr int backlog = waiting_max + 10;
  both.listen(RDMA_PS_TCP, backlog);
  for (int n = 0; n < backlog + waiting_max; ++n)
    REQUIRE(both.client.connect(both.resolved(), parameters(1)) == 0);
  both.run();
  CHECK_FALSE(both.client.readable());
  REQUIRE(both.client.connect(both.resolved(), parameters(1)) == 0);
  both.run();
  CHECK(both.take(both.client, event_kind::rejected, both.client_user).status() == 3);
}

TEST_CASE("NOTIFY establishes a connection whose queue pair already has data", "[cm]") {
  two_processes both;
  both.listen();
  both.request();
  const auto notify = [&](std::uint32_t what) {
    return both.server.write(RDMA_USER_CM_CMD_NOTIFY, rdma_ucm_notify{both.server_id, what});
  };
  CHECK(notify(IBV_EVENT_COMM_EST) == EINVAL);
  both.reply();
  CHECK(notify(IBV_EVENT_PATH_MIG) == EINVAL);
  REQUIRE(notify(IBV_EVENT_COMM_EST) == 0);
  both.take(both.server, event_kind::established, both.server_user);
  CHECK(notify(IBV_EVENT_COMM_EST) == EISCONN);
  REQUIRE(both.client.accept(both.client_id, 0, rdma_ucm_conn_param{}) == 0);
  both.run();
  CHECK_FALSE(both.server.readable());  // Established once.
  const std::uint32_t unbound = both.server.create(RDMA_PS_TCP, 1);
  CHECK(both.server.write(RDMA_USER_CM_CMD_NOTIFY, rdma_ucm_notify{unbound, IBV_EVENT_COMM_EST}) ==
        EINVAL);
}

TEST_CASE("messages without an answer end when the kernel would give up", "[cm]") {
  SECTION("a request") {
    two_processes both;
    both.all.silent = true;
    both.client_id = both.resolved();
    REQUIRE(both.client.connect(both.client_id, parameters(1)) == 0);
    CHECK(both.client_process.earlier_deadlines == 1);
    both.pass(request_time - milliseconds{1});
    CHECK_FALSE(both.client.readable());
    both.pass(milliseconds{1});
    const seen_event found = both.take(both.client, event_kind::unreachable, both.client_user);
    CHECK(found.status() == -ETIMEDOUT);
  }
  SECTION("a reply") {
    two_processes both;
    both.listen();
    both.request();
    both.reply();
    both.pass(reply_time);
    const seen_event found = both.take(both.server, event_kind::unreachable, both.server_user);
    CHECK(found.status() == -ETIMEDOUT);
  }
  SECTION("a disconnect") {
    two_processes both;
    both.establish();
    REQUIRE(both.client.disconnect(both.client_id) == 0);
    both.pass(request_time);
    const seen_event found = both.take(both.client, event_kind::disconnected, both.client_user);
    CHECK(found.status() == -ETIMEDOUT);
    both.pass(timewait);
    both.take(both.client, event_kind::timewait_exit, both.client_user);
  }
}
