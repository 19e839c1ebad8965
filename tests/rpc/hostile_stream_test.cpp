// A peer that does not keep to a message stream's protocol gets errors, and nothing else.
#include "../../lib/rpc/message_frame.hpp"

#include <cordma/rpc/message_stream.hpp>

#include <support/connected_pair.hpp>
#include <support/manual_home.hpp>
#include <support/outcome.hpp>
#include <support/text.hpp>
#include <support/until.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string_view>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using message_protocol::frame;
using message_kind = message_protocol::kind;
using support::started;
using test::bytes_of;
using test::code_of;

namespace {

using std::size_t;

constexpr std::uint64_t huge = ~std::uint64_t{0};
constexpr size_t announced_bytes = 1000;
constexpr size_t takes_bytes_max = 4000;

constexpr stream_options of_victim{
    .depth = 8, .buffer_bytes = 64, .message_bytes_max = takes_bytes_max};
constexpr stream_terms honest{.messages = 8, .buffer_bytes = 64, .message_bytes_max = 1 << 20};

/// Its clock stands still, and it is not tried again to deliver what meets no receive.
struct stopped_clock {
  manual_clock clock;
  static connection_options connections() {
    connection_options o;
    o.heartbeat.enabled = false;
    o.rnr_retry = 0;
    return o;
  }
};

/// A victim, and a peer that makes its frames itself.
struct siege : stopped_clock, test::connected_pair {
  explicit siege(const stream_terms& terms = honest, const stream_options& options = of_victim)
      : connected_pair{test::by_hand(clock), connections(), connections()} {
    begin(terms, options);
  }
  void begin(const stream_terms& terms, const stream_options& options) {
    victim = message_stream{std::move(server), options};
    landing = rt.memory().allocate_zeroed(receives * frame_bytes);
    for (size_t n = 0; n < receives; ++n)
      client.post_recv(landing.slice(n * frame_bytes, frame_bytes));
    client.agent()->open_stream(terms);
  }
  /// Nothing stays lent or borrowed, whatever the peer did, and no memory is kept.
  /// The victim's end takes its receives from a pool.
  explicit siege(const shared_receives_options& of_pool) : siege{} {
    leave();
    heard.clear();
    taken = message_protocol::count_first;
    pool = &rt.share_receives(of_pool);
    pool_bytes = pool->memory_bytes();
    connection_options shared = connections();
    shared.receives_from = pool;
    door = rt.listen({}, {}, shared);
    rt.run(open(connections()));
    stream_options deeper = of_victim;
    deeper.depth = 64;
    begin(honest, deeper);
  }
  ~siege() {
    victim.connection().qp().abort({.code = errc::closed, .call = "test"});
    rt.run(test::due_timers_fired());
    CHECK(victim.connection().lending().open == 0);
    CHECK(victim.connection().lending().bytes_lent == 0);
    CHECK(victim.connection().lending().borrowed == 0);
    CHECK(victim.connection().lending().stranded == 0);
    leave();
    CHECK(rt.memory().statistics().in_use_bytes == pool_bytes);
    if (pool != nullptr) CHECK(pool->promised() == 0);
  }
  void leave() {
    victim = {};
    client = {};
    landing.reset();
    rt.run(test::all_closed(rt.executor(), clock));
  }
  siege(const siege&) = delete;
  siege& operator=(const siege&) = delete;

  /// Turns until then; what the peer hears meanwhile is in `heard`.
  void wait_for(const std::function<bool()>& done) {
    const receive_queue& inbox = client.qp().receives();
    while (!done()) {
      rt.run(test::until(rt.executor(), [&] { return done() || inbox.pending_messages() > 0; }));
      while (inbox.pending_messages() > 0) hear(rt.run(client.next_message()));
    }
  }
  void hear(const message& m) {
    ++taken;
    heard.push_back(message_protocol::decode(m.payload().bytes()));
    if (client.is_open()) client.post_recv(m.slices);
  }
  /// The first frame of that kind that the victim says from now on.
  frame answer(message_kind k) {
    const auto is = [k](const frame& f) { return f.kind == k; };
    wait_for([&] { return std::ranges::any_of(heard, is) || !victim.connection().is_open(); });
    const auto found = std::ranges::find_if(heard, is);
    REQUIRE(found != heard.end());
    const frame f = *found;
    heard.erase(found);
    return f;
  }

  /// What the victim lends.
  [[nodiscard]] remote_mr_slice remote(const frame& announced) const {
    return {announced.loan.address, std::size_t(announced.loan.length), announced.loan.rkey};
  }
  /// That it lends a message, which can be read.
  [[nodiscard]] loan_terms lent(size_t length = announced_bytes) {
    return {.address = reinterpret_cast<std::uint64_t>(large.data()),
            .length = length,
            .rkey = readable.rkey(),
            .isolation = isolation::exact_registered};
  }

  /// Any bytes.
  void say(std::span<const std::byte> bytes) {
    local_mr from = rt.memory().allocate_zeroed(std::max(bytes.size(), size_t{1}));
    std::ranges::copy(bytes, from.bytes().begin());
    static_cast<void>(client.post(send(from.first(bytes.size()))));
  }
  /// A frame with what the peer has taken, and a lie added to that; the first `size` bytes of it.
  void say(frame f, std::uint32_t lie = 0, size_t size = frame_bytes) {
    f.taken = taken + lie;
    const auto message = message_protocol::encode(f);
    say(std::span{message}.first(std::min(size, message_protocol::size_of(f.kind))));
  }
  void say_data(std::string_view text) {
    auto message = bytes_of("\x01       ");
    const auto head = message_protocol::encode({.kind = message_kind::data, .taken = taken});
    std::ranges::copy(std::span{head}.first(message.size()), message.begin());
    for (const std::byte b : bytes_of(text)) message.push_back(b);
    say(message);
  }

  void ends_as(errc why) {
    wait_for([&] { return !victim.connection().is_open(); });
    CHECK(victim.connection().why_lost()->code == make_error_code(why));
  }
  /// As many large messages as the victim reads ahead of its program, which takes none.
  void fill_places() {
    for (const std::uint64_t tag : {places, places + 1}) {
      say({.kind = message_kind::announce, .tag = tag, .loan = lent()});
      CHECK(answer(message_kind::taken).status == 0);
    }
  }
  stream_message next() {
    started<message_stream::receive_op> receiving{rt.executor(), victim.receive()};
    wait_for([&] { return receiving.has_ended(); });
    return receiving->take();
  }
  /// It was not impressed.
  void goes_on() {
    say_data("still there");
    stream_message m = next();
    while (m.is_large()) m = next();
    CHECK(std::ranges::equal(m.bytes(), bytes_of("still there")));
    CHECK(victim.connection().is_open());
  }

  static constexpr std::uint64_t places = 100;
  static constexpr size_t receives = 64;
  static constexpr size_t frame_bytes = 128;

  message_stream victim;
  std::vector<std::byte> large = std::vector<std::byte>(announced_bytes, std::byte{'l'});
  verbs::memory_region readable{rt.protection_domain(), large.data(), large.size(),
                                verbs::access::remote_read};
  local_mr landing;
  shared_receives* pool = nullptr;
  size_t pool_bytes = 0;
  std::vector<frame> heard;
  std::uint32_t taken = message_protocol::count_first;
};

/// A victim whose program waits: for a message, and for a large one of its own to be taken.
struct waiting_siege : siege {
  waiting_siege() { announced = answer(message_kind::announce); }
  /// The lie was one, and nobody waits any more.
  void has_ended() {
    ends_as(errc::bad_frame);
    wait_for([&] { return receiving.has_ended() && sending.has_ended(); });
    CHECK(code_of(receiving->take_result()) == errc::bad_frame);
    CHECK(code_of(sending->take_result()) == errc::bad_frame);
  }
  std::vector<std::byte> bytes = std::vector<std::byte>(announced_bytes);
  started<message_stream::receive_op> receiving{rt.executor(), victim.receive()};
  started<task<>> sending{rt.executor(), victim.send(bytes)};
  frame announced;
};

/// The victim's send, and what it ends with.
struct large_sending {
  explicit large_sending(siege& of)
      : s{of},
        task_{s.rt.executor(), s.victim.send(bytes)},
        announced{s.answer(message_kind::announce)} {}
  void ends_as(errc why) {
    s.wait_for([&] { return task_.has_ended(); });
    CHECK(code_of(task_->take_result()) == make_error_code(why));
  }
  siege& s;
  std::vector<std::byte> bytes = std::vector<std::byte>(announced_bytes);
  started<task<>> task_;
  frame announced;
};

}  // namespace

TEST_CASE("bytes that are no frame end the connection, and all that waits on it",
          "[rpc][device][R4]") {
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

TEST_CASE("a message that is longer than a buffer ends the connection", "[rpc][device][R4]") {
  siege s;
  s.say(std::vector<std::byte>(8 + of_victim.buffer_bytes + 1, std::byte{1}));
  s.wait_for([&] { return !s.victim.connection().is_open(); });  // Says the device.
}

TEST_CASE("credits for what was not sent end the connection of a stream", "[rpc][device][R4]") {
  for (const std::uint32_t lie : {1u, 7u, 0x8000'0000u, 0xffff'ffffu}) {
    INFO(lie);
    waiting_siege s;
    s.say({.kind = message_kind::credit});
    s.say({.kind = message_kind::credit}, lie);
    s.has_ended();
  }
}

TEST_CASE("what cannot be said of a large message ends the connection", "[rpc][device][R4]") {
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

TEST_CASE("a large message is taken once", "[rpc][device][R4]") {
  for (const std::uint32_t status : {0u, 1u}) {
    siege s;
    large_sending sending{s};
    for (int n = 0; n < 2; ++n)
      s.say({.kind = message_kind::taken, .tag = sending.announced.tag, .status = status});
    s.ends_as(errc::bad_frame);
  }
}

TEST_CASE("a WRITE with immediate data to a stream ends the connection", "[rpc][device][R4]") {
  waiting_siege s;
  static_cast<void>(s.client.post(write_with_imm(const_local_mr_slice{}, {}, 1)));
  s.has_ended();
}

TEST_CASE("terms that no stream has end the connection", "[rpc][device][R4]") {
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
    started<message_stream::receive_op> receiving{s.rt.executor(), s.victim.receive()};
    started<task<>> sending{s.rt.executor(), s.victim.send(bytes)};
    s.ends_as(errc::bad_frame);
    s.wait_for([&] { return receiving.has_ended() && sending.has_ended(); });
    CHECK(code_of(receiving->take_result()) == errc::bad_frame);
    CHECK(code_of(sending->take_result()) == errc::bad_frame);
  }
}

TEST_CASE("terms that are told twice end the connection", "[rpc][device][R4]") {
  siege s;
  large_sending sending{s};
  s.client.agent()->open_stream(honest);
  s.ends_as(errc::bad_frame);
  sending.ends_as(errc::bad_frame);
}

TEST_CASE("a withdrawal of what was not announced is ignored", "[rpc][device][R4]") {
  siege s;
  for (const std::uint64_t tag : {std::uint64_t{1}, huge})
    s.say({.kind = message_kind::withdraw, .tag = tag});
  s.goes_on();
}

TEST_CASE("what is withdrawn is answered once, and its tag may be used again",
          "[rpc][device][R4]") {
  siege s;
  s.fill_places();
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
          "[rpc][device][R2][R4]") {
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

TEST_CASE("what a peer says that it has read ends its access", "[rpc][device][R2][R4]") {
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
          "[rpc][device][R4]") {
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
          "[rpc][device][R4]") {
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
          "[rpc][device][R4]") {
  siege s;
  s.fill_places();
  s.say({.kind = message_kind::announce, .tag = 3, .loan = s.lent()});
  s.say_data("behind");
  // And no third: that is all memory that it gets.
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
          "[rpc][device][R4]") {
  for (const bool is_too_long : {false, true}) {
    siege s;
    loan_terms lent = s.lent(is_too_long ? announced_bytes + 1 : announced_bytes);
    if (!is_too_long) lent.rkey = ~lent.rkey;
    s.say({.kind = message_kind::announce, .tag = 9, .loan = lent});
    started<message_stream::receive_op> receiving{s.rt.executor(), s.victim.receive()};
    s.wait_for([&] { return !s.victim.connection().is_open() && receiving.has_ended(); });
    CHECK(receiving->failed());
  }
}

TEST_CASE("a peer that sends without credit is cut off", "[rpc][device][R4]") {
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

TEST_CASE("credit that cannot be granted, or be taken back, ends the connection",
          "[rpc][device][R4]") {
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
      if (n == 1) say({.kind = message_kind::grant, .messages = 16});  // Now it knows the terms.
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

TEST_CASE("who shrinks what is to shrink, or grants more of it, is cut off", "[rpc][device][R4]") {
  for (const frame& f : {frame{.kind = message_kind::shrink, .messages = 8},
                         frame{.kind = message_kind::shrink, .messages = 9},
                         frame{.kind = message_kind::grant, .messages = 32}}) {
    granted_siege s{12};
    // What it has to say takes all places but one: it cannot confirm.
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
          "[rpc][device][R4]") {
  for (const unsigned messages : {1u, 2u, 6u}) {
    granted_siege s{messages};
    if (messages == 1) s.say({.kind = message_kind::grant, .messages = 16});
    s.say({.kind = message_kind::shrink, .messages = 8});
    const std::uint32_t kept_to = s.answer(message_kind::shrunk).messages;
    CHECK(kept_to == std::min(s.sent() - 1 + 8, 16u));
    // It goes on though nothing is taken; of its places four are no messages'.
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
    // And may be given more again.
    if (kept_to < 16) s.siege::say({.kind = message_kind::grant, .messages = 16});
    s.goes_on();
  }
}

TEST_CASE("a victim that needs all it has is asked to shrink in vain", "[rpc][device][R4]") {
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
          "[rpc][device][R4]") {
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
    // Its share has grown by then to all but an eighth of the pool.
    for (int n = 0; n < 29; ++n) s.say_data("too many");
    s.ends_as(errc::bad_frame);
  }
}

TEST_CASE("bad frames in a pool's buffers give them back", "[rpc][device][R4]") {
  siege s{little};
  s.say_data("nobody takes it");
  s.say({.kind = message_kind::announce, .tag = 1, .loan = s.lent()});
  s.say_data("behind");
  s.say({.kind = message_kind::announce, .tag = 1, .loan = s.lent()});
  s.ends_as(errc::bad_frame);
}

TEST_CASE("a peer may say that it needs more than it is asked to shrink to, and keeps to that",
          "[rpc][device][R4]") {
  for (const std::uint32_t needed : {9u, 16u}) {
    asking_siege s;
    s.ask();
    s.say({.kind = message_kind::shrunk, .messages = needed});
    s.wait_for([&] { return s.victim.connection().qp().share()->credit() == needed; });
    s.goes_on();
  }
}

TEST_CASE("a peer that does as it is asked gets its credit back when there is some",
          "[rpc][device][R4]") {
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
