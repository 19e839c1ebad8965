#include "../../lib/agent/control_channel.hpp"

#include "support/loopback.hpp"
#include "support/until.hpp"

#include <catch2/catch.hpp>

#include <cstring>
#include <deque>
#include <optional>
#include <vector>

using namespace cordma;
using agent_protocol::kind;
using test::loopback;

namespace {

/// One end: keeps what arrives, and answers questions, each when as many wait as it wants.
struct end : control_channel::listener {
  end(loopback& link, std::size_t patience_of_it)
      : channel{link.driver, link.pd, link.allocator(test::all_access), *this},
        patience{patience_of_it} {}

  void on_frame(const control_channel::frame& f, unsigned slot) noexcept override {
    tags.push_back(f.tag);
    if (!agent_protocol::is_question(f.kind)) return channel.release(slot);
    held.push_back({f.tag, slot});
    if (held.size() < patience) return;
    for (; !held.empty(); held.pop_front())
      channel.reply(held.front().slot, {.kind = kind::handed_over, .tag = held.front().tag});
  }
  void on_bad_frame(const failure& why) noexcept override { bad = why; }

  struct question {
    std::uint64_t tag;
    unsigned slot;
  };
  control_channel channel;
  const std::size_t patience;
  std::vector<std::uint64_t> tags;
  std::deque<question> held;
  std::optional<failure> bad;
};

struct ends {
  explicit ends(std::size_t patience = 1) : one{link, patience}, other{link, patience} {
    link.connect(one.channel.qp(), other.channel.qp());
    for (end* e : {&one, &other}) {
      e->channel.post_receives();
      e->channel.start();
    }
  }
  void wait_for(auto condition) { link.run(test::until(link.executor, condition)); }

  loopback link;
  end one;
  end other;
};

std::deque<control_channel::outgoing> frames(kind k, std::size_t count) {
  std::deque<control_channel::outgoing> all(count);
  for (std::size_t n = 0; n < count; ++n) {
    all[n].frame = {.kind = k, .tag = n + 1, .lease = 1};
    if (k == kind::give_back) all[n].frame = {.kind = k, .lease = n + 1};
  }
  return all;
}

}  // namespace

TEST_CASE("many frames one way arrive in order, and no receive is missing", "[agent][device]") {
  ends e;
  auto sent = frames(kind::accept, 1000);
  for (auto& frame : sent) e.one.channel.send(frame);
  e.wait_for([&] { return e.other.tags.size() == sent.size(); });
  for (std::size_t n = 0; n < sent.size(); ++n) REQUIRE(e.other.tags[n] == n + 1);
  CHECK_FALSE(e.one.channel.qp().has_failed());
  CHECK_FALSE(e.one.bad);
}

TEST_CASE("two sides that both ask more than they have credits for both get their answers",
          "[agent][device]") {
  // The other side answers only once all questions that may be open are.
  ends e{agent_protocol::questions_max};
  constexpr std::size_t count = 100 * agent_protocol::questions_max;
  auto questions = frames(kind::hand_over, count);
  auto other_questions = frames(kind::hand_over, count);
  for (auto& question : questions) e.one.channel.send(question);
  for (auto& question : other_questions) e.other.channel.send(question);
  const auto all = [&](const end& at) { return at.tags.size() == 2 * count; };
  e.wait_for([&] { return all(e.one) && all(e.other); });
  CHECK_FALSE(e.one.bad);
  CHECK_FALSE(e.other.bad);
}

TEST_CASE("notices go ahead of questions that must wait", "[agent][device]") {
  ends e{agent_protocol::questions_max + 1};  // The other side never answers.
  auto questions = frames(kind::hand_over, 100);
  for (auto& question : questions) e.one.channel.send(question);
  control_channel::outgoing notice;
  notice.frame = {.kind = kind::accept, .tag = 4711, .lease = 1};
  e.one.channel.send(notice);
  e.wait_for([&] { return !e.other.tags.empty() && e.other.tags.back() == 4711; });
  CHECK(e.other.tags.size() == agent_protocol::questions_max + 1);
}

TEST_CASE("a frame that is taken back before it is sent is not sent", "[agent][device]") {
  ends e;
  auto sent = frames(kind::accept, 100);
  for (auto& frame : sent) e.one.channel.send(frame);
  REQUIRE(sent.back().is_linked());  // No credit yet.
  sent.pop_back();
  control_channel::outgoing last;
  last.frame = {.kind = kind::accept, .tag = 4711, .lease = 1};
  e.one.channel.send(last);
  e.wait_for([&] { return !e.other.tags.empty() && e.other.tags.back() == 4711; });
  CHECK(e.other.tags.size() == 100);
}

TEST_CASE("what is put off goes behind what the turn sends, and before the executor stops",
          "[agent][device]") {
  ends e;
  auto sent = frames(kind::accept, 3);
  const auto say = [](end& from, std::deque<control_channel::outgoing>& all) -> task<> {
    from.channel.send_later(all[0]);
    from.channel.send(all[1]);
    CHECK(all[0].is_linked());
    co_return;
  };
  e.link.run(say(e.one, sent));
  CHECK_FALSE(sent[0].is_linked());
  e.one.channel.send_later(sent[2]);  // The executor does not run.
  CHECK_FALSE(sent[2].is_linked());
  e.wait_for([&] { return e.other.tags.size() == 3; });
  CHECK(e.other.tags == std::vector<std::uint64_t>{2, 1, 3});
}

TEST_CASE("a channel settles once all that it sent has arrived, whatever was signaled",
          "[agent][device]") {
  ends e;
  auto sent = frames(kind::accept, 40);
  for (std::size_t n = 0; n < sent.size(); ++n) {
    e.one.channel.send(sent[n]);
    e.link.run(e.one.channel.settled());
    e.wait_for([&] { return e.other.tags.size() > n; });
    CHECK(e.other.tags.size() == n + 1);
  }
  e.one.channel.qp().abort({.code = errc::closed, .call = "test"});
  CHECK(e.link.outcome(e.one.channel.settled()).has_value());
}

TEST_CASE("a channel settles though more is sent meanwhile, and with what waits for credits",
          "[agent][device]") {
  ends e;
  auto sent = frames(kind::accept, 2);
  auto many = frames(kind::give_back, 200);
  const auto send_while_settling = [](ends& of, auto& more) -> task<> {
    auto settled = of.one.channel.settled();
    for (auto& frame : more) of.one.channel.send(frame);
    co_await std::move(settled);
  };
  e.one.channel.send(sent[0]);
  e.link.run(send_while_settling(e, many));
  CHECK_FALSE(many.back().is_linked());
  e.one.channel.send(sent[1]);
  e.link.run(e.one.channel.settled());
  e.wait_for([&] { return e.other.tags.size() == many.size() + 2; });
}

TEST_CASE("the last frame of a channel that settles asks for its completion, and no other is sent",
          "[agent][device]") {
  ends e;
  auto sent = frames(kind::accept, 3);
  const auto settle = [](ends& of, auto& all) -> task<> {
    for (auto& frame : all) of.one.channel.send_later(frame);
    co_await of.one.channel.settled();
  };
  e.link.run(settle(e, sent));
  CHECK(e.one.channel.qp().sends().posted_total() == sent.size());
}

TEST_CASE("an idle channel probes the peer again and again, one probe at a time",
          "[agent][device]") {
  ends e;
  control_channel& asking = e.one.channel;
  for (std::uint32_t n = 1; n <= 2 * agent_protocol::credits; ++n) {
    REQUIRE(asking.probe());
    REQUIRE_FALSE(asking.probe());
    REQUIRE(asking.qp().sends().posted_total() == n);
    e.wait_for([&] { return asking.qp().sends().is_idle(); });
  }
  CHECK_FALSE(e.other.bad);
}

TEST_CASE("who does not keep to the protocol is told of, and heard no more", "[agent][device]") {
  loopback link;
  end victim{link, 1};
  std::unique_ptr<queue_pair> peer = link.make_queue_pair({});
  link.connect(victim.channel.qp(), *peer);
  victim.channel.post_receives();
  victim.channel.start();
  local_mr memory = link.memory(agent_protocol::frame_bytes);
  const auto say = [&](const control_channel::frame& f, std::size_t bytes) {
    const auto encoded = agent_protocol::encode(f);
    std::memcpy(memory.bytes().data(), encoded.data(), encoded.size());
    link.run(peer->send(memory.first(bytes)));
  };
  SECTION("a frame that is too short") { say({.kind = kind::credit}, 63); }
  SECTION("credits that were never used") { say({.kind = kind::credit, .taken = 1}, 64); }
  SECTION("an answer without a question") { say({.kind = kind::handed_over, .tag = 1}, 64); }
  link.run(test::until(link.executor, [&] { return victim.bad.has_value(); }));
  CHECK(victim.bad->code == make_error_code(errc::bad_frame));
  say({.kind = kind::accept, .tag = 1, .lease = 1}, 64);
  CHECK(victim.tags.empty());
}
