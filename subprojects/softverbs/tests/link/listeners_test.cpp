#include "link/listeners.hpp"

#include "link/local_listener.hpp"
#include "link/peer.hpp"
#include "link/tcp_listener.hpp"
#include "node/doubles.hpp"
#include "node/node.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

namespace softverbs::test {

namespace {

using namespace std::chrono_literals;

constexpr int wait_ms_max = 60'000;

/// True if the peer closes within a generous time. Bytes that it sends before are ignored.
bool sees_the_end(const unique_fd& socket) {
  for (;;) {
    pollfd one{socket.get(), POLLIN, 0};
    if (::poll(&one, 1, wait_ms_max) != 1) return false;
    char bytes[256];
    if (::recv(socket.get(), bytes, sizeof bytes, MSG_DONTWAIT) <= 0) return true;
  }
}

unique_fd connect_local(std::uint16_t slot) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string text = "softverbs." + std::to_string(slot);
  std::memcpy(name.sun_path + 1, text.data(), text.size());
  unique_fd socket{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
  REQUIRE(::connect(socket.get(), reinterpret_cast<sockaddr*>(&name),
                    static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size())) ==
          0);
  return socket;
}

void say(const unique_fd& socket, const void* words, std::size_t bytes,
         const std::vector<int>& fds) {
  std::vector<char> control(CMSG_SPACE(sizeof(int) * std::max<std::size_t>(fds.size(), 1)));
  iovec part{const_cast<void*>(words), bytes};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(rights), fds.data(), sizeof(int) * fds.size());
  }
  REQUIRE(::sendmsg(socket.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes));
}

/// A hand-made adapter in this process: it owns a slot, and sends and writes anything.
struct raw_peer {
  explicit raw_peer(std::uint16_t target) : target_{target} {
    for (slot = 0; !listener; ++slot) listener = open_local_listener(slot);
    --slot;
    REQUIRE(memory.reserve());
    REQUIRE(memory.map(file.get(), true));
    producer.attach(memory.out());
    consumer.attach(memory.in());
  }
  [[nodiscard]] hello words() const {
    hello result;
    result.slot = slot;
    return result;
  }
  void come() {
    socket = connect_local(target_);
    const hello honest = words();
    say(socket, &honest, sizeof honest, {file.get()});
  }
  std::byte* put(frame_kind kind, std::uint32_t psn) {
    frame_header header{};
    header.kind = kind;
    header.psn = psn;
    std::byte* destination = nullptr;
    REQUIRE(producer.reserve(frame_bytes(0), destination) == ring_answer::yes);
    std::memcpy(destination, &header, sizeof header);
    producer.publish(frame_bytes(0));
    ring();
    return destination;
  }
  void ring() const { (void)!::send(socket.get(), "", 1, MSG_NOSIGNAL | MSG_DONTWAIT); }

  std::uint16_t slot = 0;
  unique_fd listener;
  unique_fd file{ring_memory::create_file()};
  ring_memory memory;
  ring_producer producer;
  ring_consumer consumer;
  unique_fd socket;

 private:
  std::uint16_t target_;
};

struct host {
  host() { upcalls().reset(); }
  ~host() { node::release(local_node); }
  node& local_node = node::acquire();

  /// The listener still works, and so does a link through it.
  void check_open() {
    raw_peer honest{local_node.slot()};
    honest.come();
    honest.put(frame_kind::send, 4711);
    CHECK(upcalls().wait([] {
      return !upcalls().requests.empty() && upcalls().requests.back().header.psn == 4711;
    }));
  }
};

struct tcp_forced {
  tcp_forced() { ::setenv("SOFTVERBS_LINK", "tcp", 1); }
  ~tcp_forced() { ::unsetenv("SOFTVERBS_LINK"); }
};

unique_fd connect_tcp(std::uint16_t port) {
  in6_addr loopback{};
  REQUIRE(::inet_pton(AF_INET6, "::ffff:127.0.0.1", &loopback) == 1);
  unique_fd socket;
  REQUIRE(connect_tcp(loopback, port, socket));
  pollfd one{socket.get(), POLLOUT, 0};
  REQUIRE(::poll(&one, 1, wait_ms_max) == 1);
  return socket;
}

/// Where this process listens for TCP.
std::vector<std::string> listening() {
  std::vector<std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator{"/proc/self/fd"}) {
    const int fd = std::stoi(entry.path().filename());
    int listens = 0;
    socklen_t length = sizeof listens;
    sockaddr_storage name{};
    socklen_t name_length = sizeof name;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0 ||
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &name_length) != 0 ||
        name.ss_family == AF_UNIX)
      continue;
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(name);
    char text[INET_ADDRSTRLEN] = "not IPv4";
    if (name.ss_family == AF_INET) ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    all.push_back(std::string{text} + ':' + std::to_string(ntohs(v4.sin_port)));
  }
  return all;
}

void write_all(const unique_fd& socket, const void* bytes, std::size_t count) {
  REQUIRE(::send(socket.get(), bytes, count, MSG_NOSIGNAL) == static_cast<ssize_t>(count));
}

}  // namespace

TEST_CASE("the local listener rejects every hello with something wrong", "[link]") {
  host host;
  const std::uint16_t slot = host.local_node.slot();
  const peer_process other{"echo"};
  raw_peer raw_peer{slot};
  hello words = raw_peer.words();
  std::vector<int> fds{raw_peer.file.get()};
  std::size_t bytes = sizeof words;
  const unique_fd unsealed{::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  REQUIRE(::ftruncate(unsealed.get(), static_cast<off_t>(rings_file_bytes)) == 0);
  char longer[sizeof words + 1];

  SECTION("the magic") { words.magic ^= 1; }
  SECTION("the version") { ++words.version; }
  SECTION("a slot beyond all slots") { words.slot = process_slots; }
  SECTION("a slot that nobody owns") { raw_peer.listener.reset(); }
  SECTION("a slot that another process owns") { words.slot = slot_of(other.qpn()); }
  SECTION("our own slot") { words.slot = slot; }
  SECTION("too short") { bytes = sizeof words - 1; }
  SECTION("too long") { bytes = sizeof longer; }
  SECTION("no memory") { fds.clear(); }
  SECTION("memory that may shrink") { fds = {unsealed.get()}; }
  SECTION("two memories") { fds.push_back(raw_peer.file.get()); }
  std::memcpy(longer, &words, sizeof words);

  const unique_fd socket = connect_local(slot);
  say(socket, longer, bytes, fds);
  CHECK(sees_the_end(socket));
  host.check_open();
}

TEST_CASE("a process that ended after its hello is heard, though its slot is free again",
          "[link]") {
  host host;
  raw_peer ended{host.local_node.slot()};
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  const unique_fd ours{ends[0]};
  unique_fd theirs{ends[1]};
  CHECK(is_owner_of(ours.get(), ended.slot));
  ended.listener.reset();
  CHECK_FALSE(is_owner_of(ours.get(), ended.slot));
  theirs.reset();
  CHECK(is_owner_of(ours.get(), ended.slot));
  const peer_process other{"echo"};
  CHECK_FALSE(is_owner_of(ours.get(), slot_of(other.qpn())));
}

TEST_CASE("many connections without a hello do not keep the next one out", "[link]") {
  host host;
  std::vector<unique_fd> silent;
  for (unsigned n = 0; n < hellos_pending_max + 5; ++n)
    silent.push_back(connect_local(host.local_node.slot()));
  host.check_open();
  silent.clear();
  host.check_open();
}

TEST_CASE("a local peer that writes nonsense loses its link, and only that", "[link]") {
  host host;
  raw_peer liar{host.local_node.slot()};
  liar.come();
  liar.put(frame_kind::send, 1);
  REQUIRE(upcalls().wait([] { return upcalls().requests.size() == 1; }));
  ring_control& control = *liar.memory.out().control;
  SECTION("a tail out of bounds") { control.tail.store(~std::uint64_t{0}); }
  SECTION("a tail inside a line") { control.tail.fetch_add(8); }
  SECTION("a frame that is too long") {
    frame_header header{};
    header.kind = frame_kind::send;
    header.payload_bytes = segment_bytes_max + 1;
    std::byte* destination = nullptr;
    REQUIRE(liar.producer.reserve(frame_bytes(0), destination) == ring_answer::yes);
    std::memcpy(destination, &header, sizeof header);
    liar.producer.publish(frame_bytes(0));
  }
  SECTION("an answer, where requests go") { liar.put(frame_kind::ack, 2); }
  SECTION("a kind that does not exist") { liar.put(static_cast<frame_kind>(99), 2); }
  SECTION("an empty packet, as if it had gone") {
    (void)!::send(liar.socket.get(), "", 0, MSG_NOSIGNAL);
  }
  liar.ring();
  CHECK(sees_the_end(liar.socket));
  host.check_open();
}

TEST_CASE("a peer has one link to us: its newest", "[link]") {
  host host;
  raw_peer peer{host.local_node.slot()};
  peer.come();
  peer.put(frame_kind::send, 1);
  REQUIRE(upcalls().wait([] { return upcalls().requests.size() == 1; }));
  const unique_fd old = std::move(peer.socket);
  const unique_fd file{ring_memory::create_file()};
  const unique_fd newer = connect_local(host.local_node.slot());
  const hello honest = peer.words();
  say(newer, &honest, sizeof honest, {file.get()});
  CHECK(sees_the_end(old));
  host.check_open();
}

TEST_CASE("a head that makes no sense closes the link that is written to", "[link]") {
  host host;
  upcalls().locked([] { return upcalls().echo = true; });
  raw_peer liar{host.local_node.slot()};
  liar.come();
  liar.memory.in().control->head.store(24);
  liar.put(frame_kind::send, 1);
  // The liar's account left no free space: the ring counts as broken once it is full by ours.
  while (true) {
    std::byte* destination = nullptr;
    frame_header header{};
    header.kind = frame_kind::send;
    if (liar.producer.reserve(frame_bytes(0), destination) == ring_answer::yes) {
      std::memcpy(destination, &header, sizeof header);
      liar.producer.publish(frame_bytes(0));
      liar.ring();
    }
    pollfd one{liar.socket.get(), POLLIN | POLLRDHUP, 0};
    if (::poll(&one, 1, 0) == 1 && (one.revents & (POLLRDHUP | POLLHUP)) != 0) break;
  }
  upcalls().locked([] { return upcalls().echo = false; });
  host.check_open();
}

TEST_CASE("the TCP listener: slow, wrong and endless hellos hinder nobody", "[link]") {
  const tcp_forced forced;
  host host;
  const auto port = static_cast<std::uint16_t>(tcp_port_default + host.local_node.slot());
  const unique_fd slow = connect_tcp(port);
  hello words;
  write_all(slow, &words, 10);
  const unique_fd wrong = connect_tcp(port);
  const std::vector<char> garbage(1000, 'x');
  write_all(wrong, garbage.data(), garbage.size());
  CHECK(sees_the_end(wrong));
  const unique_fd newer = connect_tcp(port);
  hello other;
  ++other.version;
  write_all(newer, &other, sizeof other);
  CHECK(sees_the_end(newer));

  const unique_fd honest = connect_tcp(port);
  words.slot = (host.local_node.slot() + 1u) % process_slots;
  write_all(honest, &words, sizeof words);
  frame_header header{};
  header.kind = frame_kind::send;
  header.psn = 5;
  write_all(honest, &header, 30);
  write_all(honest, reinterpret_cast<const char*>(&header) + 30, sizeof header - 30);
  CHECK(upcalls().wait([] { return upcalls().requests.size() == 1; }));
  // The slow peer, another process, is still heard once it has sent its whole hello.
  words.slot = (host.local_node.slot() + 2u) % process_slots;
  write_all(slow, reinterpret_cast<const char*>(&words) + 10, sizeof words - 10);
  header.psn = 6;
  write_all(slow, &header, sizeof header);
  CHECK(upcalls().wait([] { return upcalls().requests.size() == 2; }));
  header.payload_bytes = segment_bytes_max + 1;
  write_all(honest, &header, sizeof header);
  CHECK(sees_the_end(honest));
}

TEST_CASE("a process of this host does not get in by TCP: the local listener knows its owner",
          "[link]") {
  host host;
  const unique_fd socket =
      connect_tcp(static_cast<std::uint16_t>(tcp_port_default + host.local_node.slot()));
  hello words;
  words.slot = (host.local_node.slot() + 1u) % process_slots;
  write_all(socket, &words, sizeof words);
  CHECK(sees_the_end(socket));
}

TEST_CASE("the processes of a host have half of all links, and then no more", "[link]") {
  const tcp_forced forced;
  host host;
  const auto port = static_cast<std::uint16_t>(tcp_port_default + host.local_node.slot());
  std::vector<unique_fd> taken;
  frame_header header{};
  header.kind = frame_kind::send;
  const auto come = [&] {
    hello words;
    words.slot =
        (host.local_node.slot() + 1u + static_cast<unsigned>(taken.size())) % process_slots;
    taken.push_back(connect_tcp(port));
    write_all(taken.back(), &words, sizeof words);
  };
  const auto is_heard = [&](const unique_fd& from) {
    const std::size_t before = upcalls().locked([] { return upcalls().requests.size(); });
    write_all(from, &header, sizeof header);
    return upcalls().wait([&] { return upcalls().requests.size() == before + 1; });
  };
  while (taken.size() < links_per_host_max) {
    come();
    REQUIRE(is_heard(taken.back()));
  }
  come();
  CHECK(sees_the_end(taken.back()));
  CHECK(is_heard(taken.front()));
}

TEST_CASE("the TCP listener is on 127.0.0.1 alone, or where SOFTVERBS_LISTEN says", "[link]") {
  const unique_fd epoll{::epoll_create1(EPOLL_CLOEXEC)};
  const char* setting = GENERATE(as<const char*>{}, nullptr, "", "127.0.0.2", "0.0.0.0");
  const std::string expected = setting == nullptr || *setting == '\0' ? "127.0.0.1" : setting;
  if (setting != nullptr) ::setenv("SOFTVERBS_LISTEN", setting, 1);
  const tcp_settings tcp = tcp_settings_of_environment();
  ::unsetenv("SOFTVERBS_LISTEN");
  CHECK(listening().empty());
  listeners listeners;
  listeners.open(epoll.get(), tcp);
  CHECK(listening() ==
        std::vector{expected + ':' + std::to_string(tcp_port_default + listeners.slot())});
  listeners.close();
}

namespace {

/// Returns a child's stderr; the child connects twice to a port.
std::string said_of_connecting_to(const char* address, std::uint16_t port) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    in6_addr host{};
    ::inet_pton(AF_INET6, address, &host);
    for (int n = 0; n < 2; ++n) {
      unique_fd socket;
      if (!connect_tcp(host, port, socket)) continue;
      pollfd one{socket.get(), POLLOUT, 0};
      ::poll(&one, 1, wait_ms_max);
      report_refusal(socket.get(), host, port);
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string said;
  char bytes[256];
  for (ssize_t n; (n = ::read(ends[0], bytes, sizeof bytes)) > 0;)
    said.append(bytes, std::size_t(n));
  ::close(ends[0]);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  return said;
}

/// Gives a port that nobody listens at, as long as the socket lives.
std::uint16_t bind_free_port(const unique_fd& socket) {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  ::inet_pton(AF_INET, "127.0.0.2", &name.sin_addr);
  socklen_t length = sizeof name;
  REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&name), length) == 0);
  REQUIRE(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&name), &length) == 0);
  return ntohs(name.sin_port);
}

}  // namespace

TEST_CASE("a host where nobody listens is named once, with what it was to be started with",
          "[link]") {
  const unique_fd held{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const std::uint16_t port = bind_free_port(held);
  const std::string said = said_of_connecting_to("::ffff:127.0.0.2", port);
  const std::string what = "nobody listens at 127.0.0.2, port " + std::to_string(port);
  CHECK_THAT(said, Catch::Contains(what) && Catch::Contains("SOFTVERBS_LISTEN=127.0.0.2"));
  CHECK(said.find(what) == said.rfind(what));
}

TEST_CASE("a connection without a hello is closed when its time is over", "[link]") {
  const unique_fd epoll{::epoll_create1(EPOLL_CLOEXEC)};
  listeners listeners;
  listeners.open(epoll.get(), tcp_settings_of_environment());
  CHECK(listeners.deadline() == listeners::time::max());
  const unique_fd silent = connect_local(listeners.slot());
  const auto now = std::chrono::steady_clock::now();
  listeners.on_connect(source::local_listener, now);
  REQUIRE(listeners.deadline() == now + hello_time_max);
  listeners.on_time(now + hello_time_max - 1ms);
  CHECK(listeners.deadline() == now + hello_time_max);
  listeners.on_time(now + hello_time_max);
  CHECK(listeners.deadline() == listeners::time::max());
  CHECK(sees_the_end(silent));
  listeners.close();
}

TEST_CASE("a slot has one owner of a user, whichever of its names he has", "[link]") {
  host h;
  std::uint16_t slot = 0;
  unique_fd listener;
  for (; !listener; ++slot) listener = open_local_listener(slot, listener_name::random);
  --slot;
  CHECK_FALSE(open_local_listener(slot));
  CHECK(errno == EADDRINUSE);
  CHECK_FALSE(open_local_listener(slot, listener_name::random));
  listener.reset();
  listener = open_local_listener(slot);
  CHECK(listener);
  CHECK_FALSE(open_local_listener(slot, listener_name::random));
}

TEST_CASE("the error for a host without free slots says who has them", "[link]") {
  const unique_fd listener = [] {
    unique_fd made;
    for (std::uint16_t slot = 0; !made; ++slot) made = open_local_listener(slot);
    return made;
  }();
  const std::string mine = " by user " + std::to_string(::geteuid()) + " (process ";
  CHECK(holders_of_slots().find(mine) != std::string::npos);
}

TEST_CASE("slots differ, and what the environment says is checked", "[link]") {
  const unique_fd epoll{::epoll_create1(EPOLL_CLOEXEC)};
  listeners one;
  listeners other;
  one.open(epoll.get(), tcp_settings_of_environment());
  other.open(epoll.get(), tcp_settings_of_environment());
  CHECK(one.slot() != other.slot());
  for (const char* port : {"0", "65536", "65000", "x", "47000x"}) {
    ::setenv("SOFTVERBS_PORT", port, 1);
    CHECK_THROWS_AS(tcp_settings_of_environment(), std::system_error);
  }
  ::setenv("SOFTVERBS_PORT", "50000", 1);
  CHECK(tcp_settings_of_environment().port == 50000);
  ::unsetenv("SOFTVERBS_PORT");
  ::setenv("SOFTVERBS_LISTEN", "here", 1);
  CHECK_THROWS_AS(tcp_settings_of_environment(), std::system_error);
  // An address of no interface: the user asked for it, so that it is an error.
  ::setenv("SOFTVERBS_LISTEN", "240.0.0.1", 1);
  listeners third;
  CHECK_THROWS_AS(third.open(epoll.get(), tcp_settings_of_environment()), std::system_error);
  ::unsetenv("SOFTVERBS_LISTEN");
}

}  // namespace softverbs::test
