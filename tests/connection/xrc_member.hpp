#pragma once

#include "connection/handshake.hpp"
#include "support/two_hosts.hpp"
#include "support/xrc.hpp"

#include <cordma/base/unique_fd.hpp>
#include <cordma/verbs/queue_pair.hpp>

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <set>
#include <string>
#include <vector>

/// Processes that share an XRC domain, each with a pool, and do what a test says.
namespace cordma::test::xrc {

enum class deed : std::uint32_t {
  introduce,  ///< answers the number of its pool, its port, and its memory
  accept,     ///< takes a target
  connect,    ///< an initiator, to `port` of `host`
  send,       ///< `bytes` by `seed` from the initiator `which` to the pool `number`
  write,      ///< likewise, into `memory`
  read,       ///< likewise
  hear,       ///< awaits a message of `bytes` by `seed`
  holds,      ///< tells whether a WRITE of `bytes` by `seed` came
  end,        ///< awaits the end of the connection `which`
  count,      ///< answers how many queue pairs its connections have
};

struct order {
  deed what{};
  std::uint32_t which = 0;
  std::uint32_t number = 0;
  std::array<std::byte, remote_mr_slice::encoded_bytes> memory{};
  std::array<char, 16> host{"127.0.0.1"};
  std::uint16_t port = 0;
  std::uint32_t bytes = 0;
  unsigned seed = 0;
};

struct reply {
  bool well = false;
  std::uint32_t number = 0;
  std::uint16_t port = 0;
  std::array<std::byte, remote_mr_slice::encoded_bytes> memory{};
  int code = 0;  ///< The failure's, if any.
  std::array<char, 256> why{};
};

inline constexpr std::size_t buffer_bytes = 8192;

/// Options of all: nothing but the socket of the bootstrap tells of an end.
inline connection_options one_queue_pair() {
  connection_options o = without_agent({});
  o.heartbeat.enabled = false;
  o.insecure = true;  // Hosts of the test's own.
  return o;
}

/// The process itself.
class member_process {
 public:
  member_process(const char* domain_file, const char* host)
      : domain_{rt_.open_xrc_domain(domain_file)},
        pool_{rt_.share_receives(inbox(domain_, 32, buffer_bytes))},
        acceptor_{rt_.listen(endpoint{host, 0}, {}, as_target())} {}

  reply obey(const order& o) {
    reply a;
    try {
      a = rt_.run(done(o));
    } catch (const error& e) {
      a.code = e.code().value();
      std::snprintf(a.why.data(), a.why.size(), "%s", e.what());
    }
    return a;
  }

 private:
  connection_options as_target() {
    connection_options o = one_queue_pair();
    o.transport = verbs::queue_pair_type::xrc_target;
    o.xrc_domain = &domain_;
    return o;
  }
  static connection_options as_initiator() {
    connection_options o = one_queue_pair();
    o.transport = verbs::queue_pair_type::xrc_initiator;
    return o;
  }

  task<reply> done(order o) {
    reply a{.well = true};
    switch (o.what) {
      case deed::introduce:
        a.number = pool_.num();
        a.port = acceptor_.local_endpoint().port;
        a.memory = granted_.remote_slice().encode();
        break;
      case deed::accept:
        connections_.push_back(co_await acceptor_.accept());
        a.number = std::uint32_t(connections_.size() - 1);
        break;
      case deed::connect: {
        const endpoint server{o.host.data(), o.port};
        connections_.push_back(co_await rt_.connect(server, as_initiator()));
        a.number = std::uint32_t(connections_.size() - 1);
        break;
      }
      case deed::send:
        fill(o);
        co_await connections_.at(o.which).to(o.number).send(source_.slice(0, o.bytes));
        break;
      case deed::write:
      case deed::read: {
        const remote_mr_slice there = remote_mr_slice::decode(o.memory).slice(0, o.bytes);
        auto requests = connections_.at(o.which).to(o.number);
        if (o.what == deed::read) {
          co_await requests.read(source_.slice(0, o.bytes), there);
        } else {
          fill(o);
          co_await requests.write(source_.slice(0, o.bytes), there);
        }
        break;
      }
      case deed::hear: {
        const shared_receives::message m = co_await pool_.next_message();
        a.well = m.size_bytes() == o.bytes && is_by(m.payload().bytes(), o.seed);
        break;
      }
      case deed::holds: a.well = is_by(granted_.bytes().first(o.bytes), o.seed); break;
      case deed::end: co_await connections_.at(o.which).ended(); break;
      case deed::count: {
        std::set<std::uint32_t> numbers;
        for (connection& c : connections_) {
          numbers.insert(c.verbs().num());
          if (c.local_hello().agent.qpn != 0) numbers.insert(c.local_hello().agent.qpn);
        }
        a.number = std::uint32_t(numbers.size());
        break;
      }
    }
    co_return a;
  }
  static std::byte byte_of(std::size_t at, unsigned seed) {
    return static_cast<std::byte>(at * 7 + seed * 13);
  }
  void fill(const order& o) {
    for (std::size_t i = 0; i < o.bytes; ++i) source_.bytes()[i] = byte_of(i, o.seed);
  }
  static bool is_by(std::span<const std::byte> bytes, unsigned seed) {
    for (std::size_t i = 0; i < bytes.size(); ++i)
      if (bytes[i] != byte_of(i, seed)) return false;
    return true;
  }

  runtime rt_{on_test_device()};
  verbs::xrc_domain& domain_;
  shared_receives& pool_;
  local_mr source_ = rt_.memory(all_access).allocate_zeroed(buffer_bytes);
  local_mr granted_ = rt_.memory(all_access).allocate_zeroed(buffer_bytes);
  listener acceptor_;
  std::deque<connection> connections_;
};

/// A process, as its test sees it. Made before the test opens a device: a fork copies none.
class member {
 public:
  explicit member(const std::string& domain_file, const two_hosts* hosts = nullptr,
                  std::size_t which = 0)
      : host_{hosts == nullptr ? "127.0.0.1" : two_hosts::addresses.at(which)} {
    int ends[2] = {-1, -1};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    ours_ = unique_fd{ends[0]};
    unique_fd theirs{ends[1]};
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ != 0) return;
    ours_.reset();
    live(theirs.get(), domain_file, hosts, which);
  }
  member(const member&) = delete;
  member& operator=(const member&) = delete;
  ~member() { kill(); }
  void kill() noexcept {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

  void tell(const order& o) { REQUIRE(::write(ours_.get(), &o, sizeof o) == sizeof o); }
  reply heard() {
    reply a;
    REQUIRE(::recv(ours_.get(), &a, sizeof a, MSG_WAITALL) == sizeof a);
    return a;
  }
  reply obey(const order& o) {
    tell(o);
    return heard();
  }
  const reply& self() {
    if (self_.number == 0) self_ = obey({.what = deed::introduce});
    return self_;
  }
  [[nodiscard]] const std::string& host() const noexcept { return host_; }

  reply send(std::uint32_t by, member& to, std::uint32_t bytes, unsigned seed) {
    return obey({.what = deed::send,
                 .which = by,
                 .number = to.self().number,
                 .bytes = bytes,
                 .seed = seed});
  }
  bool hears(std::uint32_t bytes, unsigned seed) {
    return obey({.what = deed::hear, .bytes = bytes, .seed = seed}).well;
  }

 private:
  [[noreturn]] static void live(int control, const std::string& domain_file, const two_hosts* hosts,
                                std::size_t which) noexcept {
    try {
      if (hosts != nullptr) hosts->enter(which);
      member_process self{domain_file.c_str(),
                          hosts == nullptr ? "127.0.0.1" : two_hosts::addresses.at(which)};
      order o;
      while (::recv(control, &o, sizeof o, MSG_WAITALL) == sizeof o) {
        const reply a = self.obey(o);
        if (::write(control, &a, sizeof a) != sizeof a) break;
      }
    } catch (const std::exception& e) {
      std::fprintf(stderr, "xrc member: %s\n", e.what());
    }
    ::_exit(0);
  }

  const std::string host_;
  unique_fd ours_;
  pid_t pid_ = 0;
  reply self_;
};

/// Connects an initiator of `from` with a target of `to`.
struct connected {
  std::uint32_t initiator = 0;
  std::uint32_t target = 0;
};
inline connected connect(member& from, member& to) {
  const std::uint16_t port = to.self().port;
  order there{.what = deed::connect, .port = port};
  to.host().copy(there.host.data(), there.host.size() - 1);
  there.host[to.host().size()] = '\0';
  to.tell({.what = deed::accept});
  const reply connected = from.obey(there);
  INFO(connected.why.data());
  REQUIRE(connected.well);
  return {connected.number, to.heard().number};
}

}  // namespace cordma::test::xrc
