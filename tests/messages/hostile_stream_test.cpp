// A peer whose frames, terms or credits are not a message stream's gets errors, and nothing else.
#include "../../lib/messages/message_frame.hpp"

#include <cordma/messages/message_stream.hpp>

#include <support/stream_siege.hpp>
#include <support/until.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <vector>

using namespace cordma;
using namespace test::hostile;
using test::code_of;

TEST_CASE("bytes that are no frame end the connection, and all that waits on it",
          "[messages][device][R4]") {
  for (const int number : {0, 10, 11, 64, 255}) {
    INFO("kind " << number);
    waiting_siege s;
    s.say(std::vector<std::byte>{std::byte(number), {}, {}, {}, {}, {}, {}, {}});
    s.has_ended();
  }
  for (const size_t at : {1u, 2u, 3u}) {
    INFO("reserved byte " << at);
    waiting_siege s;
    auto message = message_protocol::encode({.kind = message_kind::credit});
    message[at] = std::byte{1};
    s.say(std::span{message}.first(8));
    s.has_ended();
  }
  for (const message_kind k :
       {message_kind::data, message_kind::credit, message_kind::announce, message_kind::taken,
        message_kind::withdraw, message_kind::grant, message_kind::shrink, message_kind::shrunk}) {
    const size_t whole = message_protocol::size_of(k);
    for (size_t size = 0; size < whole; size += k == message_kind::data ? 7 : 1) {
      INFO("kind " << int(k) << ", " << size << " bytes");
      waiting_siege s;
      s.say({.kind = k, .tag = s.announced.tag, .loan = s.lent()}, 0, size);
      s.has_ended();
    }
    if (k == message_kind::data) continue;
    INFO("kind " << int(k) << ", a byte too many");
    waiting_siege s;
    auto message = std::vector<std::byte>(whole + 1);
    message[0] = std::byte(k);
    s.say(message);
    s.has_ended();
  }
}

TEST_CASE("a message that is longer than a buffer ends the connection", "[messages][device][R4]") {
  siege s;
  s.say(std::vector<std::byte>(8 + of_victim.buffer_bytes + 1, std::byte{1}));
  s.wait_for([&] { return !s.victim.connection().is_open(); });  // The device reports the error.
}

TEST_CASE("credits for what was not sent end the connection of a stream",
          "[messages][device][R4]") {
  for (const std::uint32_t lie : {1u, 7u, 0x8000'0000u, 0xffff'ffffu}) {
    INFO(lie);
    waiting_siege s;
    s.say({.kind = message_kind::credit});
    s.say({.kind = message_kind::credit}, lie);
    s.has_ended();
  }
}

TEST_CASE("a WRITE with immediate data to a stream ends the connection", "[messages][device][R4]") {
  waiting_siege s;
  static_cast<void>(s.client.post(write_with_imm(const_local_mr_slice{}, {}, 1)));
  s.has_ended();
}

TEST_CASE("terms that no stream has end the connection", "[messages][device][R4]") {
  constexpr size_t mib = size_t{1} << 20;
  constexpr size_t gib = size_t{1} << 30;
  for (const stream_terms& terms :
       {stream_terms{0, 64, 64}, stream_terms{1, 64, 64}, stream_terms{7, 64, 64},
        stream_terms{8, 0, 64}, stream_terms{8, 65, 64}, stream_terms{8, 63, 64},
        stream_terms{8, mib + 1, gib}, stream_terms{8, huge, huge}, stream_terms{8, 64, gib + 1},
        stream_terms{8, 64, huge}}) {
    INFO(terms.messages << ", " << terms.buffer_bytes << ", " << terms.message_bytes_max);
    siege s{terms};
    const std::vector<std::byte> bytes(announced_bytes);
    started<detail::receive_message_op> receiving{s.rt.executor(), s.victim.receive()};
    started<task<>> sending{s.rt.executor(), s.victim.send(bytes)};
    s.ends_as(errc::bad_frame);
    s.wait_for([&] { return receiving.has_ended() && sending.has_ended(); });
    CHECK(code_of(receiving->take_result()) == errc::bad_frame);
    CHECK(code_of(sending->take_result()) == errc::bad_frame);
  }
}

TEST_CASE("terms that are told twice end the connection", "[messages][device][R4]") {
  siege s;
  large_sending sending{s};
  s.client.agent()->send_note(encode(honest));
  s.ends_as(errc::bad_frame);
  sending.ends_as(errc::bad_frame);
}

TEST_CASE("a peer that sends without credit is cut off", "[messages][device][R4]") {
  siege s;
  unsigned told = 0;
  constexpr unsigned many = 1000;
  for (bool is_taken = true; is_taken && told < many; ++told) {
    for (const message_kind k : {message_kind::announce, message_kind::withdraw}) {
      local_mr from = s.rt.memory().allocate_zeroed(message_protocol::size_of(k));
      const auto message = message_protocol::encode(
          {.kind = k, .taken = s.taken, .tag = 1 + told, .loan = s.lent()});
      std::ranges::copy(std::span{message}.first(from.size_bytes()), from.bytes().begin());
      const auto outcome = s.rt.run(as_result(s.client.send(from.slice())));
      is_taken = is_taken && outcome.has_value();
    }
  }
  CHECK(told < 20);
  CHECK(s.victim.connection().why_lost()->code == errc::bad_frame);
}
