#include "connection/shake_hands.hpp"

#include "support/connected_pair.hpp"
#include "support/leaks.hpp"
#include "support/peer_process.hpp"
#include "support/raw_peer.hpp"
#include "support/some_hello.hpp"
#include "support/temporary_folder.hpp"
#include "support/until.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/security/credentials.hpp>

#include <catch2/catch.hpp>

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace cordma;

TEST_CASE("a stream of the program's own becomes a connection, on both sides",
          "[connection][device]") {
  runtime rt{test::on_test_device()};
  std::array<int, 2> fds{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) == 0);
  auto [client, server] =
      rt.run(when_all(rt.connect(unique_fd{fds[0]}), rt.accept(unique_fd{fds[1]})));
  local_mr memory = rt.memory().allocate_zeroed(16);
  const auto [m, sent] =
      rt.run(when_all(server.recv(memory.slice(0, 8)), client.send(memory.slice(8, 8))));
  CHECK(m.size_bytes == sent);
  CHECK(client.peer().to_string() == "unix:");
  rt.run(when_all(client.close(), server.close()));
  CHECK(server.was_closed_by_peer());
}

TEST_CASE("a descriptor that is no socket is an error that says so", "[connection][device]") {
  runtime rt{test::on_test_device()};
  std::array<int, 2> fds{};
  REQUIRE(::pipe(fds.data()) == 0);
  const unique_fd other_end{fds[1]};
  CHECK_THROWS_WITH(rt.run(rt.connect(unique_fd{fds[0]})), Catch::Contains("non-socket"));
}

TEST_CASE("a listener on a Unix socket serves, and says where it is", "[connection][device]") {
  const test::temporary_folder folder;
  runtime rt{test::on_test_device()};
  const endpoint where{"unix:" + (folder.path / "socket").string()};
  listener acceptor = rt.listen(where);
  CHECK(acceptor.local_endpoint() == where);
  auto [client, server] = rt.run(when_all(rt.connect(where), acceptor.accept()));
  CHECK(client.is_open());
  CHECK(client.peer().to_string() == where.to_string());
  rt.run(when_all(client.close(), server.close()));
  CHECK_FALSE(client.is_open());
}

TEST_CASE("a client whose start does not fit is told why, and the next is served",
          "[connection][device][N2]") {
  test::connected_pair p;
  handshake::start start{.nonce = handshake::random_nonce()};
  handshake::hello hello = p.client.local_hello();
  hello.nonce = start.nonce;
  const char* says = "";
  SECTION("another mode of authentication") {
    start.mode = 2;
    says = "no authentication here, certificates there";
  }
  SECTION("a hello of another start") {
    hello.nonce = handshake::random_nonce();
    says = "the hello is not that of the start";
  }
  const auto speak = [&]() -> task<failure> {
    test::raw_peer peer = co_await stream_socket::connect(
        p.rt.executor(), socket_address::loopback(p.acceptor.local_endpoint().port));
    co_await test::say(peer, handshake::encode(start));
    co_await test::say(peer, handshake::encode(hello));
    const auto heard = co_await as_result(bootstrap::read_hello(peer));
    co_return heard.has_failure() ? heard.failure() : failure{};
  };
  CHECK_THAT(p.rt.run(speak()).to_string(), Catch::Contains(says));
  p.rt.run(p.open({}));
  CHECK(p.client.is_open());
}

namespace {

/// The bytes of a client's whole handshake, and what the listener says to them.
struct recording {
  handshake::start start{.nonce = handshake::random_nonce()};
  handshake::hello hello;
  std::optional<handshake::nonce> accepts{};  ///< The listener's, once it was accepted.

  task<result<void>> play(test::connected_pair& p) {
    test::raw_peer peer = co_await stream_socket::connect(
        p.rt.executor(), socket_address::loopback(p.acceptor.local_endpoint().port));
    hello.nonce = start.nonce;
    co_await test::say(peer, handshake::encode(start));
    co_await test::say(peer, handshake::encode(hello));
    const handshake::hello theirs = co_await bootstrap::read_hello(peer);
    if (!accepts) accepts = theirs.nonce;
    co_await test::say_accepted(peer, *accepts);
    co_return co_await as_result(bootstrap::read_acceptance(peer, hello.nonce));
  }
};

}  // namespace

TEST_CASE("a whole handshake that was recorded is refused when it is said again",
          "[connection][device][N2]") {
  test::connected_pair p;
  recording recorded{.hello = p.client.local_hello()};
  CHECK(p.rt.run(recorded.play(p)).has_value());
  const connection first = p.rt.run(p.acceptor.accept());
  const result<void> again = p.rt.run(recorded.play(p));
  REQUIRE(again.has_failure());
  CHECK(again.failure().code == make_error_code(errc::bad_handshake));
  CHECK_THAT(again.failure().to_string(), Catch::Contains("it is of another handshake"));
  CHECK(p.acceptor.counters().rejected == 1);
  p.rt.run(p.open({}));
  CHECK(p.client.is_open());
}

TEST_CASE("a listener that accepts another client's hello gives no connection",
          "[connection][device][N2]") {
  test::connected_pair p;
  stream_listener acceptor{p.rt.executor(), socket_address::loopback(0)};
  handshake::hello hello = p.server.local_hello();
  const auto answer = [&]() -> task<> {
    test::raw_peer peer{co_await acceptor.accept()};
    static_cast<void>(co_await test::read_greeting(peer));
    co_await test::say(peer, handshake::encode(hello));
    co_await bootstrap::read_acceptance(peer, hello.nonce);
    co_await test::say_accepted(peer, handshake::random_nonce());
  };
  const endpoint where{"127.0.0.1", acceptor.local_address().port()};
  const auto [said, made] = p.rt.run(when_all(answer(), as_result(p.rt.connect(where))));
  REQUIRE(made.has_failure());
  CHECK(made.failure().code == make_error_code(errc::bad_handshake));
}

TEST_CASE("a listener that names another host's GID is refused, and told",
          "[connection][device][N2]") {
  test::connected_pair p;
  if (p.server.local_hello().layer != handshake::link_layer::ethernet) return;
  stream_listener acceptor{p.rt.executor(), socket_address::loopback(0)};
  handshake::hello hello = p.server.local_hello();
  hello.gid.raw[15] ^= 0x55;
  const auto answer = [&]() -> task<failure> {
    test::raw_peer peer{co_await acceptor.accept()};
    static_cast<void>(co_await test::read_greeting(peer));
    co_await test::say(peer, handshake::encode(hello));
    const auto heard = co_await as_result(bootstrap::read_acceptance(peer, hello.nonce));
    co_return heard.has_failure() ? heard.failure() : failure{};
  };
  const endpoint where{"127.0.0.1", acceptor.local_address().port()};
  const auto [told, made] = p.rt.run(when_all(answer(), as_result(p.rt.connect(where))));
  REQUIRE(made.has_failure());
  CHECK(made.failure().code == make_error_code(errc::refused));
  CHECK(told.code == make_error_code(errc::refused));
  for (const failure* one : {&made.failure(), &told})
    CHECK_THAT(one->to_string(), Catch::Contains("names the GID"));
}

namespace {

credentials::psk_key key_of(const std::string& id, unsigned char fill = 7) {
  return {id, std::vector(32, std::byte{fill})};
}

/// The outcome of both sides when the client shows `client` and the listener asks for `server`.
/// Null is none.
struct outcome {
  result<connection> client;
  std::optional<failure> rejection;
  std::string admitted;
};

outcome connect_with(runtime& rt, const credentials* client, const credentials* server) {
  std::string admitted;
  const auto admit = [&](connection_request& r) { admitted = r.peer_identity.name; };
  listener acceptor = rt.listen({}, {.admit = admit}, {.credentials = server});
  outcome got{failure{}, {}, {}};
  const auto both = [&]() -> task<> {
    got.client = co_await as_result(rt.connect(acceptor.local_endpoint(), {.credentials = client}));
    if (got.client.has_value()) co_await acceptor.accept();
  };
  rt.run(both());
  got.rejection = acceptor.last_rejection();
  got.admitted = admitted;
  return got;
}

}  // namespace

TEST_CASE("two sides with one key get a connection, and know each other by it",
          "[connection][device]") {
  runtime rt{test::on_test_device()};
  const credentials key = credentials::psk(key_of("db-1"));
  listener acceptor = rt.listen({}, {}, {.credentials = &key});
  auto [client, server] = rt.run(
      when_all(rt.connect(acceptor.local_endpoint(), {.credentials = &key}), acceptor.accept()));
  CHECK(client.peer_identity().kind == authentication::psk);
  CHECK(server.peer_identity().name == "db-1");
  local_mr memory = rt.memory().allocate_zeroed(16);
  const auto [m, sent] =
      rt.run(when_all(server.recv(memory.slice(0, 8)), client.send(memory.slice(8, 8))));
  CHECK(m.size_bytes == sent);
  rt.run(when_all(client.close(), server.close()));
  CHECK(server.was_closed_by_peer());
}

TEST_CASE("a key may be replaced without a pause: a listener takes two", "[connection][device]") {
  runtime rt{test::on_test_device()};
  const credentials both = credentials::psk(key_of("new", 1), key_of("old", 2));
  for (const auto& [id, fill] : {std::pair{"new", 1}, std::pair{"old", 2}}) {
    const credentials one = credentials::psk(key_of(id, static_cast<unsigned char>(fill)));
    const outcome got = connect_with(rt, &one, &both);
    CHECK(got.client.has_value());
    CHECK(got.admitted == id);
  }
}

TEST_CASE("a peer whose key does not fit is told only that, and this side says why",
          "[connection][device][N2]") {
  test::connected_pair p;  // Makes what a runtime makes once.
  runtime& rt = p.rt;
  const std::string before = test::holdings();
  const credentials right = credentials::psk(key_of("db-1", 1));
  const credentials wrong_secret = credentials::psk(key_of("db-1", 2));
  const credentials wrong_id = credentials::psk(key_of("db-2", 1));
  std::string told[2];
  std::size_t n = 0;
  for (const credentials* wrong : {&wrong_secret, &wrong_id}) {
    const outcome got = connect_with(rt, wrong, &right);
    REQUIRE(got.client.has_failure());
    CHECK(got.client.failure().code == make_error_code(errc::not_authenticated));
    told[n++] = std::string{got.client.failure().detail.view()};
    REQUIRE(got.rejection);
    CHECK(got.rejection->code == make_error_code(errc::not_authenticated));
    CHECK(got.admitted.empty());
  }
  CHECK_THAT(told[0], Catch::EndsWith("the peer says: your key or certificate does not fit"));
  CHECK(told[0].substr(told[0].find("the peer")) == told[1].substr(told[1].find("the peer")));
  CHECK(test::settled_holdings(rt.executor(), before) == before);
}

TEST_CASE("sides of different modes are refused, and both are named", "[connection][device][N2]") {
  runtime rt{test::on_test_device()};
  const credentials key = credentials::psk(key_of("db-1"));
  for (const bool client_has_key : {true, false}) {
    const outcome got =
        connect_with(rt, client_has_key ? &key : nullptr, client_has_key ? nullptr : &key);
    REQUIRE(got.client.has_failure());
    CHECK(got.client.failure().code == make_error_code(errc::incompatible_peer));
    for (const char* mode : {"no authentication", "a pre-shared key"}) {
      CHECK_THAT(got.client.failure().to_string(), Catch::Contains(mode));
      CHECK_THAT(got.rejection->to_string(), Catch::Contains(mode));
    }
  }
}

TEST_CASE("a listener that strangers reach has credentials, or says that it is insecure",
          "[connection][device]") {
  runtime rt{test::on_test_device()};
  CHECK_THROWS_WITH(rt.listen({"0.0.0.0", 0}), Catch::Contains("insecure to take everybody"));
  CHECK_NOTHROW(rt.listen({"0.0.0.0", 0}, {}, {.insecure = true}));
  const credentials key = credentials::psk(key_of("db-1"));
  CHECK_NOTHROW(rt.listen({"0.0.0.0", 0}, {}, {.credentials = &key}));
}

TEST_CASE("credentials need an agent, which binds the queue pairs to them",
          "[connection][device]") {
  runtime rt{test::on_test_device()};
  const credentials key = credentials::psk(key_of("db-1"));
  CHECK_THROWS_WITH(rt.listen({}, {}, {.agent = {{.enabled = false}}, .credentials = &key}),
                    Catch::Contains("credentials without an agent"));
}

namespace {

task<std::string> until_rejected(listener& acceptor) {
  co_await test::until(acceptor.executor(), [&] { return acceptor.last_rejection().has_value(); });
  co_return acceptor.last_rejection()->to_string();
}

}  // namespace

TEST_CASE("the process at the other end of a Unix socket's path is known", "[connection][device]") {
  const test::temporary_folder folder;
  const endpoint here{"unix:" + (folder.path / "here").string()};
  const endpoint there{"unix:" + (folder.path / "there").string()};
  test::peer_process peer{
      [&](runtime& rt, std::uint16_t, const test::peer_process::port_teller& tell) -> task<> {
        listener acceptor = rt.listen(there);
        tell(0);
        connection from_here = co_await acceptor.accept();
        connection to_here = co_await rt.connect(here);
        static_cast<void>(co_await as_result(to_here.next_message()));
      }};
  runtime rt{test::on_test_device()};
  identity admitted;
  listener acceptor = rt.listen(
      here, {.admit = [&](connection_request& request) { admitted = request.peer_identity; }});
  peer.start(0);
  peer.told_port();
  connection client = rt.run(rt.connect(there));
  connection server = rt.run(acceptor.accept());
  for (const identity* user :
       {&client.peer_identity(), &server.peer_identity(), &std::as_const(admitted)}) {
    CHECK(user->kind == authentication::unix_credentials);
    CHECK(user->name == "uid " + std::to_string(::geteuid()));
    CHECK(user->uid == ::geteuid());
    CHECK(user->pid == std::uint32_t(peer.pid()));
    CHECK(user->pid != std::uint32_t(::getpid()));
  }
}

TEST_CASE("the user at the other end of a Unix socket's path is known", "[connection][device]") {
  const test::temporary_folder folder;
  const std::string path = (folder.path / "socket").string();
  // Root may become somebody else; the kernel has a user for each thread.
  const uid_t nobody = ::geteuid() == 0 ? 65534 : ::geteuid();
  identity admitted;
  const auto admit = [&](connection_request& request) {
    admitted = request.peer_identity;
    request.refuse("seen");
  };
  runtime rt{test::on_test_device()};
  listener acceptor = rt.listen({"unix:" + path}, {.admit = admit});
  std::filesystem::permissions(folder.path, std::filesystem::perms::all);
  std::filesystem::permissions(path, std::filesystem::perms::all);
  std::thread client{[&] {
    const handshake::start start{.nonce = handshake::random_nonce()};
    handshake::hello hello = test::some_hello(2);
    hello.nonce = start.nonce;
    const auto first = handshake::encode(start);
    const auto second = handshake::encode(hello);
    const socket_address where = socket_address::unix_path(path);
    const unique_fd fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    static_cast<void>(::syscall(SYS_setresuid, -1, nobody, -1));
    if (::connect(fd.get(), where.data(), where.size_bytes()) != 0) return;
    static_cast<void>(::send(fd.get(), first.data(), first.size(), MSG_NOSIGNAL));
    static_cast<void>(::send(fd.get(), second.data(), second.size(), MSG_NOSIGNAL));
    std::array<std::byte, 512> told{};
    while (::recv(fd.get(), told.data(), told.size(), 0) > 0) {
    }
  }};
  CHECK_THAT(rt.run(until_rejected(acceptor)), Catch::Contains("seen"));
  client.join();
  CHECK(admitted.kind == authentication::unix_credentials);
  CHECK(admitted.uid == nobody);
  CHECK(admitted.pid == std::uint32_t(::getpid()));
}

TEST_CASE("a socketpair tells nothing of who has its other end: it names who made it",
          "[connection][device]") {
  runtime rt{test::on_test_device()};
  std::array<int, 2> fds{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) == 0);
  identity admitted{authentication::psk, "nobody has asked"};
  const auto admit = [&](connection_request& request) { admitted = request.peer_identity; };
  auto [client, server] =
      rt.run(when_all(rt.connect(unique_fd{fds[0]}), rt.accept(unique_fd{fds[1]}, admit)));
  for (const identity* user :
       {&client.peer_identity(), &server.peer_identity(), &std::as_const(admitted)}) {
    CHECK(user->kind == authentication::none);
    CHECK(user->name.empty());
    CHECK(user->uid == 0);
    CHECK(user->pid == 0);
  }
}

TEST_CASE("a Unix socket that the program accepted by itself tells nothing of its peer",
          "[connection][device]") {
  const test::temporary_folder folder;
  const socket_address where = socket_address::unix_path((folder.path / "own").string());
  const unique_fd waiting{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  unique_fd dialled{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  REQUIRE(::bind(waiting.get(), where.data(), where.size_bytes()) == 0);
  REQUIRE(::listen(waiting.get(), 1) == 0);
  REQUIRE(::connect(dialled.get(), where.data(), where.size_bytes()) == 0);
  runtime rt{test::on_test_device()};
  auto [client, server] = rt.run(
      when_all(rt.connect(std::move(dialled)),
               rt.accept(unique_fd{::accept4(waiting.get(), nullptr, nullptr, SOCK_CLOEXEC)})));
  CHECK(client.peer_identity().kind == authentication::none);
  CHECK(server.peer_identity().kind == authentication::none);
}

TEST_CASE("who accepts a stream of its own may refuse with a reason", "[connection][device][N2]") {
  runtime rt{test::on_test_device()};
  std::array<int, 2> fds{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) == 0);
  const auto admit = [](connection_request& request) { request.refuse("that shard is elsewhere"); };
  const auto [client, server] = rt.run(when_all(as_result(rt.connect(unique_fd{fds[0]})),
                                                as_result(rt.accept(unique_fd{fds[1]}, admit))));
  REQUIRE(client.has_failure());
  REQUIRE(server.has_failure());
  CHECK(client.failure().code == make_error_code(errc::refused));
  CHECK(server.failure().code == make_error_code(errc::refused));
  CHECK_THAT(client.failure().to_string(),
             Catch::EndsWith("the peer says: that shard is elsewhere"));
  CHECK_THAT(server.failure().to_string(), Catch::EndsWith("that shard is elsewhere"));
}

TEST_CASE("a peer that names another host's GID is refused, unless that is allowed",
          "[connection][device][N2]") {
  test::connected_pair p;
  if (p.client.local_hello().layer != handshake::link_layer::ethernet) return;
  handshake::hello hello = p.client.local_hello();
  hello.gid.raw[15] ^= 0x55;
  const auto speak = [&]() -> task<failure> {
    test::raw_peer peer = co_await stream_socket::connect(
        p.rt.executor(), socket_address::loopback(p.acceptor.local_endpoint().port));
    co_await test::greet(peer, hello);
    const auto heard = co_await as_result(bootstrap::read_hello(peer));
    co_return heard.has_failure() ? heard.failure() : failure{};
  };
  const failure told = p.rt.run(speak());
  CHECK(told.code == make_error_code(errc::refused));
  CHECK_THAT(told.to_string(), Catch::Contains("set allow_foreign_gid"));
}

TEST_CASE("a foreign GID that is allowed is looked for, and the executor does not wait",
          "[connection][device]") {
  runtime rt{test::on_test_device()};
  if (!rt.context().active_port().is_ethernet()) return;
  connection_options options;
  options.allow_foreign_gid = true;
  test::connected_pair p;
  handshake::hello hello = p.client.local_hello();
  hello.gid.raw[15] ^= 0x55;
  listener acceptor = rt.listen({}, {}, options);
  const auto speak = [&]() -> task<failure> {
    test::raw_peer peer = co_await stream_socket::connect(
        rt.executor(), socket_address::loopback(acceptor.local_endpoint().port));
    co_await test::greet(peer, hello);
    const auto heard = co_await as_result(bootstrap::read_hello(peer));
    co_return heard.has_failure() ? heard.failure() : failure{};
  };
  // Whether somebody has the address is the network's affair: it is no refusal of the address.
  CHECK_THAT(rt.run(speak()).to_string(), !Catch::Contains("allow_foreign_gid"));
}
