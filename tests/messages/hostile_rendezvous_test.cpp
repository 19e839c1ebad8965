// A peer that lies about large messages gets errors, and reaches no more than it was lent.
#include "../../lib/messages/message_frame.hpp"
#include "connection/handshake.hpp"

#include <cordma/messages/message_stream.hpp>

#include <support/stream_siege.hpp>
#include <support/until.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using namespace test::hostile;
using test::bytes_of;
using test::code_of;

TEST_CASE("what cannot be said of a large message ends the connection", "[messages][device][R4]") {
  struct lie {
    const char* name;
    void (*tell)(waiting_siege&, std::uint64_t tag);
  };
  using w = waiting_siege;
  for (const lie& l :
       {lie{"announces an empty one",
            [](w& s, std::uint64_t) { s.say({.kind = message_kind::announce, .tag = 1}); }},
        lie{"announces one that fits a buffer",
            [](w& s, std::uint64_t) {
              s.say({.kind = message_kind::announce,
                     .tag = 1,
                     .loan = {.length = of_victim.buffer_bytes}});
            }},
        lie{"announces a longer one than is taken",
            [](w& s, std::uint64_t) {
              s.say({.kind = message_kind::announce,
                     .tag = 1,
                     .loan = {.length = takes_bytes_max + 1}});
            }},
        lie{"announces all memory",
            [](w& s, std::uint64_t) {
              s.say({.kind = message_kind::announce, .tag = 1, .loan = {.length = huge}});
            }},
        lie{"announces one twice",
            [](w& s, std::uint64_t) {
              for (int n = 0; n < 2; ++n)
                s.say({.kind = message_kind::announce, .tag = 1, .loan = s.lent()});
            }},
        lie{"announces one twice that has to wait",
            [](w& s, std::uint64_t) {
              for (const std::uint64_t tag : {1u, 2u, 3u, 3u})
                s.say({.kind = message_kind::announce, .tag = tag, .loan = s.lent()});
            }},
        lie{"announces without a tag",
            [](w& s, std::uint64_t) { s.say({.kind = message_kind::announce, .loan = s.lent()}); }},
        lie{"lends to the end of all memory, and more",
            [](w& s, std::uint64_t) {
              s.say({.kind = message_kind::announce,
                     .tag = 1,
                     .loan = {.address = huge - 1, .length = announced_bytes}});
            }},
        lie{"lends in a way that there is not",
            [](w& s, std::uint64_t) {
              loan_terms lent = s.lent();
              lent.isolation = isolation{4};
              s.say({.kind = message_kind::announce, .tag = 1, .loan = lent});
            }},
        lie{"has what was not announced",
            [](w& s, std::uint64_t tag) { s.say({.kind = message_kind::taken, .tag = tag + 1}); }},
        lie{"has what it refused", [](w& s, std::uint64_t tag) {
              s.say({.kind = message_kind::taken, .tag = tag, .status = 1});
              s.say({.kind = message_kind::taken, .tag = tag});
            }}}) {
    INFO(l.name);
    waiting_siege s;
    l.tell(s, s.announced.tag);
    s.ends_as(errc::bad_frame);
    s.wait_for([&] { return s.receiving.has_ended() && s.sending.has_ended(); });
    CHECK(code_of(s.receiving->take_result()) == errc::bad_frame);
    CHECK(s.sending->failed());
  }
}

TEST_CASE("a large message is taken once", "[messages][device][R4]") {
  for (const std::uint32_t status : {0u, 1u}) {
    siege s;
    large_sending sending{s};
    for (int n = 0; n < 2; ++n)
      s.say({.kind = message_kind::taken, .tag = sending.announced.tag, .status = status});
    s.ends_as(errc::bad_frame);
  }
}

TEST_CASE("a withdrawal of what was not announced is ignored", "[messages][device][R4]") {
  siege s;
  for (const std::uint64_t tag : {std::uint64_t{1}, huge})
    s.say({.kind = message_kind::withdraw, .tag = tag});
  s.goes_on();
}

TEST_CASE("what is withdrawn is answered once, and its tag may be used again",
          "[messages][device][R4]") {
  siege s;
  s.fill_tags();
  for (int n = 0; n < 20; ++n) {
    s.say({.kind = message_kind::announce, .tag = 5, .loan = s.lent()});
    s.say({.kind = message_kind::withdraw, .tag = 5});
    s.say({.kind = message_kind::withdraw, .tag = 5});
    const frame over = s.answer(message_kind::taken);
    CHECK(over.tag == 5);
    CHECK(over.status == std::uint32_t(errc::refused));
  }
  s.goes_on();
}

TEST_CASE("a peer that never takes a large message reaches it no longer than its sender waits",
          "[messages][device][R2][R4]") {
  siege s;
  const std::vector<std::byte> bytes(announced_bytes);
  frame f;
  {
    const started<task<>> sending{s.rt.executor(), s.victim.send(bytes)};
    f = s.answer(message_kind::announce);
    s.clock.advance(1h);
    s.rt.run(test::due_timers_fired());
    CHECK_FALSE(sending.has_ended());
    s.rt.run(s.client.read(s.landing.first(announced_bytes), s.remote(f)));
  }
  CHECK(s.answer(message_kind::withdraw).tag == f.tag);
  s.clock.advance(lending_policy{}.grace);
  s.wait_for([&] { return s.victim.connection().lending().open == 0; });
  CHECK(s.victim.connection().lending().forced == 1);
  s.say({.kind = message_kind::taken, .tag = f.tag});
  s.goes_on();
  // Later its key is nobody's.
  const auto late =
      s.rt.run(as_result(s.client.read(s.landing.first(announced_bytes), s.remote(f))));
  CHECK(late.has_failure());
}

TEST_CASE("what a peer says that it has read ends its access", "[messages][device][R2][R4]") {
  siege s;
  large_sending sending{s};
  s.say({.kind = message_kind::taken, .tag = sending.announced.tag});
  s.wait_for([&] { return sending.task_.has_ended(); });
  CHECK_FALSE(sending.task_->failed());
  CHECK(s.victim.connection().lending().open == 0);
  CHECK(s.victim.connection().lending().returned == 1);
  const auto late = s.rt.run(
      as_result(s.client.read(s.landing.first(announced_bytes), s.remote(sending.announced))));
  CHECK(late.has_failure());
}

TEST_CASE("a peer that answers no withdrawal is cut off before that costs much",
          "[messages][device][R4]") {
  siege s;
  const std::vector<std::byte> bytes(announced_bytes);
  unsigned withdrawn = 0;
  for (; s.victim.connection().is_open() && withdrawn < 100; ++withdrawn) {
    {
      const started<task<>> sending{s.rt.executor(), s.victim.send(bytes)};
      static_cast<void>(s.answer(message_kind::announce));
    }
    s.say({.kind = message_kind::credit});
    s.wait_for([&] {
      return std::ranges::count(s.heard, message_kind::withdraw, &frame::kind) > 0 ||
             !s.victim.connection().is_open();
    });
    s.heard.clear();
  }
  CHECK(withdrawn == honest.messages + 1);
  s.ends_as(errc::bad_frame);
}

TEST_CASE("a peer that refuses a large message, read or not, ends its send and nothing else",
          "[messages][device][R4]") {
  for (const std::uint32_t status : {std::uint32_t(errc::refused), 1u, 0xffff'ffffu}) {
    for (const bool is_read : {false, true}) {
      siege s;
      large_sending sending{s};
      if (is_read)
        s.rt.run(s.client.read(s.landing.first(announced_bytes), s.remote(sending.announced)));
      s.say({.kind = message_kind::taken, .tag = sending.announced.tag, .status = status});
      sending.ends_as(errc::refused);
      CHECK(s.victim.counters().large_sent == 0);
      s.goes_on();
    }
  }
}

TEST_CASE("a peer that announces much has no more of it read than the program takes",
          "[messages][device][R4]") {
  siege s;
  s.fill_tags();
  s.say({.kind = message_kind::announce, .tag = 3, .loan = s.lent()});
  s.say_data("behind");
  // The victim takes no third large message: two are all the memory that it has.
  const auto small = bytes_of("ours");
  s.rt.run(s.victim.send(small));
  static_cast<void>(s.answer(message_kind::data));
  CHECK(std::ranges::count(s.heard, message_kind::taken, &frame::kind) == 0);
  CHECK(std::ranges::equal(s.next().bytes(), s.large));
  const frame third = s.answer(message_kind::taken);
  CHECK(third.tag == 3);
  CHECK(third.status == 0);
  CHECK(s.next().is_large());
  CHECK(s.next().is_large());
  CHECK(std::ranges::equal(s.next().bytes(), bytes_of("behind")));
}

TEST_CASE("a peer that lends what cannot be read, or less than it says, is cut off",
          "[messages][device][R4]") {
  for (const bool is_too_long : {false, true}) {
    siege s;
    loan_terms lent = s.lent(is_too_long ? announced_bytes + 1 : announced_bytes);
    if (!is_too_long) lent.rkey = ~lent.rkey;
    s.say({.kind = message_kind::announce, .tag = 9, .loan = lent});
    started<detail::receive_message_op> receiving{s.rt.executor(), s.victim.receive()};
    s.wait_for([&] { return !s.victim.connection().is_open() && receiving.has_ended(); });
    CHECK(receiving->failed());
  }
}

namespace {

stream_options fetches_on_demand() {
  stream_options options = of_victim;
  options.large_ahead = 0;
  return options;
}

}  // namespace

TEST_CASE("a peer that announces much makes a program that fetches on demand hold nothing for it",
          "[messages][device][R4]") {
  siege s{honest, fetches_on_demand()};
  const auto before = test::held_by(s.rt);
  for (const std::uint64_t tag : {1u, 2u, 3u, 4u})
    s.say({.kind = message_kind::announce, .tag = tag, .loan = s.lent()});
  const auto small = bytes_of("ours");
  s.rt.run(s.victim.send(small));
  static_cast<void>(s.answer(message_kind::data));
  CHECK(s.heard.empty());
  CHECK(test::held_by(s.rt) == before);
  CHECK(s.victim.counters().large_received == 0);
  // Each is there when the program asks for it.
  for (const std::uint64_t tag : {1u, 2u, 3u, 4u}) {
    CHECK(std::ranges::equal(s.next().bytes(), s.large));
    CHECK(s.answer(message_kind::taken).tag == tag);
    s.say({.kind = message_kind::credit});
  }
}

TEST_CASE("a peer that lends what cannot be read ends a wait as it ends the connection",
          "[messages][device][R4]") {
  for (const bool is_too_long : {false, true}) {
    siege s{honest, fetches_on_demand()};
    local_mr memory = s.rt.memory().allocate_zeroed(2 * announced_bytes);
    const auto where = [&](const message_stream::arrival& next) {
      return memory.first(next.size_bytes);
    };
    loan_terms lent = s.lent(is_too_long ? announced_bytes + 1 : announced_bytes);
    if (!is_too_long) lent.rkey = ~lent.rkey;
    s.say({.kind = message_kind::announce, .tag = 9, .loan = lent});
    started<task<message_stream::arrival>> receiving{s.rt.executor(), s.victim.receive_into(where)};
    s.wait_for([&] { return !s.victim.connection().is_open() && receiving.has_ended(); });
    CHECK(code_of(receiving->take_result()) == s.victim.connection().why_lost()->code);
    CHECK(s.victim.counters().large_received == 0);
  }
}

TEST_CASE(
    "a message that is withdrawn between two READs gives its place, not its bytes, to the next",
    "[messages][device][R4]") {
  constexpr std::size_t large = std::size_t{1} << 20;  // READ in 16 parts of 64 KiB.
  stream_options options = fetches_on_demand();
  options.message_bytes_max = large;
  siege s;
  s.leave();
  s.heard.clear();
  s.taken = message_protocol::count_first;
  s.acceptor = s.rt.listen({}, {}, siege::connections());
  s.rt.run(s.open(siege::connections()));
  const_cast<handshake::hello&>(s.server.peer_hello()).message_max_bytes = 0;  // NOLINT
  s.begin(honest, options);
  local_mr lent = s.rt.memory(test::all_access).allocate_zeroed(large);
  std::ranges::fill(lent.bytes(), std::byte{2});
  const auto terms = [&](std::size_t bytes) {
    return loan_terms{.address = reinterpret_cast<std::uintptr_t>(lent.bytes().data()),
                      .length = bytes,
                      .rkey = lent.remote_slice().rkey(),
                      .isolation = isolation::exact_registered};
  };
  local_mr memory = s.rt.memory().allocate_zeroed(large);
  std::vector<std::size_t> asked;
  const auto where = [&](const message_stream::arrival& next) {
    asked.push_back(next.size_bytes);
    std::ranges::fill(memory.bytes(), std::byte{});
    return memory.first(next.size_bytes);
  };
  started<task<message_stream::arrival>> receiving{s.rt.executor(), s.victim.receive_into(where)};
  s.say({.kind = message_kind::announce, .tag = 1, .loan = terms(large)});
  s.say({.kind = message_kind::announce, .tag = 2, .loan = terms(large - 1)});
  s.rt.run(test::until(s.rt.executor(), [&] { return !asked.empty(); }));
  s.say({.kind = message_kind::withdraw, .tag = 1});
  s.wait_for([&] { return receiving.has_ended(); });
  // The withdrawal may come too late for the first.
  CHECK(receiving->take_result()->size_bytes == asked.back());
  CHECK(std::ranges::count(memory.bytes(), std::byte{2}) == std::ptrdiff_t(asked.back()));
}

TEST_CASE("a peer that gives no credit holds up the next large message, and no longer",
          "[messages][device][R4]") {
  siege s{honest, fetches_on_demand()};
  local_mr memory = s.rt.memory().allocate_zeroed(announced_bytes);
  const auto where = [&](const message_stream::arrival& next) {
    return memory.first(next.size_bytes);
  };
  const auto small = bytes_of("ours");
  for (int n = 0; n < 3; ++n) s.rt.run(s.victim.send(small));
  for (const std::uint64_t tag : {1u, 2u, 3u, 4u})
    s.say({.kind = message_kind::announce, .tag = tag, .loan = s.lent()});
  // When a WRITE has ended, the frames that were posted before it have arrived.
  const auto answered = [&] {
    s.rt.run(s.victim.connection().write(const_local_mr_slice{}, {}));
    while (s.client.qp().receives().pending_messages() > 0)
      s.hear(s.rt.run(s.client.next_message()));
    return std::ranges::count(s.heard, message_kind::taken, &frame::kind);
  };
  unsigned taken = 0;
  const auto receive = [&] {
    return started<task<message_stream::arrival>>{s.rt.executor(), s.victim.receive_into(where)};
  };
  do {
    auto receiving = receive();
    s.wait_for([&] { return receiving.has_ended(); });
    CHECK(receiving->take_result()->is_large);
    ++taken;
  } while (answered() == taken);
  REQUIRE(taken < 4);
  auto receiving = receive();
  CHECK(answered() < taken);
  CHECK_FALSE(receiving.has_ended());
  s.say({.kind = message_kind::credit});
  s.wait_for([&] { return receiving.has_ended(); });
  CHECK(receiving->take_result()->is_large);
}
