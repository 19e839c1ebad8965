// Each protocol's bytes on the wire, beside those that were recorded when 0.2 said them.
#include "agent/protocol.hpp"
#include "connection/handshake.hpp"
#include "group/group_frame.hpp"
#include "group/meeting_frame.hpp"
#include "messages/message_frame.hpp"
#include "rpc/call_frame.hpp"
#include "wire_recorded.hpp"

#include <catch2/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// A name of its own, since files of tests are compiled together.
namespace cordma::wire {
namespace {

using bytes = std::vector<std::byte>;

bytes copy_of(std::span<const std::byte> said) { return {said.begin(), said.end()}; }

std::string hex_of(std::span<const std::byte> said) {
  std::string text;
  char digits[3];
  for (const std::byte one : said) {
    std::snprintf(digits, sizeof digits, "%02x", unsigned(one));
    text += digits;
  }
  return text;
}

bytes bytes_of(std::string_view hex) {
  bytes said;
  for (std::size_t n = 0; n < hex.size(); n += 2)
    said.push_back(std::byte(std::stoi(std::string{hex.substr(n, 2)}, nullptr, 16)));
  return said;
}

handshake::nonce nonce() {
  handshake::nonce made;
  made.fill(std::byte{0x33});
  return made;
}

handshake::hello hello() {
  handshake::hello h;
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
  h.library = "cordma 0.2.0";
  h.private_data.fill(std::byte{0x77});
  h.nonce = nonce();
  h.pkey = 0x8123;
  h.agent = {.qpn = 0x654321, .psn = 0xabcdef, .flush_word = {0x0123456789abcdef, 8, 0x5a5a5a5a}};
  return h;
}

constexpr loan_terms terms{.address = 0x0123456789abcdef, .length = 0x12345, .rkey = 0x5a5a5a5a};

agent_protocol::frame granted() {
  return {.kind = agent_protocol::kind::granted,
          .taken = 7,
          .tag = 0x1122334455667788,
          .lease = 9,
          .length = 0x12345,
          .address = 0x0123456789abcdef,
          .rkey = 0x5a5a5a5a,
          .access = verbs::access::remote_read | verbs::access::remote_write,
          .duration = std::chrono::seconds{10},
          .isolation = 2};
}

bytes call_of_0_2() {
  bytes said(call_protocol::header_bytes);
  call_protocol::encode({.bulk = call_protocol::source,
                         .value = 1000,
                         .call = 0x1122334455,
                         .method = 0x8877665544332211},
                        said.data());
  said.resize(call_protocol::head_bytes(call_protocol::source));
  message_protocol::encode_loan(terms, &said[call_protocol::header_bytes]);
  return said;
}

bytes traced_call_of_0_2() {
  bytes said(call_protocol::head_bytes(call_protocol::source | call_protocol::trace));
  call_protocol::encode({.bulk = call_protocol::source | call_protocol::trace,
                         .value = 1000,
                         .call = 0x1122334455,
                         .method = 0x8877665544332211},
                        said.data());
  rpc::trace_context context{.flags = rpc::trace_context::sampled};
  context.trace_id.fill(std::byte{0x44});
  context.span_id.fill(std::byte{0x66});
  call_protocol::encode(context, &said[call_protocol::header_bytes]);
  message_protocol::encode_loan(terms,
                                &said[call_protocol::header_bytes + call_protocol::trace_bytes]);
  return said;
}

bytes offer_of_0_2() {
  bytes said(group_protocol::size_of(group_protocol::kind::offer));
  group_protocol::encode(
      {.kind = group_protocol::kind::offer,
       .call = {.kind = detail::collective_kind::broadcast, .root = 3, .bytes = 0x12345},
       .group = 5,
       .operation = 6,
       .step = 7,
       .length = 0x12345,
       .loan = terms},
      said.data());
  return said;
}

detail::group_name group_name() {
  detail::group_name made;
  made.fill(std::byte{0x22});
  return made;
}

detail::group_member member(unsigned rank) {
  return {"node" + std::to_string(rank) + ":7000", std::uint64_t{0x0123456789abcdef} + rank};
}

bytes roster_of_0_2() {
  std::size_t first = 0;
  return detail::meeting_frame::encode_part(
      {.members = {member(0), member(1)}, .name = group_name()}, first);
}

/// The bytes of this version, by the names of the records.
std::map<std::string_view, bytes> said_now() {
  const message_protocol::frame announce{
      .kind = message_protocol::kind::announce, .taken = 7, .tag = 8, .loan = terms};
  const auto announced = message_protocol::encode(announce);
  return {
      {"handshake: start",
       copy_of(handshake::encode(handshake::start{.mode = 1, .nonce = nonce()}))},
      {"handshake: hello", copy_of(handshake::encode(hello()))},
      {"handshake: verdict", copy_of(handshake::encode(handshake::verdict::accepted(nonce())))},
      {"agent: granted", copy_of(agent_protocol::encode(granted()))},
      {"messages: announce",
       copy_of(std::span{announced}.first(message_protocol::size_of(announce.kind)))},
      {"rpc: request", call_of_0_2()},
      {"rpc: traced request", traced_call_of_0_2()},
      {"group: offer", offer_of_0_2()},
      {"meeting: arrival", detail::meeting_frame::encode(detail::meeting_frame::arrival{
                               .rank = 1, .size = 2, .member = member(1)})},
      {"meeting: card", detail::meeting_frame::encode(detail::meeting_frame::card{
                            .name = group_name(), .member = member(1)})},
      {"meeting: roster", roster_of_0_2()},
      {"meeting: refusal", detail::meeting_frame::encode_refusal("no such rank")},
  };
}

/// Reads a message of a group's meeting, and gives who is named in it.
std::vector<detail::group_member> members_of(std::string_view name,
                                             std::span<const std::byte> said) {
  using namespace detail::meeting_frame;
  if (name == "meeting: arrival") return {decode_arrival(said).member};
  if (name == "meeting: card") return {decode_card(said).member};
  detail::roster all;
  decode_part(said, all, 2);
  return all.members;
}

/// Reads what a peer said: throws what refuses it.
void take(std::string_view name, std::span<const std::byte> said) {
  if (name.starts_with("handshake"))
    static_cast<void>(handshake::decode(said));
  else if (name.starts_with("agent"))
    static_cast<void>(agent_protocol::decode(said));
  else if (name.starts_with("messages"))
    static_cast<void>(message_protocol::decode(said));
  else if (name.starts_with("rpc"))
    static_cast<void>(call_protocol::decode(said, false));
  else if (name.starts_with("meeting"))
    static_cast<void>(members_of(name, said));
  else
    static_cast<void>(group_protocol::decode(said));
}

std::string refusal_of(std::string_view name, std::span<const std::byte> said) {
  try {
    take(name, said);
  } catch (const error& e) {
    return e.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("each protocol says what 0.2 said, and understands it", "[scenario]") {
  const auto now = said_now();
  REQUIRE(now.size() == std::size(test::recorded_of_0_2));
  for (const auto& [name, hex] : test::recorded_of_0_2) {
    INFO(name);
    CHECK(hex_of(now.at(name)) == hex);
    if (name == "meeting: refusal") {
      CHECK_THAT(refusal_of(name, bytes_of(hex)), Catch::EndsWith("rank 0 says: no such rank"));
    } else {
      CHECK(refusal_of(name, bytes_of(hex)) == "accepted");
    }
  }
}

TEST_CASE("a group's meeting understands what 0.2 said of each rank", "[scenario]") {
  for (const auto& [name, hex] : test::recorded_of_0_2) {
    if (!name.starts_with("meeting") || name == "meeting: refusal") continue;
    INFO(name);
    const auto named = members_of(name, bytes_of(hex));
    const unsigned first = name == "meeting: roster" ? 0 : 1;
    REQUIRE(named.size() == 2 - first);
    for (unsigned rank = first; rank < 2; ++rank) {
      CHECK(named[rank - first].endpoint == member(rank).endpoint);
      CHECK(named[rank - first].host == member(rank).host);
    }
  }
  const bytes arrived = bytes_of(test::recorded("meeting: arrival"));
  const auto arrival = detail::meeting_frame::decode_arrival(arrived);
  CHECK(arrival.rank == 1);
  CHECK(arrival.size == 2);
  const bytes carded = bytes_of(test::recorded("meeting: card"));
  CHECK(detail::meeting_frame::decode_card(carded).name == group_name());
}

TEST_CASE("another version of a protocol is refused by its number", "[scenario]") {
  const auto now = said_now();
  const auto with = [&](std::string_view name, std::size_t at, int value) {
    bytes said = now.at(name);
    said[at] = std::byte(value);
    return said;
  };
  using Catch::Contains;
  CHECK_THAT(refusal_of("handshake: hello", with("handshake: hello", 4, 2)), Contains("version 2"));
  CHECK_THAT(refusal_of("handshake: start", with("handshake: start", 4, 4)), Contains("version 4"));
  CHECK_THAT(refusal_of("agent: granted", with("agent: granted", 2, 2)), Contains("version"));
  // The server answers a call of another version by a status that says so.
  const auto call = call_protocol::decode(with("rpc: request", 0, 2), false);
  CHECK_FALSE(call_protocol::is_ours(call));
  CHECK(call.call == 0x1122334455);
}

TEST_CASE("another version of a group's meeting is refused as another version", "[scenario]") {
  const auto now = said_now();
  // The mark of a group's meeting ends with the version.
  for (const char* name :
       {"meeting: arrival", "meeting: card", "meeting: roster", "meeting: refusal"}) {
    INFO(name);
    bytes said = now.at(name);
    REQUIRE(said[7] == std::byte{1});
    said[7] = std::byte{2};
    CHECK_THAT(refusal_of(name, said), Catch::Contains("another version of cordma"));
  }
}

}  // namespace cordma::wire
