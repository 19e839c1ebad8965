#include "security/certificates.hpp"
#include "security/raw_peer.hpp"
#include "security/values.hpp"
#include "security/wire.hpp"

#include <catch2/catch.hpp>

// Refusals in the clear, other protocols, and ends.

using namespace cordma;
using namespace cordma::test;
using Catch::Matchers::Contains;
using std::string_view_literals::operator""sv;

namespace {

/// Stands for a frame of cordma's handshake.
const std::vector<std::byte> refusal = bytes_of("CRMA: I do not know you");

std::vector<std::byte> all_of(byte_channel& channel) {
  std::vector<std::byte> all;
  std::array<std::byte, 7> some{};
  while (const auto n = channel.try_read(some)) {
    if (*n == 0) break;
    all.insert(all.end(), some.begin(), some.begin() + std::ptrdiff_t(*n));
  }
  return all;
}

/// Shakes hands as a listener does that refuses in the clear, and hangs up.
task<> refuse_in_the_clear(tls_channel& channel, tls_role role, side_outcome& outcome) {
  auto ended = co_await as_result(channel.shake_hands(role, "server.example"));
  if (ended.is_cancelled()) co_return;
  if (ended.has_failure()) {
    co_await write_all(channel.below(), refusal);
    channel.below().end_writing();
  }
  outcome.ended.emplace(std::move(ended));
}

}  // namespace

TEST_CASE("a listener's refusal in the clear reaches the client's caller, however it is cut",
          "[security]") {
  executor unused;
  const credentials one = blue(1);
  const credentials other = blue(2);
  for (const std::size_t piece : {1u, 2u, 3u, 4u, 5u, 1000u}) {
    tls_wire w{unused, one, other};
    w.client.read_max = piece;
    support::started client{w.loop.scheduler,
                            one_side(w.on_client, tls_role::client, {}, w.client_side)};
    support::started server{w.loop.scheduler,
                            refuse_in_the_clear(w.on_server, tls_role::server, w.server_side)};
    w.loop.settle();
    CHECK(w.server_side.failed_with(errc::not_authenticated));
    CHECK(w.client_side.failed_with(errc::refused));
    CHECK(w.on_server.clear() == nullptr);
    REQUIRE(w.on_client.clear() != nullptr);
    CHECK(all_of(*w.on_client.clear()) == refusal);
    CHECK(w.server.sent == refusal);
  }
}

TEST_CASE("a client's refusal of a certificate in the clear reaches the listener's caller",
          "[security]") {
  executor unused;
  const authority ca;
  const authority foreign;
  const credentials good = ca.issue();
  const credentials stranger = foreign.issue();
  tls_wire w{unused, good, stranger};
  support::started client{w.loop.scheduler,
                          refuse_in_the_clear(w.on_client, tls_role::client, w.client_side)};
  support::started server{w.loop.scheduler,
                          one_side(w.on_server, tls_role::server, {}, w.server_side)};
  w.loop.settle();
  CHECK(w.client_side.failed_with(errc::not_authenticated));
  CHECK(w.server_side.failed_with(errc::refused));
  REQUIRE(w.on_server.clear() != nullptr);
  CHECK(all_of(*w.on_server.clear()) == refusal);
}

TEST_CASE("a refusal of a client's certificate comes where its caller first reads", "[security]") {
  executor unused;
  const authority ca;
  const credentials good = ca.issue();
  const credentials expired = ca.issue({.begins_s = -7200, .ends_s = -3600});
  tls_wire w{unused, expired, good};
  support::started client{w.loop.scheduler,
                          one_side(w.on_client, tls_role::client, "server.example", w.client_side)};
  support::started server{w.loop.scheduler,
                          refuse_in_the_clear(w.on_server, tls_role::server, w.server_side)};
  w.loop.settle();
  REQUIRE(w.client_side.succeeded());
  CHECK(w.server_side.failed_with(errc::not_authenticated));
  std::array<std::byte, 8> bytes{};
  CHECK_THROWS_WITH(w.on_client.try_read(bytes), Contains("refused"));
  REQUIRE(w.on_client.clear() != nullptr);
  CHECK(all_of(*w.on_client.clear()) == refusal);
}

TEST_CASE("whoever waits for the rest of a refusal is told of it", "[security]") {
  executor unused;
  const credentials key = blue();
  tls_wire w{unused, key, key};
  support::started client{w.loop.scheduler,
                          one_side(w.on_client, tls_role::client, {}, w.client_side)};
  w.loop.settle();
  w.server.deliver(std::span{refusal}.first(6));
  w.loop.settle();
  REQUIRE(w.on_client.clear() != nullptr);
  std::vector<std::byte> frame(refusal.size());
  support::started reading{w.loop.scheduler, read_exactly(*w.on_client.clear(), frame)};
  w.loop.settle();
  CHECK_FALSE(reading.has_ended());
  w.server.deliver(std::span{refusal}.subspan(6));
  w.loop.settle();
  CHECK(reading.has_ended());
  CHECK(frame == refusal);
}

TEST_CASE("once the peer has sent data, nothing in the clear is a refusal", "[security]") {
  executor unused;
  const credentials key = blue();
  tls_wire w{unused, key, key};
  w.shake_hands();
  REQUIRE(w.both_succeeded());
  CHECK(w.on_server.try_write(bytes_of("data")) == 4);
  w.server.deliver(refusal);
  std::array<std::byte, 8> bytes{};
  CHECK(w.on_client.try_read(bytes) == 4);
  CHECK_THROWS_WITH(w.on_client.try_read(bytes), Contains("broke the protocol"));
  CHECK(w.on_client.clear() == nullptr);
}

TEST_CASE("a peer that speaks something else is told by its first bytes", "[security]") {
  executor unused;
  const credentials key = blue();
  const std::pair<std::string_view, const char*> said[] = {
      {"GET / HTTP/1.1\r\n", "the bytes 47 45 54 20"},
      {"\n", "the bytes 0a 00 00 00 (1 came)"},
      {"CRUX", "the bytes 43 52 55 58"},
      {"CX", "the bytes 43 58 00 00 (2 came)"},
      {"\x16\x02\x00\x00\x10"sv, "has no version 3.x"},
      {"\x16\x03\x01\xff\xff"sv, "more than 16640 bytes"},
      {"\x17\x03\x03\x00\x02zz"sv, "this is no TLS"}};
  for (const auto& [text, says] : said) {
    INFO(says);
    for (const tls_role role : {tls_role::client, tls_role::server}) {
      tls_wire w{unused, key, key};
      tls_channel& ours = role == tls_role::client ? w.on_client : w.on_server;
      wire_end& theirs = role == tls_role::client ? w.server : w.client;
      theirs.deliver(bytes_of(text));
      side_outcome outcome;
      support::started side{w.loop.scheduler, one_side(ours, role, {}, outcome)};
      w.loop.settle();
      REQUIRE(outcome.ended);
      CHECK_THAT(outcome.text(), Contains(says) && Contains("TLS handshake"));
      CHECK(ours.clear() == nullptr);
    }
  }
}

TEST_CASE("a peer that ends, or refuses by an alert, before it is known is told apart from others",
          "[security]") {
  executor unused;
  const credentials key = blue();
  const std::pair<std::string_view, const char*> said[] = {
      {"\x15\x03\x03\x00\x02\x02\x28"sv, "the peer refused this side"},
      {"\x15\x03\x03\x00\x02\x01\x00"sv, "the peer ended TLS"},
      {"\x16\x03"sv, "the peer ended the connection"},
      {""sv, "the peer ended the connection"}};
  for (const auto& [text, says] : said) {
    tls_wire w{unused, key, key};
    w.server.deliver(bytes_of(text));
    w.server.end_writing();
    support::started side{w.loop.scheduler,
                          one_side(w.on_client, tls_role::client, {}, w.client_side)};
    w.loop.settle();
    CHECK_THAT(w.client_side.text(), Contains(says));
  }
}

TEST_CASE("a failed handshake sends no alert: the caller refuses in its place", "[security]") {
  executor unused;
  const credentials key = blue();
  tls_wire w{unused, key, key};
  w.client.deliver(bytes_of("\x16\x03\x03\x00\x04\xff\x00\x00\x00"sv));
  support::started side{w.loop.scheduler,
                        one_side(w.on_server, tls_role::server, {}, w.server_side)};
  w.loop.settle();
  CHECK(w.server_side.failed_with(errc::bad_handshake));
  CHECK(w.server.sent.empty());
}

TEST_CASE("a peer's end of writing is read as an end, and the other direction goes on",
          "[security]") {
  executor unused;
  const credentials key = blue();
  tls_wire w{unused, key, key};
  w.shake_hands();
  REQUIRE(w.both_succeeded());
  CHECK(w.on_client.try_write(bytes_of("last")) == 4);
  w.on_client.end_writing();
  w.on_client.end_writing();
  std::array<std::byte, 8> bytes{};
  CHECK(w.on_server.try_read(bytes) == 4);
  CHECK(w.on_server.try_read(bytes) == 0);
  CHECK(w.on_server.try_read(bytes) == 0);
  CHECK(w.server.has_ended);
  CHECK(w.on_server.try_write(bytes_of("more")) == 4);
  CHECK(w.on_client.try_read(bytes) == 4);
  CHECK_FALSE(w.on_client.try_read(bytes).has_value());
}

TEST_CASE("an end without close_notify is an error: bytes may be missing", "[security]") {
  executor unused;
  const credentials key = blue();
  tls_wire w{unused, key, key};
  w.shake_hands();
  REQUIRE(w.both_succeeded());
  CHECK(w.on_client.try_write(bytes_of("data")) == 4);
  w.client.end_writing();
  std::array<std::byte, 8> bytes{};
  CHECK(w.on_server.try_read(bytes) == 4);
  CHECK_THROWS_WITH(w.on_server.try_read(bytes),
                    Contains("disconnected") && Contains("close_notify"));
  CHECK_THROWS_WITH(w.on_server.try_read(bytes), Contains("close_notify"));
}

TEST_CASE("a channel before its handshake, or after one that was stopped, is closed",
          "[security]") {
  executor unused;
  const credentials key = blue();
  tls_wire w{unused, key, key};
  std::array<std::byte, 8> bytes{};
  CHECK_THROWS_WITH(w.on_client.try_read(bytes), Contains("the handshake has not succeeded"));
  {
    support::started side{w.loop.scheduler,
                          one_side(w.on_client, tls_role::client, {}, w.client_side)};
    w.loop.settle();
    side.request_stop();
    w.loop.settle();
    CHECK(side.has_ended());
  }
  w.on_client.end_writing();
  CHECK_THROWS_WITH(w.on_client.try_write(bytes), Contains("the handshake has not succeeded"));
  CHECK_THROWS_WITH(w.on_client.try_read(bytes), Contains("the handshake has not succeeded"));
}
