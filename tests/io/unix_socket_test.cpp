// Unix sockets, and the files that they are reached by.
#include "io/stream_socket.hpp"

#include "support/temporary_folder.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/io/executor.hpp>

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

using namespace cordma;

TEST_CASE("a Unix socket carries bytes, and its file goes when the listener is closed", "[io]") {
  const test::temporary_folder folder;
  const std::string path = (folder.path / "socket").string();
  cordma::executor executor;
  {
    stream_listener acceptor{executor, socket_address::unix_path(path)};
    auto [client, server] = executor.run(
        when_all(stream_socket::connect(executor, acceptor.local_address()), acceptor.accept()));
    REQUIRE(::send(client.fd(), "abc", 3, MSG_NOSIGNAL) == 3);
    std::array<char, 3> got{};
    CHECK(::recv(server.fd(), got.data(), got.size(), 0) == 3);
    CHECK(server.local_address().to_string() == "unix:" + path);
    CHECK(server.peer_address().to_string() == "unix:");
    server.keep_alive(std::chrono::seconds{1}, 3);  // Has no effect, and no error.
    CHECK(std::filesystem::exists(path));
  }
  CHECK_FALSE(std::filesystem::exists(path));
  const auto refused =
      executor.run(as_result(stream_socket::connect(executor, socket_address::unix_path(path))));
  REQUIRE(refused.has_failure());
  CHECK(refused.failure().to_string().find("no such socket") != std::string::npos);
}

TEST_CASE("a Unix socket's file that nobody listens at is replaced, one in use is not", "[io]") {
  const test::temporary_folder folder;
  const socket_address at = socket_address::unix_path((folder.path / "socket").string());
  cordma::executor executor;
  {
    const unique_fd dead{::socket(AF_UNIX, SOCK_STREAM, 0)};
    REQUIRE(::bind(dead.get(), at.data(), at.size_bytes()) == 0);
  }
  stream_listener acceptor{executor, at};
  CHECK_THROWS_WITH((stream_listener{executor, at}),
                    Catch::Contains("another process listens there"));
}

TEST_CASE("a file that is no Unix socket stays where a listener shall be", "[io]") {
  const test::temporary_folder folder;
  const std::filesystem::path file = folder.path / "precious";
  const socket_address at = socket_address::unix_path(file.string());
  cordma::executor executor;
  std::ofstream{file} << "precious";
  CHECK_THROWS_WITH((stream_listener{executor, at}), Catch::Contains("no socket lies there"));
  CHECK(std::filesystem::file_size(file) == 8);
  std::filesystem::rename(file, folder.path / "moved");
  std::filesystem::create_symlink("moved", file);
  CHECK_THROWS_WITH((stream_listener{executor, at}), Catch::Contains("no socket lies there"));
  CHECK(std::filesystem::is_symlink(file));
}

TEST_CASE("of two processes that take one path at the same moment, one is told to try again",
          "[io]") {
  const test::temporary_folder folder;
  const socket_address at = socket_address::unix_path((folder.path / "socket").string());
  const std::filesystem::path claim = folder.path / "socket.cordma";
  cordma::executor executor;
  {
    const unique_fd other{::open(claim.c_str(), O_RDWR | O_CREAT, S_IRUSR | S_IWUSR)};
    REQUIRE(::flock(other.get(), LOCK_EX) == 0);
    CHECK_THROWS_WITH((stream_listener{executor, at}), Catch::Contains("at this moment"));
    CHECK(std::filesystem::exists(claim));
  }
  stream_listener acceptor{executor, at};  // The process with the claim has ended.
  CHECK_FALSE(std::filesystem::exists(claim));
}

TEST_CASE("a listener that is closed leaves another one's file at its path alone", "[io]") {
  const test::temporary_folder folder;
  const std::filesystem::path file = folder.path / "socket";
  const socket_address at = socket_address::unix_path(file.string());
  cordma::executor executor;
  stream_listener first{executor, at};
  REQUIRE(std::filesystem::remove(file));
  stream_listener second{executor, at};
  first.close();
  CHECK(std::filesystem::exists(file));
  second.close();
  CHECK_FALSE(std::filesystem::exists(file));
}

TEST_CASE("clients of a Unix socket wait for room in its backlog", "[io]") {
  cordma::executor executor;
  stream_listener acceptor{
      executor, socket_address::unix_path("@cordma-backlog-" + std::to_string(::getpid())), 1};
  int connected = 0;
  const auto connect_one = [&]() -> task<> {
    stream_socket made = co_await stream_socket::connect(executor, acceptor.local_address());
    connected += made.fd() >= 0 ? 1 : 0;
  };
  const auto take_all = [&]() -> task<> {
    for (int n = 0; n < 4; ++n) static_cast<void>(co_await as_result(acceptor.accept()));
  };
  executor.run(when_all(connect_one(), connect_one(), connect_one(), connect_one(), take_all()));
  CHECK(connected == 4);
}
