#include "multicast/group_network.hpp"

#include "groups.hpp"
#include "link/ip_address.hpp"
#include "multicast/membership.hpp"
#include "node/node.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <cstdlib>

using namespace softverbs;

namespace {

/// While it lives, this thread is on a host of its own with all addresses 10.77.0.x.
class own_host {
 public:
  own_host() {
    REQUIRE(before_);
    REQUIRE(::unshare(CLONE_NEWNET) == 0);
    REQUIRE(std::system("ip link set lo up && ip addr add 10.77.0.1/24 dev lo") == 0);
  }
  ~own_host() { ::setns(before_.get(), CLONE_NEWNET); }
  own_host(const own_host&) = delete;
  own_host& operator=(const own_host&) = delete;

  static bool is_possible() {
    if (::geteuid() == 0 && std::system("unshare --net true 2>/dev/null") == 0) return true;
    WARN("skipped: no network namespaces here");
    return false;
  }

 private:
  unique_fd before_{::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)};
};

in6_addr address(std::uint32_t n) { return mapped({htonl(0x0a4d'0000U + n)}); }

sockaddr_in name_of(const in6_addr& host, std::uint16_t port) {
  return {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = ip4_of(host), .sin_zero = {}};
}

void send_from(const in6_addr& from, const in6_addr& to, std::uint16_t port,
               std::span<const std::byte> bytes) {
  const unique_fd socket{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  const sockaddr_in source = name_of(from, 0);
  const sockaddr_in target = name_of(to, port);
  REQUIRE(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&source), sizeof source) == 0);
  REQUIRE(::sendto(socket.get(), bytes.data(), bytes.size(), 0,
                   reinterpret_cast<const sockaddr*>(&target),
                   sizeof target) == static_cast<ssize_t>(bytes.size()));
}

/// A network that listens at an address, or at all of them.
struct listener {
  explicit listener(const in6_addr& at, const char* peers = nullptr) {
    tcp_settings tcp;
    tcp.listen = at;
    tcp.listen_set = true;
    port = static_cast<std::uint16_t>(tcp.port + announcement_port);
    REQUIRE(network.open(tcp, peers));
    REQUIRE(network.is_open());
  }
  /// Sends a datagram of 8 bytes, and returns what was received.
  group_network::received take(const in6_addr& from, const in6_addr& to) {
    std::array<std::byte, 8> bytes{};
    send_from(from, to, port, bytes);
    pollfd ready{network.descriptor(), POLLIN, 0};
    REQUIRE(::poll(&ready, 1, -1) == 1);
    const auto came = network.receive(bytes);
    REQUIRE(came);
    CHECK(same(came->from, from));
    CHECK(came->unicast);
    return *came;
  }
  group_network network;
  std::uint16_t port = 0;
};

}  // namespace

TEST_CASE("unicast to another address than the one of the process is dropped", "[multicast]") {
  if (!own_host::is_possible()) return;
  const own_host here;
  {
    listener one{address(1)};
    CHECK(one.take(address(2), address(1)).bytes == 8);
    CHECK(one.take(address(2), address(9)).bytes == 0);
  }
  listener all{mapped({INADDR_ANY})};
  CHECK(all.take(address(2), address(1)).bytes == 8);
  CHECK(all.take(address(2), address(9)).bytes == 8);
}

TEST_CASE("with a list of hosts, no other host is heard", "[multicast]") {
  if (!own_host::is_possible()) return;
  const own_host here;
  {
    const listener listed{address(1), "10.77.0.2,10.77.0.3"};
    CHECK(listed.network.hears(address(2)));
    CHECK(listed.network.hears(address(3)));
    CHECK_FALSE(listed.network.hears(address(4)));
  }
  {
    const listener nobody{address(1), "fd99::1"};
    CHECK_FALSE(nobody.network.hears(address(2)));
  }
  const listener open{address(1)};
  CHECK(open.network.hears(address(4)));
}

TEST_CASE("a host that is not listed announces no members", "[multicast]") {
  if (!own_host::is_possible()) return;
  const own_host here;
  ::setenv("SOFTVERBS_LISTEN", "10.77.0.1", 1);
  ::setenv("SOFTVERBS_PEERS", "10.77.0.2", 1);
  std::atomic<bool> used{false};
  node& local_node = node::acquire();
  group_membership& groups = group_membership::of(local_node);
  groups.acquire(used);
  announcement words{};
  words.what = announcement::kind::members;
  words.slot = 5;
  words.count = 1;
  words.groups[0] = test::group(1);
  groups.watch(words.groups[0]);
  const auto port =
      static_cast<std::uint16_t>(tcp_settings_of_environment().port + announcement_port);
  for (const std::uint32_t n : {4U, 2U}) send_from(address(n), address(1), port, words.bytes());
  std::shared_ptr<const group_view::members> list;
  do list = groups.members_of(words.groups[0], clock::now()).members;
  while (list->empty());
  CHECK(*list == group_view::members{node_address{address(2), 5}});
  groups.release();
  node::release(local_node);
  ::unsetenv("SOFTVERBS_LISTEN");
  ::unsetenv("SOFTVERBS_PEERS");
}
