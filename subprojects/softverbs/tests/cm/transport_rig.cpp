#include "transport_rig.hpp"

#include "link/listeners.hpp"

#include <arpa/inet.h>
#include <poll.h>
#include <rdma/rdma_user_cm.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>

namespace softverbs::cm::test {

namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;

constexpr auto patience = 60s;

/// Waits until a transport has something to do, and lets all do it.
bool run_once(std::initializer_list<side*> sides, clock::time_point until) {
  std::vector<pollfd> fds;
  for (const side* one : sides) {
    fds.push_back({one->network->descriptor(), POLLIN, 0});
    until = std::min(until, one->network->deadline());
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - clock::now());
  const int ready = ::poll(fds.data(), fds.size(), std::max(0, static_cast<int>(left.count())));
  for (side* one : sides) one->network->run(clock::now());
  return ready > 0;
}

}  // namespace

side::side() : network{make_transport(*this)} { REQUIRE(network); }

void side::on_request(binding& name, std::unique_ptr<conversation> from,
                      const message& words) noexcept {
  auto user = std::make_unique<talker>();
  user->with = std::move(from);
  user->with->set_user(*user);
  requests.push_back({&name, words, std::move(user)});
}

std::unique_ptr<binding> side::bind(const char* address, std::uint16_t port, bool v6_only,
                                    bool reuse) {
  error = 0;
  auto bound = network->bind(RDMA_PS_TCP, at(address, port), v6_only, reuse, error);
  CHECK((bound != nullptr) == (error == 0));
  return bound;
}

std::unique_ptr<binding> side::listen(const char* address, std::uint16_t port) {
  auto bound = bind(address, port);
  REQUIRE(bound);
  REQUIRE(bound->listen() == 0);
  return bound;
}

std::unique_ptr<talker> side::ask(const endpoint& to, const char* source) {
  auto user = std::make_unique<talker>();
  user->with = network->start(request_to(to, source), *user);
  REQUIRE(user->with);
  CHECK_FALSE(user->ended);  // No end is told inside a call.
  return user;
}

in6_addr address_of(const char* text) {
  in6_addr address{};
  const std::string mapped = std::string{"::ffff:"} + text;
  const bool is_v4 = std::strchr(text, ':') == nullptr;
  REQUIRE(::inet_pton(AF_INET6, is_v4 ? mapped.c_str() : text, &address) == 1);
  return address;
}

endpoint at(const char* address, std::uint16_t port) {
  endpoint where;
  where.address = address_of(address);
  where.port = port;
  return where;
}

message request_to(const endpoint& to, const char* source) {
  message words;
  words.kind = message_kind::request;
  words.space = RDMA_PS_TCP;
  words.source = at(source, 40'000);
  words.destination = to;
  words.qpn = 0x1234;
  words.qp_type = 2;
  words.path_mtu = 3;
  words.private_bytes = 5;
  std::memcpy(words.private_data, "hello", 5);
  return words;
}

message of_kind(message_kind kind) {
  message words;
  words.kind = kind;
  return words;
}

bool run_until(std::initializer_list<side*> sides, const std::function<bool()>& what) {
  const auto until = clock::now() + patience;
  do {
    if (what()) return true;
    run_once(sides, until);
  } while (clock::now() < until);
  return false;
}

void settle(std::initializer_list<side*> sides) {
  while (run_once(sides, clock::now())) continue;
}

setting::setting(const char* name, const std::string& value) : name_{name} {
  ::setenv(name, value.c_str(), 1);
}
setting::~setting() { ::unsetenv(name_); }

std::string free_port() {
  for (;;) {
    const unique_fd probe{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    sockaddr_in name{};
    name.sin_family = AF_INET;
    socklen_t length = sizeof name;
    REQUIRE(::bind(probe.get(), reinterpret_cast<sockaddr*>(&name), length) == 0);
    REQUIRE(::getsockname(probe.get(), reinterpret_cast<sockaddr*>(&name), &length) == 0);
    if (ntohs(name.sin_port) > process_slots)
      return std::to_string(ntohs(name.sin_port) - process_slots);
  }
}

// ---- processes

forked::forked(const std::function<void(int)>& what) {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  process_ = ::fork();
  REQUIRE(process_ >= 0);
  control_.reset(ends[0]);
  if (process_ != 0) {
    ::close(ends[1]);
    return;
  }
  control_.reset();
  what(ends[1]);
  ::_exit(0);
}

void forked::kill() noexcept {
  if (process_ < 0) return;
  ::kill(process_, SIGKILL);
  ::waitpid(process_, nullptr, 0);
  process_ = -1;
}

void forked::stop() const noexcept {
  ::kill(process_, SIGSTOP);
  ::waitpid(process_, nullptr, WUNTRACED);
}

void forked::resume() const noexcept { ::kill(process_, SIGCONT); }

int forked::wait() noexcept {
  int status = -1;
  ::waitpid(process_, &status, 0);
  process_ = -1;
  return status;
}

void forked::read(void* bytes, std::size_t count) const {
  REQUIRE(::recv(control_.get(), bytes, count, MSG_WAITALL) == static_cast<ssize_t>(count));
}

void forked::send(const void* bytes, std::size_t count) const {
  put_bytes(control_.get(), bytes, count);
}

void put_bytes(int control, const void* bytes, std::size_t count) {
  if (::send(control, bytes, count, MSG_NOSIGNAL) != static_cast<ssize_t>(count)) ::_exit(2);
}

void await_go(int control) {
  char byte = 0;
  if (::recv(control, &byte, 1, 0) != 1) ::_exit(3);
}

void serve(side& one, int control) {
  run_until({&one}, [&] {
    char byte = 0;
    return ::recv(control, &byte, 1, MSG_DONTWAIT) == 0;
  });
  ::_exit(0);
}

}  // namespace softverbs::cm::test
