// How identifiers end: stopped, dropped, or left by the peer at each step.

#include "rig.hpp"
#include "support/leaks.hpp"

using namespace cordma;
using namespace cordma::cm;
using namespace cordma::cm::test;
using cordma::test::holdings;
using cordma::test::settled_holdings;

namespace {

/// The step at which a side ends.
enum class step { resolving, resolved, requested, accepted, replied };

const char* name_of(step at) {
  switch (at) {
    case step::resolving: return "resolving";
    case step::resolved: return "resolved";
    case step::requested: return "requested";
    case step::accepted: return "accepted";
    case step::replied: return "replied";
  }
  return "";
}

/// A client and a server on their way to a connection.
struct halfway {
  explicit halfway(rig& of) : r{of} {}

  void resolve() { r.executor.run(reach(r, client, from.local_address())); }
  void request() {
    resolve();
    knocks.emplace(r.executor, client.conn.connect(client.qp.num(), {}, {}));
    take();
  }
  void take() {
    auto taken = r.outcome(from.accept());
    REQUIRE(taken.has_value());
    server.conn = std::move(*taken);
    initialise(server);
    get_ready(server);
  }
  void accept() {
    request();
    server.conn.accept(server.qp.num(), {}, {});
    waits.emplace(r.executor, server.conn.established());
  }
  void reply() {
    accept();
    REQUIRE(r.end_of(*knocks).has_value());
    get_ready(client);
  }

  rig& r;
  listener from = r.listen();
  side server{r};
  side client{r};
  std::optional<started<task<>>> knocks;
  std::optional<started<task<>>> waits;
};

/// A pair that was connected once: librdmacm opens the device at its first use, and keeps it.
void warm_up(rig& r) {
  listener from = r.listen();
  side server{r};
  side client{r};
  r.executor.run(when_all(serve(from, server), join(r, client, from.local_address())));
}

/// A connection on the same rig: whatever ended before is in nobody's way.
void connect_once_more(rig& r) { warm_up(r); }

}  // namespace

TEST_CASE("a step that is stopped ends as stopped, and its identifier leaves nothing",
          "[cm][device]") {
  rig r;
  warm_up(r);
  const std::string before = holdings();
  const step at = GENERATE(step::resolving, step::requested, step::accepted);
  INFO(name_of(at));
  {
    halfway h{r};
    std::optional<started<task<>>> resolves;
    started<task<>>* stopped = nullptr;
    if (at == step::resolving) {
      resolves.emplace(r.executor, reach(r, h.client, h.from.local_address()));
      stopped = &*resolves;
    } else if (at == step::requested) {
      h.request();
      stopped = &*h.knocks;
    } else {
      h.accept();
      stopped = &*h.waits;
    }
    stopped->request_stop();
    CHECK(r.end_of(*stopped).is_cancelled());
  }
  CHECK(settled_holdings(r.executor, before) == before);
  connect_once_more(r);
}

TEST_CASE("a time limit ends each step", "[cm][device]") {
  rig r;
  halfway h{r};
  h.resolve();
  const failure why = r.failure_of(
      with_timeout(h.client.conn.connect(h.client.qp.num(), {}, {}), std::chrono::milliseconds{1}));
  CHECK(why.code == errc::timed_out);
}

TEST_CASE("tasks and identifiers that are dropped at any step leave nothing", "[cm][device]") {
  rig r;
  warm_up(r);
  const std::string before = holdings();
  const step at =
      GENERATE(step::resolving, step::resolved, step::requested, step::accepted, step::replied);
  INFO(name_of(at));
  {
    halfway h{r};
    switch (at) {
      case step::resolving: {
        const started<task<>> dropped{r.executor, reach(r, h.client, h.from.local_address())};
        break;
      }
      case step::resolved: h.resolve(); break;
      case step::requested: h.request(); break;
      case step::accepted: h.accept(); break;
      case step::replied: h.reply(); break;
    }
  }
  CHECK(settled_holdings(r.executor, before) == before);
  connect_once_more(r);
}

TEST_CASE("a server that drops a request refuses it", "[cm][device]") {
  rig r;
  halfway h{r};
  h.request();
  h.server.conn = id{};
  CHECK(r.end_of(*h.knocks).failure().code == errc::refused);
  CHECK(h.client.conn.from_peer().data().front() == std::byte{0});
}

TEST_CASE("a server that is gone after its reply ends the client's connection", "[cm][device]") {
  rig r;
  halfway h{r};
  h.reply();
  h.waits.reset();
  h.server.conn = id{};
  r.run_until([&] { return h.client.conn.why_ended().has_value(); });
  const failure why = failure_thrown([&] { h.client.conn.establish(); });
  CHECK((why.code == errc::disconnected || why.code == errc::refused));
}

TEST_CASE("a client that is gone before its request is taken is an error of the server's calls",
          "[cm][device]") {
  rig r;
  halfway h{r};
  h.resolve();
  h.knocks.emplace(r.executor, h.client.conn.connect(h.client.qp.num(), {}, {}));
  r.run_until([&] { return h.from.waiting() == 1; });
  h.knocks.reset();
  h.client.conn = id{};
  const auto serving = r.outcome(with_timeout(serve(h.from, h.server), std::chrono::seconds{60}));
  REQUIRE(serving.has_failure());
  CHECK(serving.failure().code != errc::timed_out);
}

TEST_CASE("a client that is gone before it is ready ends the server's wait", "[cm][device]") {
  rig r;
  halfway h{r};
  h.reply();
  h.knocks.reset();
  h.client.conn = id{};
  const auto waited = r.end_of(*h.waits);
  REQUIRE(waited.has_failure());
  INFO(waited.failure().to_string());
  CHECK((waited.failure().code == errc::refused || waited.failure().code == errc::disconnected));
}

TEST_CASE("both sides are told when one disconnects", "[cm][device]") {
  connected c;
  unsigned told_client = 0;
  unsigned told_server = 0;
  c.client.conn.on_notice([&](notice what) { told_client += what == notice::ended ? 1u : 0u; });
  c.server.conn.on_notice([&](notice what) { told_server += what == notice::ended ? 1u : 0u; });
  c.client.conn.disconnect();
  c.run_until([&] { return told_client > 0 && told_server > 0; });
  CHECK(c.server.conn.why_ended()->code == errc::disconnected);
  CHECK(c.client.conn.why_ended()->code == errc::disconnected);
  CHECK(failure_thrown([&] { c.server.conn.establish(); }).code == errc::disconnected);
  c.client.conn.disconnect();  // Does nothing.
  c.server.conn.disconnect();
  CHECK(told_client == 1);
  CHECK(told_server == 1);
}

TEST_CASE("a peer that destroys its identifier has disconnected", "[cm][device]") {
  connected c;
  bool told = false;
  c.server.conn.on_notice([&](notice what) { told = told || what == notice::ended; });
  c.client.conn = id{};
  c.run_until([&] { return told; });
  CHECK(c.server.conn.why_ended()->code == errc::disconnected);
}

TEST_CASE("an identifier may be destroyed when it is told of its end", "[cm][device]") {
  connected c;
  bool told = false;
  c.server.conn.on_notice([&](notice) {
    told = true;
    c.server.conn = id{};
  });
  c.client.conn.disconnect();
  c.run_until([&] { return told; });
  CHECK(told);
}

TEST_CASE("what comes after the end of a connection is told, too", "[cm][device]") {
  connected c;
  bool is_over = false;
  c.client.conn.on_notice([&](notice what) { is_over = is_over || what == notice::timewait_over; });
  c.client.conn.disconnect();
  c.run_until([&] { return is_over; });
  CHECK(is_over);
}
