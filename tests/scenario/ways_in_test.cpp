// The table of docs/connecting.md: each way in, with each proof that it takes.
#include "agent/agent.hpp"
#include "connection/cm_peers.hpp"
#include "queue/callback_queue_pair.hpp"
#include "scenario/proofs.hpp"
#include "support/rpc_pair.hpp"
#include "support/runtime_group.hpp"
#include "support/stream_pair.hpp"
#include "support/temporary_folder.hpp"

#include <cordma/coro/when_all.hpp>

#include <catch2/catch.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;

namespace {

enum class method : unsigned char { tcp, unix_socket, stream, rdma_cm, information };

struct cell {
  method by;
  authentication proof;

  friend std::ostream& operator<<(std::ostream& to, const cell& c) {
    constexpr const char* methods[] = {"TCP", "a Unix socket", "a stream", "rdma_cm",
                                       "information"};
    constexpr const char* proofs[] = {"no proof", "a key", "a certificate"};
    return to << methods[unsigned(c.by)] << " with " << proofs[unsigned(c.proof)];
  }
};

/// All cells of the table whose connections have agents.
std::vector<cell> table() {
  std::vector<cell> all{{method::information, authentication::none}};
  for (const method by : {method::tcp, method::unix_socket, method::stream, method::rdma_cm}) {
    for (const authentication proof :
         {authentication::none, authentication::psk, authentication::certificate})
      all.push_back({by, proof});
  }
  return all;
}

struct ends {
  connection client;
  connection server;
};

/// The first step of each side with its connection.
using first_step = task<connection> (*)(task<connection>);
task<connection> nothing(task<connection> made) { return made; }
task<connection> send_at_once(task<connection> made) {
  connection c = co_await std::move(made);
  local_mr memory = c.memory().allocate_zeroed(8);
  co_await c.send(memory.slice());
  co_return c;
}

/// Connects by each way.
struct connector {
  /// One connected side, as the log has it: how, and with whom.
  struct connected_side {
    std::string bootstrap;
    std::string identity;
    bool operator==(const connected_side&) const = default;
  };
  std::vector<connected_side> logged;
  test::cm_runtime r{with_log()};
  runtime& rt = r.rt;
  test::temporary_folder folder;
  test::proofs proofs{r.here().host};
  unsigned made = 0;

  [[nodiscard]] endpoint endpoint_of(method by) {
    if (by == method::rdma_cm) return r.here();
    if (by == method::tcp) return {};
    return {"unix:" + (folder.path / std::to_string(++made)).string()};
  }
  ends connect(cell c, connection_options options = {}, first_step then = nothing) {
    const bool has_host = c.by == method::tcp || c.by == method::rdma_cm;
    connection_options of_server = options;
    of_server.insecure = true;
    options.credentials = proofs.of_client(c.proof, has_host);
    of_server.credentials = proofs.of_server(c.proof);
    if (c.by == method::information) return by_information(options, then);
    if (c.by == method::stream) return over_a_stream(options, of_server, then);
    listener acceptor = rt.listen(endpoint_of(c.by), {}, of_server);
    auto [a, b] = rt.run(
        when_all(then(rt.connect(acceptor.local_endpoint(), options)), then(acceptor.accept())));
    return {std::move(a), std::move(b)};
  }

 private:
  runtime_options with_log() {
    runtime_options options;
    options.log.hook = [this](const event_log::record& one) {
      if (one.kind == event_log::kind::connected)
        logged.push_back({std::string{one.bootstrap}, std::string{one.identity}});
    };
    return options;
  }
  ends by_information(const connection_options& options, first_step then) {
    prepared_connection one = rt.prepare_connection(options);
    prepared_connection other = rt.prepare_connection(options);
    auto [a, b] =
        rt.run(when_all(then(one.connect(other.info())), then(other.connect(one.info()))));
    return {std::move(a), std::move(b)};
  }
  ends over_a_stream(const connection_options& of_client, const connection_options& of_server,
                     first_step then) {
    std::array<int, 2> fds{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) == 0);
    auto [a, b] = rt.run(when_all(then(rt.connect(unique_fd{fds[0]}, of_client)),
                                  then(rt.accept(unique_fd{fds[1]}, {}, of_server))));
    return {std::move(a), std::move(b)};
  }
};

void check_identities(connector& w, cell c, const ends& made) {
  const identity& of_server = made.client.peer_identity();
  const identity& of_client = made.server.peer_identity();
  const bool has_user = c.by == method::unix_socket && c.proof == authentication::none;
  const authentication kind = has_user ? authentication::unix_credentials : c.proof;
  CHECK(of_server.kind == kind);
  CHECK(of_client.kind == kind);
  const bool has_host = c.by == method::tcp || c.by == method::rdma_cm;
  const std::string asked = c.by == method::tcp ? "127.0.0.1"
                            : has_host          ? w.r.here().host
                                                : "server.example";
  const std::string none = has_user ? "uid " + std::to_string(::geteuid()) : "";
  const std::string names_of_server[] = {none, "db-1", asked};
  const std::string names_of_client[] = {none, "db-1", "client.example"};
  CHECK(of_server.name == names_of_server[unsigned(c.proof)]);
  CHECK(of_client.name == names_of_client[unsigned(c.proof)]);
  CHECK(of_client.pid == (has_user ? std::uint32_t(::getpid()) : 0));
}

void check_log(const connector& w, cell c, const ends& made) {
  constexpr const char* names[] = {"tcp", "unix", "unix", "rdma_cm", "exchanged"};
  REQUIRE(w.logged.size() >= 2);
  const std::vector<connector::connected_side> last{w.logged.end() - 2, w.logged.end()};
  const std::string name = names[unsigned(c.by)];
  const std::vector<connector::connected_side> both{{name, made.client.peer_identity().name},
                                                    {name, made.server.peer_identity().name}};
  CHECK(std::is_permutation(last.begin(), last.end(), both.begin()));
}

void check_loan(runtime& rt, connection& from, connection& to) {
  local_mr memory = from.memory().allocate_zeroed(64);
  memory.bytes()[5] = std::byte{0x2a};
  const loan lent = rt.run(from.send_local_mr(std::move(memory)));
  const remote_mr borrowed = rt.run(to.receive_remote_mr());
  local_mr copy = to.memory().allocate_zeroed(64);
  rt.run(to.read(copy.slice(), borrowed.slice()));
  CHECK(copy.bytes()[5] == std::byte{0x2a});
}

/// The peer is told, and both are closed.
void check_goodbye(runtime& rt, ends made) {
  const auto close_when_told = [&]() -> task<> {
    static_cast<void>(co_await as_result(made.server.next_message()));
    co_await made.server.close();
  };
  rt.run(when_all(made.client.close(), close_when_told()));
  CHECK(made.server.was_closed_by_peer());
  CHECK_FALSE(made.client.is_open());
  CHECK_FALSE(made.server.is_open());
}

void check_streams(runtime& rt, ends made) {
  message_stream a{std::move(made.client)};
  message_stream b{std::move(made.server)};
  rt.run(test::streams::both_ways(a, b, 8));
  const std::vector<std::byte> large = test::streams::seeded_bytes(100'000, 3);
  rt.run(test::streams::pass(a, b, large));
  rt.run(when_all(a.close(), b.close()));
}

void check_calls(runtime& rt, ends made) {
  rpc::server server;
  server.handle<test::echo>([](test::view request) -> task<test::view> { co_return request; });
  rpc::client caller{std::move(made.client)};
  const auto call = [&]() -> task<> {
    co_await test::check_echo(caller, test::pattern(300));
    co_await caller.close();
  };
  const auto serve = [&]() -> task<> { co_await server.serve(std::move(made.server)); };
  rt.run(when_all(call(), serve()));
  CHECK(server.counters().connections == 0);
}

/// Waits for the peer's end; gives what noticed it.
std::string noticed(runtime& rt, connection& conn) {
  const auto ended = rt.run(as_result(conn.next_message()));
  REQUIRE(ended.has_failure());
  CHECK(ended.failure().code == make_error_code(errc::disconnected));
  CHECK_FALSE(conn.was_closed_by_peer());
  REQUIRE(conn.why_lost());
  return conn.why_lost()->call;
}

/// The device never finds a lost peer by itself.
connection_options patient() {
  connection_options options;
  options.timeout = 31;
  options.close_timeout = 20ms;
  options.heartbeat.enabled = false;
  return options;
}
connection_options beating() {
  connection_options options = patient();
  options.heartbeat = {.interval = 5ms, .misses = 3};
  return options;
}

}  // namespace

TEST_CASE("each way in gives, with each proof, messages, loans, streams and calls",
          "[scenario][device][rdma_cm]") {
  connector w;
  for (const cell& c : table()) {
    CAPTURE(c);
    ends made = w.connect(c);
    check_identities(w, c, made);
    check_log(w, c, made);
    test::check_that_messages_pass(w.rt, made.client, made.server);
    test::check_that_messages_pass(w.rt, made.server, made.client);
    check_loan(w.rt, made.client, made.server);
    check_loan(w.rt, made.server, made.client);
    check_goodbye(w.rt, std::move(made));
    check_streams(w.rt, w.connect(c));
    check_calls(w.rt, w.connect(c));
  }
}

TEST_CASE("what either side sends as soon as it is connected finds a preposted receive",
          "[scenario][device][rdma_cm]") {
  connector w;
  connection_options options = test::never_not_ready();
  options.preposted = 1;
  const auto check_both = [&](ends made) {
    CHECK(w.rt.run(made.client.next_message()).size_bytes == 8);
    CHECK(w.rt.run(made.server.next_message()).size_bytes == 8);
  };
  for (const cell& c : table()) {
    CAPTURE(c);
    check_both(w.connect(c, options, &send_at_once));
  }
  options.plain = true;
  check_both(w.connect({method::rdma_cm, authentication::none}, options, &send_at_once));
  CHECK(w.logged.back().bootstrap == "rdma_cm");
}

TEST_CASE("the socket or rdma_cm tells of a peer that is dropped, whatever its proof",
          "[scenario][device][rdma_cm]") {
  connector w;
  for (const cell& c : table()) {
    if (c.by == method::information) continue;
    CAPTURE(c);
    ends made = w.connect(c, patient());
    made.client = {};
    CHECK(noticed(w.rt, made.server) == "hang_up");
  }
}

TEST_CASE("the heartbeat finds a peer whose host is gone, on each way and with each proof",
          "[scenario][device][rdma_cm]") {
  connector w;
  for (const cell& c : table()) {
    CAPTURE(c);
    ends made = w.connect(c, beating());
    made.client.qp().verbs().to_reset();
    made.client.agent()->control().verbs().to_reset();
    CHECK(noticed(w.rt, made.server) == "heartbeat");
  }
}

TEST_CASE("by rdma_cm with a key or a certificate, only a goodbye within TLS is a close",
          "[scenario][device][rdma_cm][C2]") {
  constexpr std::array goodbye{std::byte{'.'}};
  const auto proof = GENERATE(authentication::psk, authentication::certificate);
  connector w;
  ends made = w.connect({method::rdma_cm, proof}, patient());
  byte_channel& in_the_clear = *made.client.agent()->bytes;
  SECTION("a goodbye in the clear") { CHECK(in_the_clear.try_write(goodbye) == 1); }
  SECTION("a goodbye in the clear, and DISCONNECTED") {
    CHECK(in_the_clear.try_write(goodbye) == 1);
    made.client = {};
  }
  SECTION("DISCONNECTED alone") { made.client = {}; }
  CHECK(noticed(w.rt, made.server) == "hang_up");
}

TEST_CASE("by rdma_cm without a proof, a goodbye in the clear is a close",
          "[scenario][device][rdma_cm][C2]") {
  constexpr std::array goodbye{std::byte{'.'}};
  connector w;
  ends made = w.connect({method::rdma_cm, authentication::none}, patient());
  CHECK(made.client.agent()->bytes->try_write(goodbye) == 1);
  made.client = {};
  static_cast<void>(w.rt.run(as_result(made.server.next_message())));
  CHECK(made.server.was_closed_by_peer());
}

TEST_CASE(
    "a plain peer that is gone is noticed by rdma_cm, or by the heartbeat if it grants writes",
    "[scenario][device][rdma_cm]") {
  connector w;
  const auto by_rdma_cm = [&] {
    connection_options options = patient();
    options.plain = true;
    options.insecure = true;
    listener acceptor = w.rt.listen(w.r.here(), {}, options);
    auto [a, b] =
        w.rt.run(when_all(w.rt.connect(acceptor.local_endpoint(), options), acceptor.accept()));
    return ends{std::move(a), std::move(b)};
  };
  const auto by_information = [&](bool allows_writes) {
    prepared_connection one = w.rt.prepare_connection(beating());
    prepared_connection other = w.rt.prepare_connection(beating());
    queue_pair_info of_one = one.plain_info();
    queue_pair_info of_other = other.plain_info();
    of_one.allows_writes = of_other.allows_writes = allows_writes;
    auto [a, b] = w.rt.run(when_all(one.connect_plain(of_other), other.connect_plain(of_one)));
    return ends{std::move(a), std::move(b)};
  };
  SECTION("rdma_cm tells of one that is dropped") {
    ends made = by_rdma_cm();
    CHECK(made.server.peer_identity().kind == authentication::none);
    test::check_that_messages_pass(w.rt, made.client, made.server);
    made.client = {};
    CHECK(noticed(w.rt, made.server) == "hang_up");
  }
  SECTION("a heartbeat, where the peer grants writes") {
    ends made = by_information(true);
    CHECK(made.server.peer_identity().kind == authentication::none);
    test::check_that_messages_pass(w.rt, made.client, made.server);
    made.client.qp().verbs().to_reset();
    CHECK(noticed(w.rt, made.server) == "heartbeat");
  }
  SECTION("nothing is posted to one that grants none") {
    manual_clock clock;
    runtime rt{test::on_test_device(test::by_hand(clock))};
    prepared_connection one = rt.prepare_connection(beating());
    prepared_connection other = rt.prepare_connection(beating());
    queue_pair_info info = other.plain_info();
    info.allows_writes = false;
    auto [a, b] = rt.run(when_all(one.connect_plain(info), other.connect_plain(one.plain_info())));
    for (int tick = 0; tick < 8; ++tick) {
      clock.advance(5ms);
      rt.run(test::due_timers_fired());
    }
    CHECK(a.qp().sends().posted_total() == 0);
    CHECK(a.is_open());
  }
}

TEST_CASE("a group takes keys and certificates, by sockets and by rdma_cm",
          "[scenario][device][rdma_cm]") {
  connector w;
  for (const cell& c : table()) {
    if (c.by == method::information || c.by == method::stream || c.proof == authentication::none)
      continue;
    CAPTURE(c);
    // Each handler ends at the goodbye of its client, and says first whom it serves.
    std::mutex names_mutex;
    std::vector<std::string> names;
    serve_options options;
    options.connections.credentials = w.proofs.of_server(c.proof);
    options.admit = [&](connection_request& request) {
      const std::lock_guard lock{names_mutex};
      names.push_back("admitted " + request.peer_identity.name);
    };
    const auto handler = [&](runtime& rt, unsigned, connection conn) -> task<> {
      {
        const std::lock_guard lock{names_mutex};
        names.push_back("served " + conn.peer_identity().name);
      }
      local_mr memory = rt.memory().allocate_zeroed(8);
      co_await conn.send(memory.slice());
      static_cast<void>(co_await as_result(conn.next_message()));
    };
    runtime_group group{test::group_of(2)};
    const group_listener& acceptor = group.serve(w.endpoint_of(c.by), handler, options);
    const bool has_host = c.by != method::unix_socket;
    for (int n = 0; n < 2; ++n) {
      connection client = w.rt.run(w.rt.connect(
          acceptor.local_endpoint(), {.credentials = w.proofs.of_client(c.proof, has_host)}));
      CHECK(client.peer_identity().kind == c.proof);
      local_mr memory = w.rt.memory().allocate_zeroed(8);
      CHECK(w.rt.run(client.recv(memory.slice())).size_bytes == 8);
      w.rt.run(client.close());
    }
    const failure stranger = w.r.failure_of(w.rt.connect(acceptor.local_endpoint()));
    CHECK(stranger.code == make_error_code(errc::incompatible_peer));
    group.stop();
    group.wait();
    const std::string name = c.proof == authentication::psk ? "db-1" : "client.example";
    const std::vector<std::string> both{"admitted " + name, "served " + name};
    CHECK(names == std::vector{both[0], both[1], both[0], both[1]});
  }
}

TEST_CASE("the agents' queue pair grants a peer no access, by no way",
          "[scenario][device][rdma_cm]") {
  const auto granted = [](callback_queue_pair& pair) {
    ibv_qp_attr now{};
    ibv_qp_init_attr made{};
    REQUIRE(::ibv_query_qp(pair.verbs().native_handle(), &now, IBV_QP_ACCESS_FLAGS, &made) == 0);
    return now.qp_access_flags;
  };
  connector w;
  for (const cell& c : table()) {
    CAPTURE(c);
    ends made = w.connect(c);
    for (connection* side : {&made.client, &made.server}) {
      CHECK(granted(side->agent()->control()) == 0);
      CHECK((granted(side->qp()) & IBV_ACCESS_REMOTE_READ) != 0);
    }
  }
}

TEST_CASE("a listener that strangers reach says that it is insecure, whatever it listens by",
          "[scenario][device][rdma_cm]") {
  connector w;
  const bool is_plain = GENERATE(false, true);
  const auto where = GENERATE("0.0.0.0:0", "[::]:0", "rdma_cm:0.0.0.0:0");
  if (is_plain && std::string_view{where}.front() != 'r') return;
  CAPTURE(where, is_plain);
  const auto says =
      Catch::Contains("set connection_options::credentials, or insecure to take everybody");
  runtime_group group{test::group_of(1)};
  serve_options options;
  options.connections.plain = is_plain;
  const auto handler = [](runtime&, unsigned, connection) -> task<> { co_return; };
  CHECK_THROWS_WITH(w.rt.listen({where}, {}, {.plain = is_plain}), says);
  CHECK_THROWS_WITH(group.serve({where}, handler, options), says);
  options.connections.insecure = true;
  CHECK_NOTHROW(w.rt.listen({where}, {}, {.insecure = true, .plain = is_plain}));
  CHECK_NOTHROW(group.serve({where}, handler, options));
}

TEST_CASE("an acceptor refuses a plain client with a reason", "[scenario][device][rdma_cm][N2]") {
  connector w;
  std::array<std::byte, 64> said{};
  const auto admit = [&](connection_request& request) {
    said = request.private_data;
    CHECK(request.peer_identity.kind == authentication::none);
    if (request.private_data[0] == std::byte{1}) request.refuse("that shard is elsewhere");
    request.reply[0] = std::byte{9};
  };
  connection_options options;
  options.plain = true;
  options.insecure = true;
  listener acceptor = w.rt.listen(w.r.here(), {.admit = admit}, options);
  options.private_data[0] = std::byte{1};
  options.private_data[55] = std::byte{2};
  const failure why = w.r.failure_of(w.rt.connect(acceptor.local_endpoint(), options));
  CHECK(why.code == make_error_code(errc::refused));
  CHECK_THAT(why.to_string(), Catch::EndsWith("the peer says: that shard is elsewhere"));
  CHECK(said == options.private_data);
  options.private_data[0] = {};
  auto [client, server] =
      w.rt.run(when_all(w.rt.connect(acceptor.local_endpoint(), options), acceptor.accept()));
  CHECK(client.peer_private_data()[0] == std::byte{9});
  test::check_that_messages_pass(w.rt, client, server);
}
