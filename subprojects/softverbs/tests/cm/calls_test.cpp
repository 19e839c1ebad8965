#include "cm/calls.hpp"

#include "cm/address.hpp"
#include "fixture.hpp"
#include "link/unique_fd.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <optional>
#include <thread>

// The calls of libsoftverbs_cm.so, with the real transport and the node's engine.

using namespace softverbs;
using namespace softverbs::cm;
using namespace softverbs::cm::test;

namespace {

constexpr std::uint64_t user_one = 1;
constexpr std::uint64_t user_two = 2;

std::map<int, softverbs_cm_channel*> open_channels;

softverbs_cm_channel* channel_of(int fd) {
  const auto found = open_channels.find(fd);
  return found == open_channels.end() ? nullptr : found->second;
}

/// A file that is opened as libsoftverbs_cm.so opens it.
class open_file {
 public:
  open_file() : fd_{::eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC)} {
    channel_ = softverbs_cm_open(fd_.get());
    REQUIRE(channel_ != nullptr);
    open_channels[fd_.get()] = channel_;
  }
  ~open_file() {
    open_channels.erase(fd_.get());
    softverbs_cm_close(channel_);
  }
  [[nodiscard]] int fd() const { return fd_.get(); }

  /// Returns 0, or errno.
  template <class Command>
  int write(std::uint32_t number, const Command& command, std::size_t out_bytes = 0) {
    struct {
      rdma_ucm_cmd_hdr header;
      Command body;
    } whole{{number, sizeof command, static_cast<std::uint16_t>(out_bytes)}, command};
    static_assert(offsetof(decltype(whole), body) == sizeof(rdma_ucm_cmd_hdr));
    const ssize_t done = softverbs_cm_write(channel_, &whole, sizeof whole, &channel_of);
    if (done < 0) return errno;
    CHECK(done == sizeof whole);
    return 0;
  }
  std::uint32_t create(std::uint64_t user) {
    rdma_ucm_create_id_resp answer{};
    rdma_ucm_create_id command{};
    command.uid = user;
    command.response = reinterpret_cast<std::uintptr_t>(&answer);
    command.ps = RDMA_PS_TCP;
    REQUIRE(write(RDMA_USER_CM_CMD_CREATE_ID, command, sizeof answer) == 0);
    return answer.id;
  }
  int destroy(std::uint32_t id) {
    rdma_ucm_destroy_id_resp answer{};
    const rdma_ucm_destroy_id command{reinterpret_cast<std::uintptr_t>(&answer), id, 0};
    return write(RDMA_USER_CM_CMD_DESTROY_ID, command, sizeof answer);
  }
  int bind(std::uint32_t id, const address& at) {
    rdma_ucm_bind command{};
    command.id = id;
    command.addr_size = static_cast<std::uint16_t>(at.bytes());
    std::memcpy(&command.addr, &at.raw(), at.bytes());
    return write(RDMA_USER_CM_CMD_BIND, command);
  }
  std::uint16_t port(std::uint32_t id) {
    rdma_ucm_query_addr_resp answer{};
    const rdma_ucm_query command{reinterpret_cast<std::uintptr_t>(&answer), id,
                                 RDMA_USER_CM_QUERY_ADDR};
    REQUIRE(write(RDMA_USER_CM_CMD_QUERY, command, sizeof answer) == 0);
    return address{&answer.src_addr, sizeof answer.src_addr}.port();
  }
  int resolve(std::uint32_t id, const address& to) {
    rdma_ucm_resolve_addr command{};
    command.id = id;
    command.timeout_ms = 1000;
    command.dst_size = static_cast<std::uint16_t>(to.bytes());
    std::memcpy(&command.dst_addr, &to.raw(), to.bytes());
    return write(RDMA_USER_CM_CMD_RESOLVE_ADDR, command);
  }
  /// Blocks, unless the descriptor is nonblocking.
  int read_event(rdma_ucm_event_resp& to) {
    const rdma_ucm_get_event command{reinterpret_cast<std::uintptr_t>(&to)};
    return write(RDMA_USER_CM_CMD_GET_EVENT, command, sizeof to);
  }
  rdma_ucm_event_resp take(event_kind kind) {
    rdma_ucm_event_resp found{};
    REQUIRE(read_event(found) == 0);
    CHECK(static_cast<event_kind>(found.event) == kind);
    return found;
  }
  void make_nonblocking() {
    REQUIRE(::fcntl(fd(), F_SETFL, ::fcntl(fd(), F_GETFL) | O_NONBLOCK) == 0);
  }
  [[nodiscard]] softverbs_cm_channel* raw() const { return channel_; }

 private:
  unique_fd fd_;
  softverbs_cm_channel* channel_;
};

/// Sends a request to the listener's port, and returns the requester's identifier.
std::uint32_t request(open_file& from, std::uint16_t port) {
  const std::uint32_t id = from.create(user_two);
  REQUIRE(from.resolve(id, v4("127.0.0.1", port)) == 0);
  from.take(event_kind::address_resolved);
  REQUIRE(from.write(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 1000}) == 0);
  from.take(event_kind::route_resolved);
  rdma_ucm_connect command{};
  command.id = id;
  command.conn_param = parameters(5, "hello");
  REQUIRE(from.write(RDMA_USER_CM_CMD_CONNECT, command) == 0);
  return id;
}

std::uint16_t listen(open_file& at, std::uint32_t id) {
  REQUIRE(at.bind(id, v4("127.0.0.1")) == 0);
  REQUIRE(at.write(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, 8}) == 0);
  return at.port(id);
}

/// Runs `body` in a forked child; true if it returned true.
template <class Body>
bool in_child(Body&& body) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(body() ? 0 : 1);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

TEST_CASE("a header that is short or promises too much is refused", "[cm]") {
  const open_file in;
  const auto write = [&](const void* bytes, std::size_t count) {
    return softverbs_cm_write(in.raw(), bytes, count, &channel_of) < 0 ? errno : 0;
  };
  rdma_ucm_cmd_hdr header{RDMA_USER_CM_CMD_DESTROY_ID, 1, 8};
  CHECK(write(&header, sizeof header - 1) == EINVAL);
  CHECK(write(&header, sizeof header) == EINVAL);
  header = {RDMA_USER_CM_CMD_GET_OPTION, 0, 0};
  CHECK(write(&header, sizeof header) == ENOSYS);
  CHECK(write(reinterpret_cast<const void*>(8), sizeof header) == EFAULT);
}

TEST_CASE("a connection within a process, by the engine", "[cm]") {
  open_file server;
  open_file client;
  const std::uint32_t listener = server.create(user_one);
  const std::uint32_t id = request(client, listen(server, listener));
  const rdma_ucm_event_resp found = server.take(event_kind::connect_request);
  CHECK(std::memcmp(found.param.conn.private_data, "hello", 6) == 0);
  rdma_ucm_accept accept{};
  accept.uid = user_one;
  accept.id = found.id;
  accept.conn_param = parameters(6, "welcome");
  REQUIRE(server.write(RDMA_USER_CM_CMD_ACCEPT, accept) == 0);
  client.take(event_kind::connect_response);
  rdma_ucm_accept ready{};
  ready.id = id;
  REQUIRE(client.write(RDMA_USER_CM_CMD_ACCEPT, ready) == 0);
  server.take(event_kind::established);
  REQUIRE(client.destroy(id) == 0);
  server.take(event_kind::disconnected);
  REQUIRE(server.destroy(found.id) == 0);
  REQUIRE(server.destroy(listener) == 0);
}

TEST_CASE("GET_EVENT blocks or not, and a signal interrupts it", "[cm]") {
  open_file in;
  rdma_ucm_event_resp event{};
  SECTION("not blocking") {
    in.make_nonblocking();
    CHECK(in.read_event(event) == EAGAIN);
  }
  SECTION("interrupted") {
    struct sigaction ignore{};
    struct sigaction before{};
    ignore.sa_handler = [](int) {};
    REQUIRE(::sigaction(SIGUSR1, &ignore, &before) == 0);
    std::atomic<int> error{0};
    std::thread waiter{[&] { error = in.read_event(event); }};
    // The signal may come before the thread waits: it is sent until the thread has left.
    while (error == 0) {
      ::pthread_kill(waiter.native_handle(), SIGUSR1);
      std::this_thread::yield();
    }
    waiter.join();
    ::sigaction(SIGUSR1, &before, nullptr);
    CHECK(error == EINTR);
  }
  SECTION("woken by an event that another thread writes") {
    const std::uint32_t id = in.create(user_one);
    std::thread waiter{[&] { in.read_event(event); }};
    write_event_command command{};
    command.id = id;
    command.event = static_cast<std::uint32_t>(event_kind::user);
    constexpr std::uint32_t write_event = 24;
    CHECK(in.write(write_event, command) == 0);
    waiter.join();
    CHECK(static_cast<event_kind>(event.event) == event_kind::user);
    CHECK(event.uid == user_one);
  }
  SECTION("short answers are refused at once") {
    const rdma_ucm_get_event command{reinterpret_cast<std::uintptr_t>(&event)};
    CHECK(in.write(RDMA_USER_CM_CMD_GET_EVENT, command, 8) == ENOSPC);
  }
}

TEST_CASE("a thread that waits for an event can be cancelled", "[cm]") {
  open_file in;
  pthread_t waiter{};
  const auto wait = [](void* of) -> void* {
    rdma_ucm_event_resp event{};
    static_cast<open_file*>(of)->read_event(event);
    return nullptr;
  };
  REQUIRE(::pthread_create(&waiter, nullptr, wait, &in) == 0);
  REQUIRE(::pthread_cancel(waiter) == 0);
  void* result = nullptr;
  REQUIRE(::pthread_join(waiter, &result) == 0);
  CHECK(result == PTHREAD_CANCELED);
  const std::uint32_t id = in.create(user_one);  // No lock was left.
  CHECK(in.destroy(id) == 0);
}

TEST_CASE("a thread that was cancelled before a command ends ahead of the command", "[cm]") {
  open_file in;
  pthread_t other{};
  std::atomic<bool> is_cancelled{false};
  struct both {
    open_file& file;
    std::atomic<bool>& is_cancelled;
  } arguments{in, is_cancelled};
  const auto command = [](void* of) -> void* {
    auto& with = *static_cast<both*>(of);
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    while (!with.is_cancelled) std::this_thread::yield();
    ::pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, nullptr);
    with.file.destroy(0);
    return nullptr;
  };
  REQUIRE(::pthread_create(&other, nullptr, command, &arguments) == 0);
  REQUIRE(::pthread_cancel(other) == 0);
  is_cancelled = true;
  void* result = nullptr;
  REQUIRE(::pthread_join(other, &result) == 0);
  CHECK(result == PTHREAD_CANCELED);
  const std::uint32_t id = in.create(user_one);  // No lock was left.
  CHECK(in.destroy(id) == 0);
}

TEST_CASE("an event of a destroyed identifier does not wake a waiter", "[cm]") {
  open_file in;
  in.make_nonblocking();
  const std::uint32_t id = in.create(user_one);
  REQUIRE(in.resolve(id, v4("127.0.0.1", 1)) == 0);
  pollfd poll{in.fd(), POLLIN, 0};
  CHECK(::poll(&poll, 1, 0) == 1);
  REQUIRE(in.destroy(id) == 0);
  CHECK(::poll(&poll, 1, 0) == 0);
  rdma_ucm_event_resp event{};
  CHECK(in.read_event(event) == EAGAIN);
}

TEST_CASE("MIGRATE_ID names the old channel by its descriptor", "[cm]") {
  open_file old;
  open_file fresh;
  const std::uint32_t id = old.create(user_one);
  rdma_ucm_migrate_resp answer{};
  const auto migrate = [&](int fd) {
    const rdma_ucm_migrate_id command{reinterpret_cast<std::uintptr_t>(&answer), id,
                                      static_cast<std::uint32_t>(fd)};
    return fresh.write(RDMA_USER_CM_CMD_MIGRATE_ID, command, sizeof answer);
  };
  CHECK(migrate(-1) == ENOENT);
  CHECK(migrate(STDERR_FILENO) == EINVAL);
  REQUIRE(old.resolve(id, v4("127.0.0.1", 1)) == 0);
  REQUIRE(migrate(old.fd()) == 0);
  fresh.take(event_kind::address_resolved);
  CHECK(fresh.destroy(id) == 0);
}

TEST_CASE("after a fork, the child's channels answer EIO and new ones work", "[cm][fork]") {
  std::optional<open_file> inherited{std::in_place};
  open_file server;
  const std::uint32_t listener = server.create(user_one);
  const std::uint16_t port = listen(server, listener);
  const std::uint32_t id = inherited->create(user_one);
  REQUIRE(inherited->resolve(id, v4("127.0.0.1", port)) == 0);
  CHECK(in_child([&] {
    rdma_ucm_event_resp event{};
    if (inherited->read_event(event) != EIO || inherited->destroy(id) != EIO) return false;
    inherited.reset();
    open_file own;
    own.make_nonblocking();
    const std::uint32_t mine = own.create(user_two);
    if (own.resolve(mine, v4("127.0.0.1", port)) != 0) return false;
    return own.read_event(event) == 0 &&
           static_cast<event_kind>(event.event) == event_kind::address_resolved &&
           own.destroy(mine) == 0;
  }));
  // The parent has lost nothing.
  inherited->take(event_kind::address_resolved);
  request(*inherited, port);
  server.take(event_kind::connect_request);
}

TEST_CASE("a process that dies lets its peers know", "[cm][fault]") {
  open_file server;
  const std::uint32_t listener = server.create(user_one);
  const std::uint16_t port = listen(server, listener);
  int go[2];
  REQUIRE(::pipe(go) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    open_file own;
    request(own, port);
    char byte = 0;
    (void)!::read(go[0], &byte, 1);
    ::raise(SIGKILL);
  }
  const rdma_ucm_event_resp found = server.take(event_kind::connect_request);
  rdma_ucm_accept accept{};
  accept.uid = user_one;
  accept.id = found.id;
  accept.conn_param = parameters(6);
  REQUIRE(server.write(RDMA_USER_CM_CMD_ACCEPT, accept) == 0);
  REQUIRE(::write(go[1], "x", 1) == 1);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  CHECK(static_cast<int>(server.take(event_kind::unreachable).status) == -ETIMEDOUT);
  ::close(go[0]);
  ::close(go[1]);
}

TEST_CASE("rdma_cm is refused on an InfiniBand port", "[.infiniband]") {
  open_file file;
  const std::uint32_t id = file.create(user_one);
  CHECK(file.bind(id, address::wildcard(AF_INET)) == EOPNOTSUPP);
  CHECK(file.destroy(id) == 0);
}
