#include "cm/entrance.hpp"

#include "link/listeners.hpp"
#include "link/tcp_listener.hpp"
#include "transport_rig.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>

#include <string>
#include <vector>

namespace softverbs::cm::test {

namespace {

/// Welcomes every peer, as one of another host.
struct welcome final : entrance::host {
  bool admit(arrival&) noexcept override { return true; }
  void on_arrival(arrival&&, const message&) noexcept override {}
};

/// Pairs of connected sockets of TCP.
struct road {
  road() { REQUIRE(listener); }
  /// Brings a silent socket from that address to the entrance. Returns the peer's end.
  unique_fd bring(const char* source, entrance& to, watched::time now) const {
    const in6_addr from = address_of(source);
    unique_fd peer;
    REQUIRE(connect_tcp(address_of("127.0.0.1"), port, peer, &from));
    pollfd one{listener.get(), POLLIN, 0};
    REQUIRE(::poll(&one, 1, -1) == 1);
    to.accept(unique_fd{::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)},
              false, now);
    return peer;
  }
  const std::uint16_t port = cm_port(static_cast<std::uint16_t>(std::stoi(free_port())));
  const unique_fd listener = open_tcp_listener(address_of("127.0.0.1"), port);
};

/// True if the other end is closed, or is about to be.
bool is_lost(const unique_fd& peer) {
  pollfd one{peer.get(), POLLIN, 0};
  return ::poll(&one, 1, 60'000) == 1;
}

bool is_kept(const unique_fd& peer) {
  char byte = 0;
  return ::recv(peer.get(), &byte, 1, MSG_DONTWAIT) < 0;
}

}  // namespace

TEST_CASE("the host that has most silent connections loses its oldest", "[cm]") {
  const road by;
  poller events;
  REQUIRE(events.open());
  welcome owner;
  entrance incoming{events, owner};
  watched::time now{};
  const auto next = [&](const char* source) {
    now += std::chrono::milliseconds{1};
    return by.bring(source, incoming, now);
  };
  const unique_fd oldest = next("127.0.0.2");
  std::vector<unique_fd> crowd;
  for (unsigned n = 1; n < requests_pending_max; ++n) crowd.push_back(next("127.0.0.3"));
  CHECK(is_kept(crowd.front()));
  const unique_fd newcomer = next("127.0.0.4");
  CHECK(is_lost(crowd.front()));
  CHECK(is_kept(crowd[1]));
  crowd.push_back(next("127.0.0.3"));
  CHECK(is_lost(crowd[1]));
  CHECK(is_kept(crowd[2]));
  CHECK(is_kept(oldest));
  CHECK(is_kept(newcomer));
}

}  // namespace softverbs::cm::test
