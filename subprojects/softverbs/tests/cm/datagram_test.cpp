#include "fixture.hpp"

#include <cerrno>

using namespace softverbs;
using namespace softverbs::cm;
using namespace softverbs::cm::test;

using std::chrono::milliseconds;

namespace {

constexpr milliseconds lookup_time{16 * 4096};

std::string data_of(const rdma_ucm_ud_param& from) {
  return reinterpret_cast<const char*>(from.private_data);
}

}  // namespace

TEST_CASE("a datagram's look-up gives the number, the key and the address", "[cm]") {
  two_processes both;
  both.listen(RDMA_PS_UDP);
  const seen_event request = both.request("who?", RDMA_PS_UDP);
  CHECK(request.raw.param.ud.private_data_len == sidr_request_private_bytes);
  CHECK(data_of(request.raw.param.ud) == "who?");
  CHECK(request.raw.param.ud.qp_num == 0);

  ib_uverbs_qp_attr attr{};
  REQUIRE(both.server.init_qp_attr(both.server_id, IBV_QPS_INIT, attr) == 0);
  CHECK(attr.qkey == default_qkey);
  CHECK((attr.qp_attr_mask & IBV_QP_QKEY) != 0);
  REQUIRE(both.server.accept(both.server_id, both.server_user, parameters(both.server_qpn, "me")) ==
          0);
  CHECK(both.server.accept(both.server_id, both.server_user, parameters(1)) == EINVAL);
  both.run();
  const seen_event found = both.take(both.client, event_kind::established, both.client_user);
  const rdma_ucm_ud_param& to = found.raw.param.ud;
  CHECK(found.status() == 0);
  CHECK(to.private_data_len == sidr_reply_private_bytes);
  CHECK(data_of(to) == "me");
  CHECK(to.qp_num == both.server_qpn);
  CHECK(to.qkey == default_qkey);
  CHECK(to.ah_attr.is_global == 1);
  CHECK(to.ah_attr.port_num == 1);
  CHECK_FALSE(both.server.readable());  // The server is not told of more.
  CHECK(both.client.disconnect(both.client_id) == 0);
  both.run();
  CHECK_FALSE(both.server.readable());
}

TEST_CASE("a datagram's look-up is rejected, or finds nobody", "[cm]") {
  SECTION("rejected") {
    two_processes both;
    both.listen(RDMA_PS_UDP);
    both.request("", RDMA_PS_UDP);
    CHECK(both.server.reject(both.server_id, "no", 35) == 0);
    both.run();
    const seen_event found = both.take(both.client, event_kind::unreachable, both.client_user);
    CHECK(found.status() == 2);
    CHECK(data_of(found.raw.param.ud) == "no");
  }
  SECTION("destroyed") {
    two_processes both;
    both.listen(RDMA_PS_UDP);
    both.request("", RDMA_PS_UDP);
    both.server.destroy(both.server_id);
    both.run();
    CHECK(both.take(both.client, event_kind::unreachable, both.client_user).status() == 2);
  }
  SECTION("nobody listens") {
    two_processes both;
    both.client_id = both.resolved(RDMA_PS_UDP);
    REQUIRE(both.client.connect(both.client_id, parameters(1)) == 0);
    both.run();
    both.pass(search_time - milliseconds{1});
    CHECK_FALSE(both.client.readable());
    both.pass(search_period);
    CHECK(both.take(both.client, event_kind::unreachable, both.client_user).status() == 1);
  }
  SECTION("nobody answers") {
    two_processes both;
    both.all.silent = true;
    both.client_id = both.resolved(RDMA_PS_UDP);
    REQUIRE(both.client.connect(both.client_id, parameters(1)) == 0);
    both.pass(lookup_time - milliseconds{1});
    CHECK_FALSE(both.client.readable());
    both.pass(milliseconds{1});
    const seen_event found = both.take(both.client, event_kind::unreachable, both.client_user);
    CHECK(found.status() == -ETIMEDOUT);
  }
  SECTION("the peer dies") {
    two_processes both;
    both.listen(RDMA_PS_UDP);
    both.request("", RDMA_PS_UDP);
    both.server_process.die();
    both.client_process.run();
    const seen_event found = both.take(both.client, event_kind::unreachable, both.client_user);
    CHECK(found.status() == -ETIMEDOUT);
  }
}

TEST_CASE("a datagram's private data has the kernel's sizes", "[cm]") {
  two_processes both;
  both.listen(RDMA_PS_UDP);
  both.client_id = both.resolved(RDMA_PS_UDP);
  rdma_ucm_conn_param with = parameters(1);
  with.private_data_len = sidr_request_private_bytes + 1;
  CHECK(both.client.connect(both.client_id, with) == EINVAL);
  with.private_data_len = sidr_request_private_bytes;
  REQUIRE(both.client.connect(both.client_id, with) == 0);
  both.run();
  both.server_id = both.take(both.server, event_kind::connect_request, both.listener_user).raw.id;
  with.private_data_len = sidr_reply_private_bytes + 1;
  CHECK(both.server.accept(both.server_id, both.server_user, with) == EINVAL);
  both.run();
  CHECK(both.take(both.client, event_kind::unreachable, both.client_user).status() == 2);
}

TEST_CASE("a requester that is gone does not hear the answer", "[cm]") {
  two_processes both;
  both.listen(RDMA_PS_UDP);
  both.request("", RDMA_PS_UDP);
  both.client.destroy(both.client_id);
  both.run();
  CHECK(both.server.accept(both.server_id, both.server_user, parameters(1)) == 0);
  both.run();
  CHECK_FALSE(both.server.readable());
}

TEST_CASE("a reply without a usable key is an error", "[cm]") {
  two_processes both;
  both.listen(RDMA_PS_UDP);
  both.client_id = both.resolved(RDMA_PS_UDP);
  REQUIRE(both.client.connect(both.client_id, parameters(1)) == 0);
  double_conversation* const here = *both.client_process.net->live.begin();
  message forged = plain_message(message_kind::sidr_reply);
  forged.qpn = 5;
  here->inbox.push_back(forged);
  both.run();
  CHECK(both.take(both.client, event_kind::address_error, both.client_user).status() == -EINVAL);
}
