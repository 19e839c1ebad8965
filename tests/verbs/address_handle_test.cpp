#include "verbs/address_handle.hpp"

#include "verbs/loopback.hpp"

#include <catch2/catch.hpp>

#include <cstring>
#include <string>

using namespace cordma::verbs;
using namespace cordma::verbs::test;
using Catch::Matchers::Contains;

namespace {

constexpr std::uint32_t grh_bytes = 40;
constexpr std::uint32_t qkey = 0x1234;

/// A queue pair of datagrams, and a handle for its own port.
struct datagrams : loopback {
  queue_pair ud{
      pd, cq, cq, {.send_wr_max = 4, .recv_wr_max = 4}, nullptr, nullptr, queue_pair_type::ud};
  address_handle here{pd, port.number, address_vector::by_gid(local.gid, local.index, port.lid)};

  datagrams() { ud.to_ud_rts({.port = port.number, .qkey = qkey}); }

  void receive() {
    REQUIRE(raw::try_post(ud, raw::receive{raw::piece(mr.address(), 512, mr.lkey()), 1}) == 0);
  }
  void send(std::uint32_t bytes, std::uint32_t to_qkey = qkey) {
    raw::request message{IBV_WR_SEND, raw::piece(mr.address() + 4096, bytes, mr.lkey())};
    message.wr.wr_id = 2;
    message.wr.wr.ud = {.ah = here.native_handle(), .remote_qpn = ud.num(), .remote_qkey = to_qkey};
    REQUIRE(raw::try_post(ud, message) == 0);
  }
};

}  // namespace

TEST_CASE("a datagram goes where its address handle leads, and names its sender",
          "[verbs][device]") {
  datagrams d;
  CHECK(d.ud.type() == queue_pair_type::ud);
  CHECK(std::string{to_string(d.ud.type())} == "UD");
  d.receive();
  std::memcpy(d.bytes.data() + 4096, "datagram", 8);
  d.send(8);
  for (const ibv_wc& wc : d.reap(2)) {
    REQUIRE(wc.status == IBV_WC_SUCCESS);
    if (wc.wr_id != 1) continue;
    CHECK(wc.byte_len == grh_bytes + 8);
    CHECK(wc.src_qp == d.ud.num());
    CHECK((wc.wc_flags & IBV_WC_GRH) != 0);
  }
  CHECK(std::memcmp(d.bytes.data() + grh_bytes, "datagram", 8) == 0);
}

TEST_CASE("a datagram with another Q_Key is not received", "[verbs][device]") {
  datagrams d;
  d.receive();
  d.send(16, qkey + 1);
  d.send(8);
  for (const ibv_wc& wc : d.reap(3))
    if (wc.wr_id == 1) CHECK(wc.byte_len == grh_bytes + 8);
}

TEST_CASE("an address that no port can have is refused by name", "[verbs][device]") {
  loopback l;
  const auto made = [&](const address_vector& to) {
    return failure_of([&] { address_handle{l.pd, l.port.number, to}; }).to_string();
  };
  CHECK_THAT(made({}), Contains("ibv_create_ah") && Contains("neither a LID nor a GID"));
  address_vector wrong = address_vector::by_gid(l.local.gid, l.local.index, l.port.lid);
  wrong.service_level = 16;
  CHECK_THAT(made(wrong), Contains("service_level 16"));
}

TEST_CASE("calls that are for another type of queue pair are refused by name", "[verbs][device]") {
  datagrams d;
  const auto text = [](auto call) { return failure_of(call).to_string(); };
  CHECK_THAT(text([&] { d.ud.to_init(d.port.number); }), Contains("to_ud_rts is its call"));
  CHECK_THAT(text([&] { d.ud.to_rtr(d.rtr()); }), Contains("has no peer"));
  CHECK_THAT(text([&] { d.ud.to_rts(loopback::rts()); }), Contains("has no peer"));
  CHECK_THAT(text([&] { d.qp.to_ud_rts({.port = d.port.number}); }),
             Contains("the queue pair is RC"));
  CHECK_THAT(text([&] { d.ud.to_ud_rts({.port = 9}); }), Contains("RTS to INIT"));
  d.ud.to_reset();
  CHECK_THAT(text([&] { d.ud.to_ud_rts({.port = 9}); }), Contains("port 9"));
  CHECK_THAT(text([&] { d.ud.to_ud_rts({.port = d.port.number, .sq_psn = 1 << 24}); }),
             Contains("sq_psn 16777216"));
}
