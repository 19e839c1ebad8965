#pragma once

#include "agent/agent.hpp"
#include "held.hpp"
#include "messages/message_frame.hpp"
#include "messages/stream_terms.hpp"

#include "connected_pair.hpp"
#include "manual_executor.hpp"
#include "outcome.hpp"
#include "request/queue_pair.hpp"
#include "text.hpp"
#include "until.hpp"

#include <cordma/messages/message_stream.hpp>
#include <cordma/verbs/memory_region.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

// A message stream whose peer makes its frames itself, and what it may say.
namespace cordma::test::hostile {

using namespace std::chrono_literals;
using message_protocol::frame;
using message_kind = message_protocol::kind;
using std::size_t;
using support::started;

inline constexpr std::uint64_t huge = ~std::uint64_t{0};
inline constexpr size_t announced_bytes = 1000;
inline constexpr size_t takes_bytes_max = 4000;

inline constexpr stream_options of_victim{
    .depth = 8, .buffer_bytes = 64, .message_bytes_max = takes_bytes_max};
inline constexpr stream_terms honest{
    .messages = 8, .buffer_bytes = 64, .message_bytes_max = 1 << 20};

/// A clock that stands still; a SEND that meets no receive is not tried again.
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
    client.agent()->send_note(encode(terms));
  }
  /// The victim's end takes its receives from a pool.
  explicit siege(const shared_receives_options& of_pool) : siege{} {
    leave();
    heard.clear();
    taken = message_protocol::count_first;
    pool = &rt.share_receives(of_pool);
    pool_bytes = pool->memory_bytes();
    connection_options shared = connections();
    shared.receives_from = pool;
    acceptor = rt.listen({}, {}, shared);
    rt.run(open(connections()));
    stream_options deeper = of_victim;
    deeper.depth = 64;
    begin(honest, deeper);
  }
  /// Checks that no memory stays lent, borrowed or kept, whatever the peer did.
  ~siege() {
    victim.connection().qp().abort({.code = errc::closed, .call = "test"});
    rt.run(test::due_timers_fired());
    CHECK(held_by(victim.connection()) == nothing);
    leave();
    CHECK(held_by(rt) == held{.memory_bytes = pool_bytes});
    if (pool != nullptr) CHECK(held_by(*pool) == nothing);
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

  /// Gives the memory of a message that the victim lends.
  [[nodiscard]] remote_mr_slice remote(const frame& announced) const {
    return {announced.loan.address, std::size_t(announced.loan.length), announced.loan.rkey};
  }
  /// Gives the terms of a message that the peer lends, and that can be read.
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
  /// Announces as many large messages as the victim reads ahead of its program, which takes none.
  void fill_tags() {
    for (const std::uint64_t tag : {tags_max, tags_max + 1}) {
      say({.kind = message_kind::announce, .tag = tag, .loan = lent()});
      CHECK(answer(message_kind::taken).status == 0);
    }
  }
  stream_message next() {
    started<detail::receive_message_op> receiving{rt.executor(), victim.receive()};
    wait_for([&] { return receiving.has_ended(); });
    return receiving->take();
  }
  /// Checks that the victim goes on as before.
  void goes_on() {
    say_data("still there");
    stream_message m = next();
    while (m.is_large()) m = next();
    CHECK(std::ranges::equal(m.bytes(), bytes_of("still there")));
    CHECK(victim.connection().is_open());
  }

  static constexpr std::uint64_t tags_max = 100;
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
  started<detail::receive_message_op> receiving{rt.executor(), victim.receive()};
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

}  // namespace cordma::test::hostile
