// A peer that lies about credit gets errors, and costs a pool nothing.
#include "../../lib/messages/message_frame.hpp"
#include "request/queue_pair.hpp"

#include <cordma/messages/message_stream.hpp>

#include <support/stream_siege.hpp>
#include <support/until.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <vector>

using namespace cordma;
using namespace test::hostile;
using test::bytes_of;

TEST_CASE("credit that cannot be granted, or be taken back, ends the connection",
          "[messages][device][R4]") {
  struct lie {
    const char* name;
    std::vector<frame> frames;
  };
  const auto grant = [](std::uint32_t n) {
    return frame{.kind = message_kind::grant, .messages = n};
  };
  const auto shrink = [](std::uint32_t n) {
    return frame{.kind = message_kind::shrink, .messages = n};
  };
  for (const lie& l :
       {lie{"grants nothing", {grant(0)}}, lie{"grants no more", {grant(8)}},
        lie{"grants less", {grant(16), grant(15)}}, lie{"grants too much", {grant((1u << 20) + 1)}},
        lie{"grants all there is", {grant(~0u)}}, lie{"shrinks to nothing", {grant(16), shrink(0)}},
        lie{"shrinks to less than is needed", {grant(16), shrink(7)}},
        lie{"shrinks to no less", {shrink(8)}}, lie{"shrinks to more", {grant(16), shrink(17)}},
        lie{"confirms what it was not asked",
            {frame{.kind = message_kind::shrunk, .messages = 8}}}}) {
    INFO(l.name);
    siege s;
    large_sending sending{s};
    for (const frame& f : l.frames) s.say(f);
    s.ends_as(errc::bad_frame);
    sending.ends_as(errc::bad_frame);
  }
}

namespace {

/// A victim that may have 16 frames under way, and has sent so many messages.
struct granted_siege : siege {
  explicit granted_siege(unsigned messages) {
    const auto text = bytes_of("ours");
    for (unsigned n = 0; n < messages; ++n) {
      // The victim knows the terms once its first message is out.
      if (n == 1) say({.kind = message_kind::grant, .messages = 16});
      rt.run(victim.send(text));
      static_cast<void>(answer(message_kind::data));
    }
  }
  [[nodiscard]] std::uint32_t sent() const noexcept {
    return taken - message_protocol::count_first;
  }
  task<> send_more(unsigned messages) {
    for (; messages > 0; --messages) co_await victim.send(bytes_of("more"));
  }
  /// A frame, and that nothing has been taken.
  void say(const frame& f) { siege::say(f, -sent()); }
};

}  // namespace

TEST_CASE("who shrinks what is to shrink, or grants more of it, is cut off",
          "[messages][device][R4]") {
  for (const frame& f : {frame{.kind = message_kind::shrink, .messages = 8},
                         frame{.kind = message_kind::shrink, .messages = 9},
                         frame{.kind = message_kind::grant, .messages = 32}}) {
    granted_siege s{12};
    // The victim's frames take all places but one: it cannot confirm.
    for (std::uint64_t tag = 1; tag <= 3; ++tag) {
      s.say({.kind = message_kind::announce, .tag = tag, .loan = s.lent()});
      s.say({.kind = message_kind::withdraw, .tag = tag});
    }
    s.wait_for([&] { return s.sent() >= 15; });
    s.say({.kind = message_kind::shrink, .messages = 8});
    s.say(f);
    s.ends_as(errc::bad_frame);
    CHECK(std::ranges::count(s.heard, message_kind::shrunk, &frame::kind) == 0);
  }
}

TEST_CASE("a victim that is asked to shrink keeps what is under way, and so much beyond it",
          "[messages][device][R4]") {
  for (const unsigned messages : {1u, 2u, 6u}) {
    granted_siege s{messages};
    if (messages == 1) s.say({.kind = message_kind::grant, .messages = 16});
    s.say({.kind = message_kind::shrink, .messages = 8});
    const std::uint32_t kept_to = s.answer(message_kind::shrunk).messages;
    CHECK(kept_to == std::min(s.sent() - 1 + 8, 16u));
    // The victim goes on though nothing is taken; four of its places are for no messages.
    started<task<>> sending{s.rt.executor(), s.send_more(16)};
    s.rt.run(test::due_timers_fired());
    CHECK(s.victim.counters().sent > messages);
    CHECK(s.victim.counters().sent <= kept_to - 4);
    CHECK_FALSE(sending.has_ended());
    while (!sending.has_ended()) {
      const std::uint32_t before = s.sent();
      s.siege::say({.kind = message_kind::credit});
      s.wait_for([&] { return s.sent() != before || sending.has_ended(); });
    }
    // A peer may grant more again.
    if (kept_to < 16) s.siege::say({.kind = message_kind::grant, .messages = 16});
    s.goes_on();
  }
}

TEST_CASE("a victim that needs all it has is asked to shrink in vain", "[messages][device][R4]") {
  granted_siege s{11};
  s.say({.kind = message_kind::shrink, .messages = 8});
  CHECK(s.answer(message_kind::shrunk).messages == 16);
  s.siege::say({.kind = message_kind::grant, .messages = 17});
  s.goes_on();
}

namespace {

constexpr shared_receives_options little{.buffers = 32, .buffer_bytes = 72, .share_min = 8};

/// A victim whose credit has grown to 16, and that others want back.
struct asking_siege : siege {
  asking_siege() : siege{little} {
    for (int n = 0; n < 2; ++n) say_data("grow");
    CHECK(answer(message_kind::grant).messages == 16);
    for (int n = 0; n < 2; ++n) static_cast<void>(rt.run(victim.receive()));
  }
  void ask() {
    receive_share other{*pool};
    CHECK(other.want(pool->buffers()) == 0);
    CHECK(answer(message_kind::shrink).messages == 8);
  }
};

}  // namespace

TEST_CASE("who does not confirm as it was asked is cut off, and costs the pool nothing",
          "[messages][device][R4]") {
  for (const std::uint32_t wrong : {0u, 7u, 17u, ~0u}) {
    INFO(wrong);
    asking_siege s;
    s.ask();
    s.say({.kind = message_kind::shrunk, .messages = wrong});
    s.ends_as(errc::bad_frame);
  }
  SECTION("before it is asked") {
    asking_siege s;
    s.say({.kind = message_kind::shrunk, .messages = 8});
    s.ends_as(errc::bad_frame);
  }
  SECTION("twice") {
    asking_siege s;
    s.ask();
    for (int n = 0; n < 2; ++n) s.say({.kind = message_kind::shrunk, .messages = 8});
    s.ends_as(errc::bad_frame);
  }
  SECTION("with more under way than that") {
    asking_siege s;
    s.ask();
    for (int n = 0; n < 9; ++n) s.say_data("too many");
    s.say({.kind = message_kind::shrunk, .messages = 8});
    s.ends_as(errc::bad_frame);
  }
  SECTION("and then sends more") {
    asking_siege s;
    s.ask();
    s.say({.kind = message_kind::shrunk, .messages = 8});
    // The victim's share has grown by then to all but an eighth of the pool.
    for (int n = 0; n < 29; ++n) s.say_data("too many");
    s.ends_as(errc::bad_frame);
  }
}

TEST_CASE("bad frames in a pool's buffers give them back", "[messages][device][R4]") {
  siege s{little};
  s.say_data("nobody takes it");
  s.say({.kind = message_kind::announce, .tag = 1, .loan = s.lent()});
  s.say_data("behind");
  s.say({.kind = message_kind::announce, .tag = 1, .loan = s.lent()});
  s.ends_as(errc::bad_frame);
}

TEST_CASE("a peer may say that it needs more than it is asked to shrink to, and keeps to that",
          "[messages][device][R4]") {
  for (const std::uint32_t needed : {9u, 16u}) {
    asking_siege s;
    s.ask();
    s.say({.kind = message_kind::shrunk, .messages = needed});
    s.wait_for([&] { return s.victim.connection().qp().share()->credit() == needed; });
    s.goes_on();
  }
}

TEST_CASE("a peer that does as it is asked gets its credit back when there is some",
          "[messages][device][R4]") {
  asking_siege s;
  for (int round = 0; round < 3; ++round) {
    s.ask();
    s.say({.kind = message_kind::shrunk, .messages = 8});
    s.goes_on();
    CHECK(s.victim.connection().qp().share()->credit() == 8);
    for (int n = 0; n < 2; ++n) s.say_data("grow");
    CHECK(s.answer(message_kind::grant).messages == 16);
    for (int n = 0; n < 2; ++n) static_cast<void>(s.rt.run(s.victim.receive()));
  }
}
