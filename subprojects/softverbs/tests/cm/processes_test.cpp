#include "transport_rig.hpp"

#include "cm/names.hpp"
#include "cm/socket_conversation.hpp"
#include "link/listeners.hpp"
#include "link/tcp_listener.hpp"

#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_user_cm.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

// The transports of several processes, and what becomes of one when another one is killed.

namespace softverbs::cm::test {

namespace {

/// Listens in a process of its own until it is killed. Tells the endpoint.
void listen_and_serve(int control) {
  side server;
  const auto name = server.listen();
  put(control, name->at());
  serve(server, control);
}

/// Answers each request with a reply.
void listen_and_reply(int control) {
  side server;
  const auto name = server.listen("0.0.0.0");
  put(control, at("127.0.0.1", name->at().port));
  run_until({&server}, [&] {
    for (auto& one : server.requests)
      if (one.from->with && one.words.qpn != 0) {
        one.words.qpn = 0;
        one.from->with->send(of_kind(message_kind::reply));
      }
    char byte = 0;
    return ::recv(control, &byte, 1, MSG_DONTWAIT) == 0;
  });
}

struct by_tcp {
  setting port{"SOFTVERBS_PORT", free_port()};
  setting link{"SOFTVERBS_LINK", "tcp"};
};

}  // namespace

TEST_CASE("a killed process's names are free", "[cm]") {
  side other;
  forked process{listen_and_serve};
  const auto where = process.get<endpoint>();
  CHECK_FALSE(other.bind("127.0.0.1", where.port));
  CHECK(other.error == EADDRINUSE);
  process.kill();
  CHECK(other.bind("127.0.0.1", where.port));
}

TEST_CASE("a killed listener's requesters hear of it", "[cm]") {
  std::optional<by_tcp> tcp;
  if (GENERATE(false, true)) tcp.emplace();
  forked process{listen_and_reply};
  const auto where = process.get<endpoint>();
  side client;
  const auto asks = client.ask(where);
  REQUIRE(run_until({&client}, [&] { return asks->has_heard(message_kind::reply); }));
  process.kill();
  CHECK(run_until({&client}, [&] { return asks->ended == ECONNRESET; }));
}

TEST_CASE("a listener that is killed before it answers refuses, or resets", "[cm]") {
  std::optional<by_tcp> tcp;
  if (GENERATE(false, true)) tcp.emplace();
  forked process{listen_and_serve};
  const auto where = process.get<endpoint>();
  side client;
  const auto asks = client.ask(where);
  settle({&client});
  process.kill();
  CHECK(run_until({&client}, [&] { return asks->ended.has_value(); }));
  CHECK((asks->ended == ECONNRESET || asks->ended == ECONNREFUSED));
  CHECK(asks->heard.empty());
}

TEST_CASE("a killed requester's listener hears of it", "[cm]") {
  std::optional<by_tcp> tcp;
  if (GENERATE(false, true)) tcp.emplace();
  side server;
  const auto name = server.listen();
  const endpoint where = name->at();
  forked process{[&](int control) {
    server.network->abandon();
    side client;
    const auto asks = client.ask(where);
    serve(client, control);
  }};
  REQUIRE(run_until({&server}, [&] { return server.requests.size() == 1; }));
  process.kill();
  CHECK(run_until({&server}, [&] { return server.requests[0].from->ended == ECONNRESET; }));
}

TEST_CASE("when the holder of the port is killed, another process takes the port", "[cm]") {
  const by_tcp tcp;
  forked holder{listen_and_serve};
  holder.get<endpoint>();
  forked other{listen_and_reply};
  const auto where = other.get<endpoint>();
  side client;
  const auto before = client.ask(where);
  REQUIRE(run_until({&client}, [&] { return before->has_heard(message_kind::reply); }));
  holder.kill();
  const auto after = client.ask(where);  // Tries again for takeover_time, and no longer.
  REQUIRE(run_until({&client}, [&] { return after->has_heard(message_kind::reply); }));
  CHECK_FALSE(before->ended);  // The holder had no part in the conversation any more.
}

TEST_CASE("a process that listens tries to take the port at least once a second", "[cm]") {
  using namespace std::chrono_literals;
  const by_tcp tcp;
  forked holder{listen_and_serve};
  holder.get<endpoint>();
  side other, client;
  const auto name = other.listen("0.0.0.0");
  const auto first = other.network->deadline();
  CHECK(first < std::chrono::steady_clock::now() + 1s);
  // The clock is the test's: the first try comes while the holder lives, the second one later.
  other.network->run(first);
  const auto second = other.network->deadline();
  CHECK(second > first);
  CHECK(second < first + 1s);
  holder.kill();
  other.network->run(second);
  CHECK(other.network->deadline() == node_service::time::max());  // The port is taken.
  const auto asks = client.ask(at("127.0.0.1", name->at().port));
  CHECK(run_until({&other, &client}, [&] { return other.requests.size() == 1; }));
}

TEST_CASE("a request waits for a holder of the port that is stopped", "[cm]") {
  const by_tcp tcp;
  forked holder{listen_and_serve};
  holder.get<endpoint>();
  side other, client;
  const auto name = other.listen("0.0.0.0");
  holder.stop();
  const auto asks = client.ask(at("127.0.0.1", name->at().port));
  settle({&other, &client});
  // The transport has no timer for a request that was sent: rdma_cm's own ends it.
  CHECK(client.network->deadline() == node_service::time::max());
  client.network->run(std::chrono::steady_clock::now() + std::chrono::hours{1});
  CHECK(asks->heard.empty());
  CHECK_FALSE(asks->ended);
  CHECK(other.requests.empty());
  holder.resume();
  REQUIRE(run_until({&other, &client}, [&] { return other.requests.size() == 1; }));
  other.requests[0].from->with->send(of_kind(message_kind::reply));
  CHECK(run_until({&other, &client}, [&] { return asks->has_heard(message_kind::reply); }));
}

TEST_CASE("a forked child keeps nothing of its parent's", "[cm]") {
  const by_tcp tcp;
  side client;
  forked parent{[&](int control) {
    client.network->abandon();
    side server;
    const auto name = server.listen();
    const endpoint where = name->at();
    const forked child{[&](int up) {
      server.network->abandon();
      int error = 0;
      talker user;
      put(up, !server.network->bind(RDMA_PS_TCP, at("127.0.0.1", 0), false, false, error) &&
                  !server.network->start(request_to(where), user));
      await_go(control);  // Until the test is over.
    }};
    put(control, child.get<bool>());
    put(control, where);
    serve(server, control);
  }};
  CHECK(parent.get<bool>());
  const auto where = parent.get<endpoint>();
  const auto asks = client.ask(where);
  settle({&client});
  CHECK_FALSE(client.bind("127.0.0.1", where.port));
  parent.kill();
  CHECK(client.bind("127.0.0.1", where.port));
  const auto number = cm_port(tcp_settings_of_environment().port);
  CHECK(open_tcp_listener(address_of("127.0.0.1"), number));
}

TEST_CASE("a process without descriptors takes requests when it has some again", "[cm]") {
  forked process{[](int control) {
    side server;
    const auto name = server.listen();
    put(control, name->at());
    std::vector<unique_fd> all;
    while (all.empty() || all.back()) all.emplace_back(::fcntl(control, F_DUPFD_CLOEXEC, 0));
    put(control, 'f');
    const bool pauses = run_until(
        {&server}, [&] { return server.network->deadline() != node_service::time::max(); });
    put(control, pauses && server.requests.empty());
    all.clear();
    put(control, run_until({&server}, [&] { return server.requests.size() == 1; }));
  }};
  const auto where = process.get<endpoint>();
  CHECK(process.get<char>() == 'f');
  side client;
  const auto asks = client.ask(where);
  CHECK(process.get<bool>());
  CHECK(process.get<bool>());
  CHECK(process.wait() == 0);
}

// ---- other users, other hosts

namespace {

/// Listens at a name, and accepts nothing. Nobody can connect any more, or learn who has the name.
void listen_and_block(int control) {
  side server;
  bound_name name{RDMA_PS_TCP, server.bind("127.0.0.1")->at(), false, false};
  int error = 0;
  const unique_fd listener = claim(name, -1, error);
  ::listen(listener.get(), 0);
  std::vector<unique_fd> all;
  while (error == 0) all.push_back(connect_to_holder(name.space, name.at, error));
  if (error != EAGAIN) ::_exit(1);
  put(control, name.at);
  await_go(control);
}

}  // namespace

TEST_CASE("another user cannot keep a name from us by taking it first", "[cm]") {
  if (::geteuid() != 0) {
    WARN("skipped: only root can become another user");
    return;
  }
  constexpr uid_t another_uid = 65534;
  const bool accepts = GENERATE(true, false);
  CAPTURE(accepts);
  forked squatter{[&](int control) {
    if (::setuid(another_uid) != 0) ::_exit(1);
    accepts ? listen_and_serve(control) : listen_and_block(control);
  }};
  const auto where = squatter.get<endpoint>();
  side server, client;
  const auto name = server.listen("127.0.0.1", where.port);
  CHECK_FALSE(client.bind("127.0.0.1", where.port));
  CHECK(client.error == EADDRINUSE);
  CHECK_FALSE(client.bind("0.0.0.0", where.port));
  const auto asks = client.ask(where);
  CHECK(run_until({&server, &client}, [&] { return server.requests.size() == 1; }));
}

namespace {

constexpr const char* near_address = "10.98.0.1";
constexpr const char* far_address = "10.98.0.2";

/// Moves this process to a new host, and sets the address at which the host listens.
void enter_new_host(int control, const char* address) {
  if (::unshare(CLONE_NEWNET) != 0) ::_exit(4);
  put(control, ::getpid());
  await_go(control);
  ::setenv("SOFTVERBS_LISTEN", address, 1);
}

bool shell(const std::string& command) { return std::system(command.c_str()) == 0; }

/// Lays a cable between the network namespaces of two processes.
bool connect_hosts(pid_t near, pid_t far) {
  const auto in = [](pid_t process) {
    return "nsenter --net=/proc/" + std::to_string(process) + "/ns/net ip ";
  };
  const auto up = [&](pid_t process, const char* address) {
    return shell(in(process) + "addr add " + address + "/24 dev veth0 && " + in(process) +
                 "link set veth0 up && " + in(process) + "link set lo up");
  };
  return shell(in(near) + "link add veth0 type veth peer name veth0 netns " +
               std::to_string(far)) &&
         up(near, near_address) && up(far, far_address);
}

bool has_network_namespaces() {
  if (::geteuid() == 0 && shell("unshare --net true 2>/dev/null")) return true;
  WARN("skipped: no network namespaces here");
  return false;
}

/// Two processes of one host. The port is the first one's; the names are the second one's.
void two_servers(int control) {
  enter_new_host(control, near_address);
  forked holder{[](int up) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    listen_and_serve(up);
  }};
  holder.get<endpoint>();
  listen_and_reply(control);
}

/// Sends a request as it is to the port of the other host. True: it is closed without an answer.
bool is_closed_without_answer(const message& words) {
  unique_fd socket;
  connect_tcp(address_of(near_address), cm_port(tcp_port_default), socket);
  pollfd one{socket.get(), POLLOUT, 0};
  ::poll(&one, 1, -1);
  put(socket.get(), words);
  one.events = POLLIN;
  ::poll(&one, 1, -1);
  char byte = 0;
  return ::recv(socket.get(), &byte, 1, 0) <= 0;
}

void far_client(int control) {
  enter_new_host(control, far_address);
  side client;
  endpoint where;
  if (::recv(control, &where, sizeof where, MSG_WAITALL) != sizeof where) ::_exit(5);
  const auto asks = client.ask(where, far_address);
  put(control, run_until({&client}, [&] { return asks->has_heard(message_kind::reply); }));
  const in6_addr peer = asks->with->peer_host();
  const in6_addr expected = address_of(near_address);
  put(control, std::memcmp(&peer, &expected, sizeof peer) == 0);
  endpoint nobody = where;
  ++nobody.port;
  const auto refused = client.ask(nobody, far_address);
  put(control, run_until({&client}, [&] { return refused->ended == ECONNREFUSED; }));
  put(control, is_closed_without_answer(request_to(where, "10.98.0.9")));
  put(control, is_closed_without_answer(request_to(at("127.0.0.1", where.port), far_address)));
  // The server is killed now.
  put(control, run_until({&client}, [&] { return asks->ended.has_value(); }) ? *asks->ended : 0);
  const auto late = client.ask(where, far_address);
  put(control, run_until({&client}, [&] { return late->ended == ECONNREFUSED; }));
}

/// Begins as many conversations as a host may, and then one more.
void far_crowd(int control) {
  enter_new_host(control, far_address);
  side client;
  endpoint where;
  if (::recv(control, &where, sizeof where, MSG_WAITALL) != sizeof where) ::_exit(5);
  std::vector<std::unique_ptr<talker>> all;
  const auto hears = [&](message_kind kind) {
    all.push_back(client.ask(where, far_address));
    return run_until({&client}, [&] { return !all.back()->heard.empty(); }) &&
           all.back()->has_heard(kind);
  };
  bool served = true;
  for (std::uint32_t n = 0; n < conversations_per_host_max; ++n)
    served = served && hears(message_kind::reply);
  put(control, served);
  put(control, hears(message_kind::reject) && all.back()->heard.back().reason == 3);
  put(control, !all.front()->ended);
}

/// Two processes of a host, and one of another host. A cable connects the hosts.
struct two_hosts {
  explicit two_hosts(void (*client)(int)) : far{client} {
    const auto process = near.get<pid_t>();
    // The host stays when its processes are killed: their last words must leave it.
    const std::string host = "/proc/" + std::to_string(process) + "/ns/net";
    near_host.reset(::open(host.c_str(), O_RDONLY | O_CLOEXEC));
    REQUIRE(near_host);
    REQUIRE(connect_hosts(process, far.get<pid_t>()));
    near.go_on();
    auto where = near.get<endpoint>();
    where.address = address_of(near_address);
    far.go_on();
    far.put(where);
  }
  forked near{two_servers};
  forked far;
  unique_fd near_host;
};

}  // namespace

TEST_CASE("a request reaches another host, its holder of the port, and who has the name", "[cm]") {
  if (!has_network_namespaces()) return;
  two_hosts hosts{far_client};
  forked& far = hosts.far;
  CHECK(far.get<bool>());  // A reply came.
  CHECK(far.get<bool>());  // The reply came from the near host.
  CHECK(far.get<bool>());  // A name that nobody has is refused.
  CHECK(far.get<bool>());  // A request with another host's source gets no answer.
  CHECK(far.get<bool>());  // A request for a loopback address gets no answer.
  hosts.near.kill();
  CHECK(far.get<int>() == ECONNRESET);  // The client hears of the end of the server.
  CHECK(far.get<bool>());               // A late request is refused.
  CHECK(far.wait() == 0);
}

TEST_CASE("one host's conversations are bounded, and the next one is rejected", "[cm]") {
  if (!has_network_namespaces()) return;
  two_hosts hosts{far_crowd};
  CHECK(hosts.far.get<bool>());  // The listener has served the crowd.
  CHECK(hosts.far.get<bool>());  // The next one is told of too few resources.
  CHECK(hosts.far.get<bool>());  // The earlier ones go on.
  CHECK(hosts.far.wait() == 0);
}

}  // namespace softverbs::cm::test
