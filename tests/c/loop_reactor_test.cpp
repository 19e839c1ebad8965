#include "c/c_pair.hpp"

#include <support/allocations.hpp>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

using namespace cordma::test;

namespace {

/// A program's loop: waits for the descriptor alone, and dispatches.
class program_loop {
 public:
  explicit program_loop(cordma_context of) : context_{of} {
    CHECK_OK(cordma_descriptor(of, &descriptor_));
  }
  /// Runs until `is_over()`. A wake-up that is lost makes it fail.
  template <class F>
  bool run_until(F is_over) {
    constexpr int limit_ms = 60'000;
    while (!is_over()) {
      pollfd one{.fd = descriptor_, .events = POLLIN, .revents = 0};
      if (::poll(&one, 1, limit_ms) != 1) return false;
      if (cordma_dispatch(context_) != CORDMA_OK) return false;
    }
    return true;
  }
  [[nodiscard]] bool is_readable() const {
    pollfd one{.fd = descriptor_, .events = POLLIN, .revents = 0};
    return ::poll(&one, 1, 0) == 1;
  }
  /// Dispatches until nothing is left.
  void settle() {
    while (is_readable()) CHECK_OK(cordma_dispatch(context_));
  }

 private:
  cordma_context context_;
  int descriptor_ = -1;
};

struct pong {
  int received = 0;
  int completed = 0;
  int failed = 0;
};

void on_message(cordma_connection, const void*, const cordma_message*, void* user) {
  ++static_cast<pong*>(user)->received;
}
void on_failure(cordma_connection, int, void* user) { ++static_cast<pong*>(user)->failed; }
void on_completion(cordma_connection, int status, std::uint64_t, void* user) {
  if (status == CORDMA_OK) ++static_cast<pong*>(user)->completed;
}

}  // namespace

TEST_CASE("a program's loop runs everything by one descriptor", "[c][device]") {
  const c_server server;
  const c_context context{CORDMA_DESCRIPTOR};
  program_loop loop{context};
  cordma_connection here = nullptr;
  CHECK_OK(cordma_start_connect(
      context, server.address.c_str(), long_us,
      [](cordma_connection made, int, void* user) {
        *static_cast<cordma_connection*>(user) = made;
      },
      &here));
  REQUIRE(loop.run_until([&] { return here != nullptr; }));
  cordma_connection there = server.accept();
  pong seen;
  CHECK_OK(cordma_set_receive_callback(here, &on_message, &on_failure, &seen));
  const c_memory theirs{server.context, 64};
  const c_memory mine{context, 64};
  for (int i = 1; i <= 20; ++i) {
    CHECK_OK(cordma_send(there, theirs, 0, 8, long_us));
    REQUIRE(loop.run_until([&] { return seen.received == i; }));
    cordma_work work{};
    work.kind = CORDMA_SEND;
    work.memory = mine;
    work.bytes = 8;
    CHECK_OK(cordma_post(here, &work, long_us, &on_completion, &seen));
    REQUIRE(loop.run_until([&] { return seen.completed == i; }));
  }
  CHECK_OK(cordma_disconnect(there, long_us));
  REQUIRE(loop.run_until([&] { return seen.failed == 1; }));
}

TEST_CASE("after a blocking call the descriptor still tells of what comes", "[c][device]") {
  const c_pair both{on_device(CORDMA_DESCRIPTOR)};
  program_loop loop{both.client};
  const c_memory mine{both.client, 64}, theirs{both.server.context, 64};
  pong seen;
  CHECK_OK(cordma_set_receive_callback(both.here, &on_message, &on_failure, &seen));
  loop.settle();
  for (int i = 1; i <= 10; ++i) {
    CHECK_OK(cordma_send(both.here, mine, 0, 8, long_us));
    // The answer comes from the peer's thread: the call sleeps, and takes the device's event.
    cordma_remote none = nullptr;
    CHECK(cordma_request(both.here, 64, 1'000'000, long_us, &none) == CORDMA_ACCESS_DENIED);
    CHECK_OK(cordma_send(both.there, theirs, 0, 8, long_us));
    REQUIRE(loop.run_until([&] { return seen.received == i; }));
  }
}

TEST_CASE("deadlines pass in a program's loop", "[c][device]") {
  const c_context context{CORDMA_DESCRIPTOR};
  program_loop loop{context};
  const c_server silent;
  CHECK_OK(cordma_close(silent.listener));
  int status = -1;
  // A listener's backlog answers, and nobody else.
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(::listen(fd, 1) == 0);
  socklen_t length = sizeof address;
  REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  const std::string name = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  CHECK_OK(cordma_start_connect(
      context, name.c_str(), 20'000,
      [](cordma_connection, int how, void* user) { *static_cast<int*>(user) = how; }, &status));
  CHECK(loop.run_until([&] { return status != -1; }));
  CHECK(status == CORDMA_TIMED_OUT);
  ::close(fd);
}

TEST_CASE("the deadline of a posted request makes the descriptor readable", "[c][device]") {
  cordma_options few = on_device(CORDMA_THREAD);
  few.receives = 1;
  const c_pair both{on_device(CORDMA_DESCRIPTOR), few};
  program_loop loop{both.client};
  const c_memory mine{both.client, 64};
  CHECK_OK(cordma_send(both.here, mine, 0, 8, long_us));
  loop.settle();
  cordma_work work{};
  work.kind = CORDMA_SEND;
  work.memory = mine;
  work.bytes = 8;
  int status = -1;
  // The peer has no receive left, so that the device has nothing to tell.
  CHECK_OK(cordma_post(
      both.here, &work, 1000,
      [](cordma_connection, int how, std::uint64_t, void* user) { *static_cast<int*>(user) = how; },
      &status));
  CHECK(loop.is_readable());
  REQUIRE(loop.run_until([&] { return status != -1; }));
  CHECK(status == CORDMA_TIMED_OUT);
}

TEST_CASE("an idle context leaves its descriptor quiet", "[c][device]") {
  const c_pair both{on_device(CORDMA_DESCRIPTOR)};
  program_loop loop{both.client};
  loop.settle();
  CHECK_FALSE(loop.is_readable());
}

TEST_CASE("a dispatch is for a context with a descriptor, and not in a callback", "[c][device]") {
  const c_context none{CORDMA_CALLS};
  int descriptor = 0;
  CHECK(cordma_descriptor(none, &descriptor) == CORDMA_WRONG_STATE);
  CHECK(descriptor == -1);
  CHECK(cordma_dispatch(none) == CORDMA_WRONG_STATE);
  const c_context context{CORDMA_DESCRIPTOR};
  program_loop loop{context};
  struct state {
    cordma_context context;
    int dispatched = -1;
    int released = -1;
  } nested{context};
  CHECK_OK(cordma_start_connect(
      context, "unix:@cordma-c-nobody", long_us,
      [](cordma_connection, int, void* user) {
        auto& self = *static_cast<state*>(user);
        self.dispatched = cordma_dispatch(self.context);
        self.released = cordma_release(self.context, long_us);
      },
      &nested));
  CHECK(loop.run_until([&] { return nested.dispatched != -1; }));
  CHECK(nested.dispatched == CORDMA_IN_CALLBACK);
  CHECK(nested.released == CORDMA_IN_CALLBACK);
}
