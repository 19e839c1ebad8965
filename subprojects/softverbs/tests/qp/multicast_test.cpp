#include "../link/idle_engine.hpp"
#include "../multicast/groups.hpp"
#include "node/upcalls.hpp"
#include "pair.hpp"
#include "qp/data_path.hpp"

#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

using namespace softverbs;
using namespace softverbs::test;

namespace {

constexpr std::uint32_t everybody = 0xffffff;

/// A UD queue pair that leaves its groups at the end.
class member : public side {
 public:
  explicit member(const pair_options& how = {.type = IBV_QPT_UD}) : side{how} {
    to_init();
    to_rtr(0, 0);
    to_rts(0);
  }
  ~member() {
    if (qp != nullptr)
      for (const ibv_gid& group : attached_) verb::detach_mcast(qp, &group, 0);
    if (ah_ != nullptr) verb::destroy_ah(ah_);
  }
  member(const member&) = delete;
  member& operator=(const member&) = delete;

  int attach(const ibv_gid& group) {
    const int error = verb::attach_mcast(qp, &group, 0);
    if (error == 0) attached_.push_back(group);
    return error;
  }
  int detach(const ibv_gid& group) { return verb::detach_mcast(qp, &group, 0); }

  void send_to(const ibv_gid& group, std::uint32_t bytes = 8, std::uint32_t qpn = everybody) {
    if (ah_ != nullptr) verb::destroy_ah(ah_);
    ibv_ah_attr attr = side::path();
    attr.grh.dgid = group;
    ah_ = verb::create_ah(pd, &attr);
    REQUIRE(ah_ != nullptr);
    ibv_send_wr wr = request(IBV_WR_SEND);
    wr.wr.ud.ah = ah_;
    wr.wr.ud.remote_qpn = qpn;
    wr.wr.ud.remote_qkey = 0x1234;
    REQUIRE(send(wr, {piece(0, bytes)}) == 0);
    const ibv_wc wc = await();
    CHECK(wc.status == IBV_WC_SUCCESS);
    CHECK(wc.opcode == IBV_WC_SEND);
  }

 private:
  std::vector<ibv_gid> attached_;
  ibv_ah* ah_ = nullptr;
};

/// The bytes of a frame that brings 8 bytes to a group.
struct frame {
  frame_header header{};
  std::byte payload[24]{};
  explicit frame(const ibv_gid& group) {
    header.kind = frame_kind::send;
    header.transport = service::ud;
    header.flags = frame_flag::first | frame_flag::last;
    header.source_qpn = 77;
    header.destination_qpn = everybody;
    header.payload_bytes = sizeof payload;
    header.message_bytes = 8;
    header.qkey = 0x1234;
    std::memcpy(payload, &group, sizeof group);
    payload[16] = std::byte{42};
  }
};

}  // namespace

TEST_CASE("a datagram to a group reaches each attached queue pair but its sender", "[qp]") {
  member sender, first, second, bystander;
  const ibv_gid wanted = group(1);
  for (member* one : {&sender, &first, &second}) REQUIRE(one->attach(wanted) == 0);
  REQUIRE(bystander.attach(group(2)) == 0);
  for (member* one : {&sender, &first, &second, &bystander})
    REQUIRE(one->receive(5, {one->piece(0, grh_bytes), one->piece(100, 4096)}) == 0);
  sender.fill(0, 4096, 8);
  sender.send_to(wanted, 4096);
  for (member* one : {&first, &second}) {
    const ibv_wc wc = one->await();
    CHECK(wc.status == IBV_WC_SUCCESS);
    CHECK(wc.byte_len == grh_bytes + 4096);
    CHECK(wc.src_qp == sender.qp->qp_num);
    CHECK(wc.wc_flags == IBV_WC_GRH);
    CHECK(std::memcmp(&sender.memory[0], &one->memory[100], 4096) == 0);
    // An IPv4 header, to the group.
    CHECK(one->memory[20] == std::byte{0x45});
    CHECK(std::memcmp(&one->memory[36], &wanted.raw[12], 4) == 0);
  }
  CHECK(sender.is_quiet());
  CHECK(bystander.is_quiet());
}

TEST_CASE("a queue pair can be in several groups", "[qp]") {
  member sender, to;
  const ibv_gid v6{{0xff, 0x05, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x77}};
  const ibv_gid roce_v1{{0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 1, 1}};
  for (const ibv_gid& wanted : {group(1), v6, roce_v1}) {
    REQUIRE(to.attach(wanted) == 0);
    REQUIRE(to.receive(1, {to.piece(0, 100)}) == 0);
    sender.send_to(wanted);
    CHECK(to.await().byte_len == grh_bytes + 8);
  }
}

TEST_CASE("a datagram to a group that nobody joined succeeds", "[qp]") {
  member sender;
  sender.send_to(group(3));
  CHECK(sender.state() == IBV_QPS_RTS);
}

TEST_CASE("a datagram to a group whose number is not 0xffffff reaches nobody", "[qp]") {
  member sender, to;
  REQUIRE(to.attach(group(1)) == 0);
  REQUIRE(to.receive(1, {to.piece(0, 100)}) == 0);
  sender.send_to(group(1), 8, to.qp->qp_num);
  CHECK(to.is_quiet());
}

TEST_CASE("a member that cannot take a datagram misses it, and no other does", "[qp]") {
  member sender, full, ready;
  for (member* one : {&full, &ready}) REQUIRE(one->attach(group(1)) == 0);
  for (int n = 0; n < 2; ++n) REQUIRE(ready.receive(1, {ready.piece(0, 100)}) == 0);
  SECTION("no receive is posted") {}
  SECTION("the receive is too short") {
    REQUIRE(full.receive(1, {full.piece(0, grh_bytes + 7)}) == 0);
  }
  SECTION("the queue pair is in RESET") { full.to(IBV_QPS_RESET); }
  sender.send_to(group(1));
  sender.send_to(group(1));
  CHECK(ready.await().status == IBV_WC_SUCCESS);
  CHECK(ready.await().status == IBV_WC_SUCCESS);
  CHECK(full.is_quiet());
}

TEST_CASE("a member with another Q_Key gets nothing", "[qp]") {
  member sender;
  member other{{.type = IBV_QPT_UD, .qkey = 0x4321}};
  REQUIRE(other.attach(group(1)) == 0);
  REQUIRE(other.receive(1, {other.piece(0, 100)}) == 0);
  sender.send_to(group(1));
  CHECK(other.is_quiet());
}

TEST_CASE("a queue pair gets nothing after it is detached, and again once it is attached", "[qp]") {
  member sender, to;
  REQUIRE(to.receive(1, {to.piece(0, 100)}) == 0);
  REQUIRE(to.attach(group(1)) == 0);
  REQUIRE(to.attach(group(1)) == 0);
  CHECK(to.detach(group(1)) == 0);
  CHECK(to.detach(group(1)) == EINVAL);
  sender.send_to(group(1));
  CHECK(to.is_quiet());
  REQUIRE(to.attach(group(1)) == 0);
  sender.send_to(group(1));
  CHECK(to.await().byte_len == grh_bytes + 8);
}

TEST_CASE("what the kernel refuses to attach is refused", "[qp]") {
  member to;
  CHECK(to.attach(side::path().grh.dgid) == EINVAL);
  CHECK(to.attach(ibv_gid{}) == EINVAL);
  CHECK(to.detach(group(1)) == EINVAL);
  side connected{{.type = IBV_QPT_RC}};
  const ibv_gid wanted = group(1);
  CHECK(verb::attach_mcast(connected.qp, &wanted, 0) == EINVAL);
  side unreliable{{.type = IBV_QPT_UC}};
  CHECK(verb::attach_mcast(unreliable.qp, &wanted, 0) == EINVAL);
}

TEST_CASE("a queue pair that is attached is busy", "[qp]") {
  member to;
  REQUIRE(to.attach(group(1)) == 0);
  CHECK(verb::destroy_qp(to.qp) == EBUSY);
  CHECK(to.detach(group(1)) == 0);
  CHECK(verb::destroy_qp(std::exchange(to.qp, nullptr)) == 0);
}

TEST_CASE("a group takes as many queue pairs as the device says, and no more", "[qp]") {
  const auto most = static_cast<std::size_t>(limits().max_mcast_qp_attach);
  std::vector<std::unique_ptr<member>> all;
  const pair_options small{.type = IBV_QPT_UD, .bytes = 64, .cqe = 1, .depth = 1};
  for (std::size_t n = 0; n < most; ++n) {
    all.push_back(std::make_unique<member>(small));
    REQUIRE(all.back()->attach(group(1)) == 0);
  }
  member one_more;
  CHECK(one_more.attach(group(1)) == ENOMEM);
  REQUIRE(all.back()->receive(1, {all.back()->piece(0, 64)}) == 0);
  one_more.send_to(group(1));
  CHECK(all.back()->await().byte_len == grh_bytes + 8);
}

TEST_CASE("a frame of another process reaches each member once", "[qp]") {
  member first, second;
  softverbs::link from{idle_engine()};
  frame sent{group(1)};
  for (member* one : {&first, &second}) {
    REQUIRE(one->attach(group(1)) == 0);
    REQUIRE(one->receive(1, {one->piece(0, 100)}) == 0);
    REQUIRE(one->receive(2, {one->piece(0, 100)}) == 0);
  }
  CHECK(on_request(first.local_node(), from, sent.header, sent.payload));
  for (member* one : {&first, &second}) {
    const ibv_wc wc = one->await();
    CHECK(wc.byte_len == grh_bytes + 8);
    CHECK(wc.src_qp == 77);
    CHECK(one->memory[grh_bytes] == std::byte{42});
    CHECK(one->is_quiet());
  }
}

TEST_CASE("a frame to a group that lies about itself reaches nobody", "[qp]") {
  member to;
  softverbs::link from{idle_engine()};
  REQUIRE(to.attach(group(1)) == 0);
  REQUIRE(to.receive(1, {to.piece(0, 100)}) == 0);
  frame sent{group(1)};
  SECTION("it has no room for its group") { sent.header.payload_bytes = 15; }
  SECTION("its message is longer than its bytes") { sent.header.message_bytes = 9; }
  SECTION("its message is shorter than its bytes") { sent.header.message_bytes = 7; }
  SECTION("it is a piece of a message") { sent.header.offset = 8; }
  SECTION("it is a WRITE") { sent.header.kind = frame_kind::write; }
  SECTION("its Q_Key is another's") { sent.header.qkey = 1; }
  SECTION("its group is another") { sent.payload[15] ^= std::byte{1}; }
  SECTION("it claims to be connected") { sent.header.transport = service::uc; }
  CHECK(on_request(to.local_node(), from, sent.header, sent.payload));
  CHECK(to.is_quiet());
}

TEST_CASE("a queue pair that wants no datagrams of its own can be created", "[qp]") {
  side owner{{.type = IBV_QPT_UD}};
  ibv_qp_init_attr_ex attr{};
  attr.send_cq = attr.recv_cq = owner.cq;
  attr.cap.max_send_wr = 1;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  attr.pd = owner.pd;
  attr.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
  attr.qp_type = IBV_QPT_UD;
  ibv_qp* const made = verb::create_qp_ex(owner.pd->context, &attr);
  REQUIRE(made != nullptr);
  CHECK(verb::destroy_qp(made) == 0);
  attr.qp_type = IBV_QPT_RC;
  CHECK(verb::create_qp_ex(owner.pd->context, &attr) == nullptr);
}
