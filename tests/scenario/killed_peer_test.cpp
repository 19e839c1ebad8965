// A peer's process that is killed, by each way that has a socket and with each proof.
#include "scenario/proofs.hpp"
#include "support/peer_process.hpp"
#include "support/temporary_folder.hpp"

#include <catch2/catch.hpp>

#include <sys/socket.h>

#include <array>
#include <memory>
#include <string>
#include <utility>

using namespace cordma;

namespace {

enum class method : unsigned char { tcp, unix_socket, stream };

connection_options with(const credentials* used, verbs::queue_pair_type transport) {
  connection_options options = test::deaf();
  options.credentials = used;
  options.transport = transport;
  return options;
}

/// Waits for the end of a connection to a peer that is killed; checks that the socket told of it.
void check_that_death_is_noticed(runtime& rt, connection& conn, test::peer_process& peer) {
  CHECK(conn.is_open());
  peer.kill();
  const auto ended = rt.run(as_result(conn.next_message()));
  REQUIRE(ended.has_failure());
  CHECK(ended.failure().code == make_error_code(errc::disconnected));
  REQUIRE(conn.why_lost());
  CHECK(conn.why_lost()->call == std::string{"hang_up"});
  CHECK_FALSE(conn.was_closed_by_peer());
}

}  // namespace

TEST_CASE(
    "a peer's process that is killed has not closed its connection, whatever its proof and "
    "transport",
    "[scenario][device][C8]") {
  const method by = GENERATE(method::tcp, method::unix_socket, method::stream);
  const authentication proof =
      GENERATE(authentication::none, authentication::psk, authentication::certificate);
  const verbs::queue_pair_type transport =
      GENERATE(verbs::queue_pair_type::rc, verbs::queue_pair_type::uc);
  CAPTURE(int(by), int(proof), int(transport));
  const test::temporary_folder folder;
  const test::proofs proofs;
  std::array<int, 2> fds{-1, -1};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) == 0);
  std::array<unique_fd, 2> stream{unique_fd{fds[0]}, unique_fd{fds[1]}};
  const std::string path = "unix:" + (folder.path / "socket").string();
  test::peer_process peer{[&](runtime& rt, std::uint16_t port,
                              const test::peer_process::port_teller&) -> task<> {
    const connection_options options = with(proofs.of_client(proof, by == method::tcp), transport);
    stream[1].reset();
    connection conn;
    if (by == method::stream) {
      conn = co_await rt.connect(std::move(stream[0]), options);
    } else {
      const endpoint where = by == method::tcp ? endpoint{"127.0.0.1", port} : endpoint{path};
      conn = co_await rt.connect(where, options);
    }
    static_cast<void>(co_await conn.next_message());
  }};
  stream[0].reset();
  runtime rt{test::on_test_device()};
  const connection_options options = with(proofs.of_server(proof), transport);
  if (by == method::stream) {
    peer.start(0);
    connection conn = rt.run(rt.accept(std::move(stream[1]), {}, options));
    return check_that_death_is_noticed(rt, conn, peer);
  }
  listener acceptor = rt.listen(by == method::tcp ? endpoint{} : endpoint{path}, {}, options);
  peer.start(acceptor.local_endpoint().port);
  connection conn = rt.run(acceptor.accept());
  check_that_death_is_noticed(rt, conn, peer);
}
