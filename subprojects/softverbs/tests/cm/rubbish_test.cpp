#include "transport_rig.hpp"

#include "cm/entrance.hpp"
#include "cm/message_check.hpp"
#include "cm/names.hpp"
#include "link/listeners.hpp"
#include "link/tcp_listener.hpp"

#include <poll.h>
#include <rdma/rdma_user_cm.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>

#include <array>
#include <cerrno>
#include <cstring>

// Bytes of other processes that are no conversation.

namespace softverbs::cm::test {

namespace {

using namespace std::chrono_literals;

/// A hand-made connection, which can send anything.
unique_fd raw_connection(const endpoint& to, bool by_tcp) {
  unique_fd socket;
  int error = 0;
  if (!by_tcp) {
    socket = connect_to_holder(RDMA_PS_TCP, to, error);
  } else {
    connect_tcp(address_of("127.0.0.1"), cm_port(tcp_settings_of_environment().port), socket);
    pollfd one{socket.get(), POLLOUT, 0};
    REQUIRE(::poll(&one, 1, -1) == 1);
  }
  REQUIRE(socket);
  return socket;
}

void write_all(const unique_fd& socket, const void* bytes, std::size_t count) {
  REQUIRE(::send(socket.get(), bytes, count, MSG_NOSIGNAL) == static_cast<ssize_t>(count));
}

bool sees_the_end(std::initializer_list<side*> sides, const unique_fd& socket) {
  return run_until(sides, [&] {
    char byte = 0;
    const ssize_t got = ::recv(socket.get(), &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno == ECONNRESET);
  });
}

struct host {
  explicit host(bool is_by_tcp) : by_tcp{is_by_tcp} {}
  const bool by_tcp;
  setting port{"SOFTVERBS_PORT", free_port()};
  setting link{"SOFTVERBS_LINK", by_tcp ? "tcp" : ""};
  side server, client;
  std::unique_ptr<binding> name = server.listen();

  /// The server still takes valid requests.
  void check_open() {
    const std::size_t before = server.requests.size();
    const auto asks = client.ask(name->at());
    CHECK(run_until({&server, &client}, [&] { return server.requests.size() == before + 1; }));
  }
};

/// A hand-made listener, whose name was free when it came.
struct raw_listener {
  explicit raw_listener(side& server) : at{server.bind("127.0.0.1")->at()} {
    int error = 0;
    socket = claim({RDMA_PS_TCP, at, false, false}, -1, error);
    REQUIRE(socket);
  }
  endpoint at;
  unique_fd socket;
};

/// Messages with one wrong field each.
std::vector<message> wrong_requests(const endpoint& to) {
  std::vector<message> all(24, request_to(to));
  std::size_t n = 0;
  all[n++].magic ^= 1;
  ++all[n++].version;
  all[n++].kind = static_cast<message_kind>(0);
  all[n++].kind = static_cast<message_kind>(9);
  all[n++].kind = message_kind::reply;  // A reply never comes first.
  all[n++].kind = message_kind::reject;
  all[n++].space = 0;
  all[n++].space = RDMA_PS_UDP;  // RDMA_PS_UDP has no connections.
  all[n++].qpn = 0x1000000;
  all[n++].psn = 0x1000000;
  all[n++].private_bytes = 93;
  all[n++].retry_count = 8;
  all[n++].rnr_retry_count = 8;
  all[n++].path_mtu = 6;
  all[n++].ack_timeout = 32;
  all[n++].qp_type = 11;
  all[n++].srq = 2;
  all[n++].flow_control = 2;
  all[n++].source.port = 0;
  all[n++].source = at("0.0.0.0", 1);
  all[n++].destination.port = 0;
  all[n++].destination.address = address_of("::");
  all[n++].destination.address = address_of("224.0.0.1");
  all[n++].source.address = address_of("ff02::1");
  REQUIRE(n == all.size());
  return all;
}

}  // namespace

TEST_CASE("a request with something wrong is not shown to anybody", "[cm]") {
  host h{GENERATE(false, true)};
  CAPTURE(h.by_tcp);
  for (const message& wrong : wrong_requests(h.name->at())) {
    CHECK_FALSE((is_valid(wrong) && wrong.is_request()));
    const unique_fd socket = raw_connection(h.name->at(), h.by_tcp);
    write_all(socket, &wrong, sizeof wrong);
    CHECK(sees_the_end({&h.server}, socket));
  }
  std::array<char, sizeof(message) + 1> longer{};
  const message right = request_to(h.name->at());
  std::memcpy(longer.data(), &right, sizeof right);
  if (!h.by_tcp) {
    for (const std::size_t size : {sizeof right - 1, sizeof right + 1, std::size_t{1}}) {
      const unique_fd socket = raw_connection(h.name->at(), false);
      write_all(socket, longer.data(), size);
      CHECK(sees_the_end({&h.server}, socket));
    }
  }
  CHECK(h.server.requests.empty());
  h.check_open();
}

TEST_CASE("a request by TCP may come in pieces, and what follows it is for its listener", "[cm]") {
  host h{true};
  const unique_fd socket = raw_connection(h.name->at(), true);
  std::array<message, 2> words{request_to(h.name->at()), of_kind(message_kind::ready)};
  const auto* bytes = reinterpret_cast<const char*>(words.data());
  write_all(socket, bytes, 100);
  settle({&h.server});
  write_all(socket, bytes + 100, sizeof(message));
  REQUIRE(run_until({&h.server}, [&] { return h.server.requests.size() == 1; }));
  settle({&h.server});
  write_all(socket, bytes + 100 + sizeof(message), sizeof words - 100 - sizeof(message));
  auto& from = *h.server.requests[0].from;
  CHECK(run_until({&h.server}, [&] { return from.has_heard(message_kind::ready); }));
}

TEST_CASE("a name's socket takes requests for that name", "[cm]") {
  host h{false};
  const auto other = h.server.bind("127.0.0.1");
  const unique_fd socket = raw_connection(h.name->at(), false);
  const message stray = request_to(other->at());
  write_all(socket, &stray, sizeof stray);
  CHECK(run_until({&h.server}, [&] {
    message answer;
    return ::recv(socket.get(), &answer, sizeof answer, MSG_DONTWAIT) == sizeof answer &&
           answer.kind == message_kind::reject && answer.reason == reason_no_listener;
  }));
  CHECK(h.server.requests.empty());
}

TEST_CASE("a connected peer that sends rubbish loses its connection, and only that", "[cm]") {
  host h{GENERATE(false, true)};
  CAPTURE(h.by_tcp);
  const auto good = h.client.ask(h.name->at());
  REQUIRE(run_until({&h.server, &h.client}, [&] { return h.server.requests.size() == 1; }));
  const unique_fd socket = raw_connection(h.name->at(), h.by_tcp);
  const message right = request_to(h.name->at());
  write_all(socket, &right, sizeof right);
  REQUIRE(run_until({&h.server}, [&] { return h.server.requests.size() == 2; }));
  message wrong = of_kind(message_kind::ready);
  SECTION("another request") { wrong = right; }
  SECTION("no magic") { wrong.magic = 0; }
  SECTION("too much private data") { wrong.private_bytes = 225; }
  write_all(socket, &wrong, sizeof wrong);
  CHECK(sees_the_end({&h.server}, socket));
  CHECK(h.server.requests[1].from->heard.empty());
  CHECK(h.server.requests[1].from->ended == ECONNRESET);
  CHECK_FALSE(h.server.requests[0].from->ended);
  h.check_open();
}

TEST_CASE("a listener that answers with rubbish is none", "[cm]") {
  host h{false};
  const raw_listener liar{h.server};
  const auto asks = h.client.ask(liar.at);
  settle({&h.client});
  const unique_fd socket{::accept4(liar.socket.get(), nullptr, nullptr, SOCK_CLOEXEC)};
  message words;
  REQUIRE(::recv(socket.get(), &words, sizeof words, 0) == sizeof words);
  SECTION("a kind that does not exist") { words.kind = static_cast<message_kind>(77); }
  SECTION("a request") {}
  write_all(socket, &words, sizeof words);
  CHECK(run_until({&h.client}, [&] { return asks->ended.has_value(); }));
  CHECK(asks->ended == ECONNRESET);
  CHECK(asks->heard.empty());
}

TEST_CASE("a peer that reads nothing is lost, and costs a few messages", "[cm]") {
  host h{false};
  const raw_listener liar{h.server};
  const auto asks = h.client.ask(liar.at);
  constexpr int sends_max = 100'000;
  int sends = 0;
  for (; sends < sends_max && !asks->ended; ++sends) {
    asks->with->send(of_kind(message_kind::ready));
    h.client.network->run(std::chrono::steady_clock::now());
  }
  CHECK(asks->ended == ETIMEDOUT);
}

TEST_CASE("many connections without a request do not keep the next one out", "[cm]") {
  host h{GENERATE(false, true)};
  CAPTURE(h.by_tcp);
  std::vector<unique_fd> silent;
  for (unsigned n = 0; n < requests_pending_max + 5; ++n) {
    silent.push_back(raw_connection(h.name->at(), h.by_tcp));
    settle({&h.server});
  }
  for (int n = 0; n < 5; ++n) CHECK(sees_the_end({&h.server}, silent[static_cast<std::size_t>(n)]));
  h.check_open();
}

TEST_CASE("silent connections by TCP cost local ones no place, nor the other way round", "[cm]") {
  host h{true};
  const bool crowd_by_tcp = GENERATE(false, true);
  CAPTURE(crowd_by_tcp);
  const unique_fd early = raw_connection(h.name->at(), !crowd_by_tcp);
  settle({&h.server});
  std::vector<unique_fd> crowd;
  for (unsigned n = 0; n < requests_pending_max + 1; ++n) {
    crowd.push_back(raw_connection(h.name->at(), crowd_by_tcp));
    settle({&h.server});
  }
  CHECK(sees_the_end({&h.server}, crowd.front()));
  const message right = request_to(h.name->at());
  write_all(early, &right, sizeof right);
  CHECK(run_until({&h.server}, [&] { return h.server.requests.size() == 1; }));
}

TEST_CASE("a requester whose socket was closed unread tries again, for a while", "[cm]") {
  host h{false};
  const raw_listener closes{h.server};
  const auto accepts = [&] {
    return static_cast<bool>(
        unique_fd{::accept4(closes.socket.get(), nullptr, nullptr, SOCK_CLOEXEC)});
  };
  const auto before = std::chrono::steady_clock::now();
  const auto asks = h.client.ask(closes.at);
  const auto after = std::chrono::steady_clock::now();
  CHECK(accepts());
  h.client.network->run(before);
  CHECK_FALSE(accepts());
  h.client.network->run(before + retry_period);
  CHECK(accepts());
  CHECK_FALSE(asks->ended);
  h.client.network->run(after + takeover_time);
  h.client.network->run(after + takeover_time);
  CHECK_FALSE(accepts());
  CHECK(asks->ended == ECONNRESET);
}

TEST_CASE("a connection without a request is closed when its time is over", "[cm]") {
  host h{false};
  const unique_fd silent = raw_connection(h.name->at(), false);
  settle({&h.server});
  const auto due = h.server.network->deadline();
  CHECK(due > std::chrono::steady_clock::now());
  CHECK(due <= std::chrono::steady_clock::now() + request_time_max);
  char byte = 0;
  h.server.network->run(due - 1ms);
  CHECK(::recv(silent.get(), &byte, 1, MSG_DONTWAIT) < 0);
  h.server.network->run(due);
  CHECK(::recv(silent.get(), &byte, 1, MSG_DONTWAIT) == 0);
}

TEST_CASE("what is passed on must be a socket of TCP", "[cm]") {
  host h{false};
  const unique_fd socket = raw_connection(h.name->at(), false);
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const unique_fd ours{ends[0]};
  const unique_fd theirs{ends[1]};
  message right = request_to(h.name->at());
  const int fd = theirs.get();
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)]{};
  iovec part{&right, sizeof right};
  msghdr packet{};
  packet.msg_iov = &part;
  packet.msg_iovlen = 1;
  packet.msg_control = control;
  packet.msg_controllen = sizeof control;
  cmsghdr* const rights = CMSG_FIRSTHDR(&packet);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  REQUIRE(::sendmsg(socket.get(), &packet, 0) == sizeof right);
  CHECK(sees_the_end({&h.server}, socket));
  CHECK(h.server.requests.empty());
  h.check_open();
}

}  // namespace softverbs::cm::test
