#include "connection/handshake.hpp"

#include "support/soak.hpp"
#include "verbs/gid.hpp"

#include <cordma/verbs/device.hpp>

#include <catch2/catch.hpp>

#include <cstring>
#include <functional>
#include <random>
#include <set>

using namespace cordma;
namespace hs = cordma::handshake;

namespace {

hs::hello typical() {
  hs::hello h;
  h.gid.raw[10] = h.gid.raw[11] = 0xff;
  h.gid.raw[12] = 10;
  h.gid.raw[15] = 1;
  h.mtu = IBV_MTU_4096;
  h.qpn = 0x123456;
  h.psn = 0xfedcba;
  h.rd_atomic_initiator = 16;
  h.rd_atomic_responder = 128;
  h.recv_wr_max = 500;
  h.allows_writes = true;
  h.message_max_bytes = 8 << 20;
  h.library = "cordma 9.8.7";
  h.private_data.fill(std::byte{0x77});
  h.nonce.fill(std::byte{0x33});
  h.pkey = 0x8123;
  h.agent = {.qpn = 0x654321, .psn = 0xabcdef, .flush_word = {0x0123456789abcdef, 8, 0x5a5a5a5a}};
  return h;
}

std::error_code code_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const error& e) {
    return e.code();
  }
  return {};
}

hs::frame_bytes_t with(std::size_t offset, std::initializer_list<int> values,
                       hs::frame_bytes_t bytes = hs::encode(typical())) {
  for (const int v : values) bytes[offset++] = std::byte(v);
  return bytes;
}

}  // namespace

TEST_CASE("a hello arrives as it was sent", "[connection]") {
  const hs::hello sent = typical();
  const auto got = std::get<hs::hello>(hs::decode(hs::encode(sent)));
  CHECK(got.transport_kind == sent.transport_kind);
  CHECK(got.layer == sent.layer);
  CHECK(got.gid_kind == sent.gid_kind);
  CHECK(got.mtu == sent.mtu);
  CHECK(got.lid == sent.lid);
  CHECK(verbs::same_gid(got.gid, sent.gid));
  CHECK(got.qpn == sent.qpn);
  CHECK(got.psn == sent.psn);
  CHECK(got.rd_atomic_initiator == sent.rd_atomic_initiator);
  CHECK(got.rd_atomic_responder == sent.rd_atomic_responder);
  CHECK(got.recv_wr_max == sent.recv_wr_max);
  CHECK(got.allows_writes);
  CHECK(got.message_max_bytes == sent.message_max_bytes);
  CHECK(got.library.view() == "cordma 9.8.7");
  CHECK(got.agent.qpn == sent.agent.qpn);
  CHECK(got.agent.psn == sent.agent.psn);
  CHECK(got.agent.version == 3);
  CHECK(got.agent.flush_word.address() == 0x0123456789abcdef);
  CHECK(got.agent.flush_word.size_bytes() == 8);
  CHECK(got.agent.flush_word.rkey() == 0x5a5a5a5a);
  CHECK(got.private_data == sent.private_data);
  CHECK(got.nonce == sent.nonce);
}

TEST_CASE("options of the fabric arrive as they were sent, and those that are unset as unset",
          "[connection]") {
  hs::hello sent = typical();
  auto got = std::get<hs::hello>(hs::decode(hs::encode(sent)));
  CHECK(got.pkey == 0x8123);
  CHECK_FALSE(got.fabric.service_level);
  CHECK_FALSE(got.fabric.mtu);
  CHECK_FALSE(got.fabric.traffic_class);
  CHECK_FALSE(got.fabric.flow_label);
  CHECK_FALSE(got.fabric.hop_limit);
  CHECK_FALSE(got.fabric.static_rate);
  sent.fabric = {.service_level = 0,
                 .mtu = IBV_MTU_512,
                 .traffic_class = 255,
                 .flow_label = 0xabcde,
                 .hop_limit = 255,
                 .static_rate = IBV_RATE_25_GBPS};
  const hs::frame_bytes_t bytes = hs::encode(sent);
  const unsigned char options[] = {0x3f, 0,    0x23, 0x81, 0,  2, 255, 255,
                                   0xde, 0xbc, 0x0a, 0,    15, 0, 0,   0};
  CHECK(std::memcmp(bytes.data() + 208, options, sizeof options) == 0);
  got = std::get<hs::hello>(hs::decode(bytes));
  CHECK(got.fabric.service_level == 0);
  CHECK(got.fabric.mtu == IBV_MTU_512);
  CHECK(got.fabric.traffic_class == 255);
  CHECK(got.fabric.flow_label == 0xabcde);
  CHECK(got.fabric.hop_limit == 255);
  CHECK(got.fabric.static_rate == IBV_RATE_25_GBPS);
}

TEST_CASE("an option of the fabric counts only if its flag is set", "[connection][N2]") {
  const auto got =
      std::get<hs::hello>(hs::decode(with(212, {255, 255, 255, 0, 255, 255, 255, 255, 1})));
  CHECK_FALSE(got.fabric.service_level);
  CHECK_FALSE(got.fabric.static_rate);
}

TEST_CASE("a start arrives as it was sent", "[connection]") {
  hs::start sent{.mode = 2};
  sent.nonce.fill(std::byte{0x44});
  const hs::start_bytes_t bytes = hs::encode(sent);
  const unsigned char head[] = {'C', 'R', 'M', 'A', 3, 2, 32, 0, 3, 2};
  CHECK(std::memcmp(bytes.data(), head, sizeof head) == 0);
  const auto got = std::get<hs::start>(hs::decode(bytes));
  CHECK(got.mode == 2);
  CHECK(got.nonce == sent.nonce);
}

TEST_CASE("a connection has an agent when both sides have one of the same version",
          "[connection]") {
  const hs::hello one = typical();
  hs::hello other = typical();
  REQUIRE(hs::negotiate(one, other, 0, hs::side::client).control);
  CHECK(hs::negotiate(one, other, 0, hs::side::client).control->rtr.dest_qpn == 0x654321);
  CHECK(hs::negotiate(one, other, 0, hs::side::client).control->rtr.rq_psn == 0xabcdef);
  other.agent.version = 1;
  CHECK_FALSE(hs::negotiate(one, other, 0, hs::side::client).control);
  other.agent = {};
  CHECK_FALSE(hs::negotiate(one, other, 0, hs::side::client).control);
  CHECK_FALSE(hs::negotiate(other, one, 0, hs::side::client).control);
}

TEST_CASE("the frame has the bytes that docs/handshake.md gives", "[connection]") {
  const hs::frame_bytes_t bytes = hs::encode(typical());
  const unsigned char head[] = {'C', 'R', 'M', 'A', 3, 2, 0, 1, 1, 2, 2, 5, 1, 0, 0, 0};
  CHECK(std::memcmp(bytes.data(), head, sizeof head) == 0);
  const unsigned char qpn_psn[] = {0x56, 0x34, 0x12, 0, 0xba, 0xdc, 0xfe, 0};
  CHECK(std::memcmp(bytes.data() + 32, qpn_psn, sizeof qpn_psn) == 0);
}

TEST_CASE("a refusal carries its code and its words", "[connection]") {
  const failure why{.code = errc::incompatible_peer, .call = "x", .detail = "link layer A, B"};
  const auto got = std::get<hs::verdict>(hs::decode(hs::encode(hs::verdict::refused(why))));
  CHECK_FALSE(got.is_accepted());
  CHECK(got.to_failure().code == make_error_code(errc::incompatible_peer));
  CHECK(got.to_failure().detail.view() == "the peer says: link layer A, B");

  SECTION("an error of this side's system is only a refusal to the other") {
    const auto v = hs::verdict::refused(errno_failure(ENOMEM, "ibv_create_qp"));
    CHECK(v.to_failure().code == make_error_code(errc::refused));
    CHECK(v.to_failure().detail.view() == "the peer says: ibv_create_qp");
  }
  SECTION("a peer cannot pass off its code as an error of ours, nor print on our terminal") {
    hs::frame_bytes_t bytes = hs::encode(hs::verdict::refused(why));
    bytes = with(9, {int(errc::device_failed)}, bytes);
    bytes = with(16, {27, '[', '2', 'J', 0x80, '\n', 0}, bytes);
    const auto v = std::get<hs::verdict>(hs::decode(bytes));
    CHECK(v.to_failure().code == make_error_code(errc::refused));
    CHECK(v.to_failure().detail.view() == "the peer says: ?[2J??");
  }
}

TEST_CASE("what is no hello is refused, and the error says what was wrong", "[connection][N2]") {
  struct row {
    const char* says;
    errc code;
    hs::frame_bytes_t bytes;
  };
  const row rows[] = {
      {"begins with the bytes 47 45 54 20", errc::bad_handshake, with(0, {'G', 'E', 'T', ' '})},
      {"version 2.1, we 3.2", errc::incompatible_peer, with(4, {2, 1})},
      {"version 4.7, we 3.2", errc::incompatible_peer, with(4, {4, 7})},
      {"frame of 257 bytes", errc::bad_handshake, with(6, {1, 1})},
      {"frame of 65535 bytes", errc::bad_handshake, with(6, {255, 255})},
      {"frame kind 4", errc::bad_handshake, with(8, {4})},
      {"link layer 0", errc::bad_handshake, with(9, {0})},
      {"link layer 3", errc::bad_handshake, with(9, {3})},
      {"GID type 3", errc::bad_handshake, with(10, {3})},
      {"MTU 0", errc::bad_handshake, with(11, {0})},
      {"MTU 6", errc::bad_handshake, with(11, {6})},
      {"transport 9", errc::bad_handshake, with(12, {9})},
      {"QPN 1 ", errc::bad_handshake, with(32, {1, 0, 0, 0})},
      {"QPN 16777216", errc::bad_handshake, with(32, {0, 0, 0, 1})},
      {"PSN 16777216", errc::bad_handshake, with(36, {0, 0, 0, 1})},
      {"(initiator) 256", errc::bad_handshake, with(40, {0, 1, 0, 0})},
      {"(responder) 4294967295", errc::bad_handshake, with(44, {255, 255, 255, 255})},
      {"receive depth 0", errc::bad_handshake, with(48, {0, 0, 0, 0})},
      {"agent's QPN 16777216", errc::bad_handshake, with(96, {0, 0, 0, 1})},
      {"agent's PSN 16777216", errc::bad_handshake, with(100, {0, 0, 0, 1})},
      {"message limit 0", errc::bad_handshake, with(56, {0, 0, 0, 0, 0, 0, 0, 0})},
      {"message limit 4294967296", errc::bad_handshake, with(56, {0, 0, 0, 0, 1, 0, 0, 0})},
      {"P_Key 0x8000 is of no partition", errc::bad_handshake, with(210, {0, 0x80})},
      {"service level 16 is not between 0 and 15", errc::bad_handshake,
       with(208, {1, 0, 0xff, 0xff, 16})},
      {"wanted MTU 0", errc::bad_handshake, with(208, {2, 0})},
      {"wanted MTU 6", errc::bad_handshake, with(208, {2, 0, 0xff, 0xff, 0, 6})},
      {"hop limit 0", errc::bad_handshake, with(208, {8, 0})},
      {"flow label 1048576", errc::bad_handshake,
       with(208, {16, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 16, 0})},
      {"static rate 1 is no ibv_rate", errc::bad_handshake,
       with(208, {32, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 1})},
      {"static rate 200 is not between 0 and 31", errc::bad_handshake,
       with(208, {32, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 200})},
      {"zero GID", errc::bad_handshake, with(16, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})},
  };
  for (const row& r : rows) {
    INFO(r.says);
    CHECK_THROWS_WITH(hs::decode(r.bytes), Catch::Contains(r.says));
    CHECK(code_of([&] { hs::decode(r.bytes); }) == make_error_code(r.code));
  }
  const auto whole = hs::encode(typical());
  for (const std::size_t size : {0u, 1u, 7u, 8u, 32u, 255u}) {
    CHECK(code_of([&] { hs::decode(std::span{whole}.first(size)); }) ==
          make_error_code(errc::bad_handshake));
  }
}

TEST_CASE("a later minor version is understood: what it adds is in reserved bytes",
          "[connection]") {
  auto bytes = with(5, {9});
  bytes = with(52, {0xff, 0xff, 0xff, 0xff}, bytes);
  bytes = with(120, {1, 2, 3, 4}, bytes);
  bytes = with(208, {0xc0, 0xff}, bytes);
  bytes = with(221, {1, 2, 3, 4}, bytes);
  const auto got = std::get<hs::hello>(hs::decode(bytes));
  CHECK(got.minor == 9);
  CHECK(got.qpn == 0x123456);
}

TEST_CASE("the service is a byte that was reserved, and 0 for RC", "[connection]") {
  hs::hello sent = typical();
  CHECK(hs::encode(sent)[13] == std::byte{0});
  for (const auto& [service, byte] : {std::pair{hs::service::unreliable, 1},
                                      {hs::service::xrc_initiator, 2},
                                      {hs::service::xrc_target, 3}}) {
    sent.service = service;
    const auto bytes = hs::encode(sent);
    CHECK(bytes[13] == std::byte(byte));
    CHECK(std::get<hs::hello>(hs::decode(bytes)).service == service);
  }
  CHECK_THROWS_WITH(hs::decode(with(13, {4})), Catch::Contains("service 4 is not between 0 and 3"));
}

TEST_CASE("both sides agree on the smaller MTU and the smaller rd_atomic", "[connection][N3]") {
  hs::hello a = typical();
  hs::hello b = typical();
  a.mtu = IBV_MTU_1024;
  a.rd_atomic_initiator = 4;
  a.rd_atomic_responder = 200;
  b.rd_atomic_initiator = 100;
  b.rd_atomic_responder = 2;
  b.psn = 7;
  b.qpn = 8;
  const hs::agreement of_a = hs::negotiate(a, b, 3, hs::side::client);
  const hs::agreement of_b = hs::negotiate(b, a, 5, hs::side::listener);
  CHECK(of_a.rtr.path_mtu == IBV_MTU_1024);
  CHECK(of_b.rtr.path_mtu == IBV_MTU_1024);
  CHECK(of_a.rts.rd_atomic_max == 2);
  CHECK(of_b.rtr.dest_rd_atomic_max == 2);
  CHECK(of_b.rts.rd_atomic_max == 100);
  CHECK(of_a.rtr.dest_rd_atomic_max == 100);
  CHECK(of_a.rtr.rq_psn == 7);
  CHECK(of_a.rts.sq_psn == a.psn);
  CHECK(of_a.rtr.dest_qpn == 8);
  CHECK(of_a.rtr.peer.is_global);
  CHECK(of_a.rtr.peer.gid_index == 3);
}

TEST_CASE("sides that do not fit are told apart by name, both values given", "[connection][N3]") {
  const hs::hello a = typical();
  hs::hello b = typical();
  const char* says = "";
  SECTION("link layers") {
    b.layer = hs::link_layer::infiniband;
    says = "link layer Ethernet here, InfiniBand there";
  }
  SECTION("GID types") {
    b.gid_kind = verbs::gid_type::roce_v1;
    says = "GID type RoCE v2 here, RoCE v1 there";
  }
  SECTION("transports") {
    b.transport_kind = hs::transport::iwarp;
    says = "transport InfiniBand here, iWARP there";
  }
  SECTION("agents, and no READs") {
    b.rd_atomic_responder = 0;
    says = "0 READs at once from here, 16 from there";
  }
  CHECK_THROWS_WITH(hs::negotiate(a, b, 0, hs::side::client), Catch::Contains(says));
  CHECK(code_of([&] { static_cast<void>(hs::negotiate(a, b, 0, hs::side::client)); }) ==
        make_error_code(errc::incompatible_peer));
}

TEST_CASE("an agent that nothing can be read of is refused, unless it speaks another version",
          "[connection][N2]") {
  const hs::hello a = typical();
  hs::hello b = typical();
  b.agent.flush_word = {0x0123456789abcdef, 0, 0x5a5a5a5a};
  CHECK_THROWS_WITH(hs::negotiate(a, b, 0, hs::side::client),
                    Catch::Contains("flush word of 0 bytes"));
  CHECK(code_of([&] { static_cast<void>(hs::negotiate(a, b, 0, hs::side::client)); }) ==
        make_error_code(errc::bad_handshake));
  ++b.agent.version;
  CHECK_FALSE(hs::negotiate(a, b, 0, hs::side::client).control.has_value());
}

TEST_CASE("within an InfiniBand subnet the peer is reached by LID, across by GID",
          "[connection][N3]") {
  hs::hello a = typical();
  a.layer = hs::link_layer::infiniband;
  a.gid_kind = verbs::gid_type::ib;
  a.lid = 5;
  hs::hello b = a;
  b.lid = 9;
  CHECK_FALSE(hs::negotiate(a, b, 0, hs::side::client).rtr.peer.is_global);
  CHECK(hs::negotiate(a, b, 0, hs::side::client).rtr.peer.lid == 9);
  b.gid.raw[0] = 0xfe;
  CHECK(hs::negotiate(a, b, 0, hs::side::client).rtr.peer.is_global);
}

TEST_CASE("a frame has the length of its kind", "[connection][N2]") {
  auto start = hs::encode(hs::start{});
  start[8] = std::byte{1};
  CHECK_THROWS_WITH(hs::decode(start), Catch::Contains("which its kind 1 never has"));
  CHECK_THROWS_WITH(hs::decode(with(8, {3})), Catch::Contains("which its kind 3 never has"));
}

TEST_CASE("a PSN has 24 bits, and is not the same each time", "[connection]") {
  std::set<std::uint32_t> seen;
  for (int i = 0; i < 16; ++i) {
    const std::uint32_t psn = hs::random_psn();
    CHECK(psn < 1u << 24);
    seen.insert(psn);
  }
  CHECK(seen.size() > 8);
}

namespace {

/// Returns true if a frame is refused, or all its fields are in range and can be agreed on.
bool survives(const hs::frame_bytes_t& bytes, std::size_t size, const hs::hello& local) {
  try {
    const hs::frame f = hs::decode(std::span{bytes}.first(size));
    if (size != hs::frame_bytes && size != hs::start_bytes) return false;
    if (const auto* v = std::get_if<hs::verdict>(&f)) {
      return v->text.view().size() <= hs::refusal_text_max && bool(v->to_failure().code);
    }
    if (std::holds_alternative<hs::start>(f)) return size == hs::start_bytes;
    const hs::agreement a = hs::negotiate(local, std::get<hs::hello>(f), 0, hs::side::client);
    return a.rtr.dest_qpn < 1u << 24 && a.rtr.rq_psn < 1u << 24 &&
           a.rtr.dest_rd_atomic_max <= 255 && a.rtr.peer.service_level <= 15 &&
           a.rtr.peer.flow_label < 1u << 20 && a.rtr.peer.hop_limit != 0 &&
           verbs::bytes_of(a.rtr.path_mtu) != 0;
  } catch (const error& e) {
    return e.code() == errc::bad_handshake || e.code() == errc::incompatible_peer;
  }
}

bool mutated_frames_survive(std::uint64_t count, std::uint64_t seed) {
  std::mt19937_64 random{seed};
  const hs::hello local = typical();
  const hs::frame_bytes_t originals[] = {
      hs::encode(local), hs::encode(hs::verdict::refused({.code = errc::closed, .call = "x"}))};
  for (std::uint64_t i = 0; i < count; ++i) {
    hs::frame_bytes_t bytes = originals[i % 2];
    for (std::uint64_t n = random() % 8 + 1; n > 0; --n) {
      bytes[random() % bytes.size()] = std::byte(random());
    }
    const std::size_t size = random() % 16 == 0 ? random() % bytes.size() : bytes.size();
    if (!survives(bytes, size, local)) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("mutated frames are refused or harmless", "[connection][N2]") {
  CHECK(mutated_frames_survive(20'000, 1));
}

TEST_CASE("a million mutated frames are refused or harmless", "[.soak-handshake][N2]") {
  CHECK(mutated_frames_survive(test::soak::count(1'000'000), test::soak::seed()));
}
