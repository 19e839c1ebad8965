#include "link/link.hpp"

#include "cancellation.hpp"
#include "link/ip_address.hpp"
#include "link/peer.hpp"
#include "link/tcp_listener.hpp"
#include "node/doubles.hpp"
#include "node/node.hpp"
#include "queue/completion_queue.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <vector>

namespace softverbs::test {

namespace {

constexpr const char* by_tcp = "SOFTVERBS_LINK=tcp";

/// A node with one QP number, on the kind of link that it names.
struct local_side {
  explicit local_side(bool tcp = false) : tcp_{tcp} {
    test::upcalls().reset();
    if (tcp_) ::setenv("SOFTVERBS_LINK", "tcp", 1);
    local_node = &node::acquire();
    qpn = local_node->allocate_qpn();
  }
  ~local_side() {
    local_node->free_qpn(qpn);
    node::release(*local_node);
    if (tcp_) ::unsetenv("SOFTVERBS_LINK");
  }
  [[nodiscard]] const char* environment() const { return tcp_ ? by_tcp : nullptr; }
  link* link_to(const peer_process& peer) const {
    node_address to;
    to.slot = slot_of(peer.qpn());
    return local_node->link_to(to);
  }

  node* local_node = nullptr;
  std::uint32_t qpn = 0;

 private:
  bool tcp_;
};

sent send_one(link& route, std::uint32_t psn, std::uint32_t bytes, std::uint32_t from,
              std::uint32_t to) {
  frame_header header{};
  header.kind = frame_kind::send;
  header.psn = psn;
  header.payload_bytes = bytes;
  header.source_qpn = from;
  header.destination_qpn = to;
  const link::frame_room room = route.reserve(header, from);
  if (room.result == sent::yes) {
    std::memset(room.payload, static_cast<int>(psn), bytes);
    route.commit();
  }
  return room.result;
}

/// Hosts whose processes accept connections and say nothing, at addresses of this test run alone.
class silent_hosts {
 public:
  node_address process(std::uint8_t host, std::uint32_t slot) {
    const auto run = static_cast<std::uint32_t>(::getpid());
    node_address made{mapped({htonl(0x7f80'0000U | (run & 0x7fff) << 8 | (host + 1U))}),
                      static_cast<std::uint16_t>(slot)};
    const auto port = static_cast<std::uint16_t>(tcp_settings_of_environment().port + slot);
    listeners_.push_back(open_tcp_listener(made.host, port));
    REQUIRE(listeners_.back());
    return made;
  }
  void end_first() { listeners_.front().reset(); }

 private:
  std::vector<unique_fd> listeners_;
};

std::size_t descriptors() {
  const std::filesystem::directory_iterator all{"/proc/self/fd"};
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

}  // namespace

TEST_CASE("requests reach another process, and its answers come back", "[link]") {
  const bool tcp = GENERATE(false, true);
  const char* job = GENERATE("echo", "poll");
  CAPTURE(tcp, job);
  local_side local{tcp};
  test::seen& all = test::upcalls();
  const peer_process peer{job, local.environment()};
  link* route = local.link_to(peer);
  REQUIRE(route != nullptr);
  CHECK(local.link_to(peer) == route);
  constexpr std::uint32_t frames = 2000;
  for (std::uint32_t psn = 0; psn < frames;) {
    const sent result = send_one(*route, psn, psn * 37 % segment_bytes_max, local.qpn, peer.qpn());
    REQUIRE(result != sent::down);
    if (result == sent::yes) {
      ++psn;
      continue;
    }
    REQUIRE(all.wait([&] { return all.runs[local.qpn] != 0; }));  // Kicked: there is room.
    const std::lock_guard lock{all.mutex};
    all.runs.clear();
  }
  REQUIRE(all.wait([&] { return all.answers.size() == frames; }));
  const std::lock_guard lock{all.mutex};
  for (std::uint32_t psn = 0; psn < frames; ++psn) REQUIRE(all.answers[psn].header.psn == psn);
  CHECK(all.answers[0].from.slot == slot_of(peer.qpn()));
  CHECK(all.downs.empty());
}

TEST_CASE("a thread that is cancelled opens a link, and sends on it", "[link]") {
  const bool tcp = GENERATE(false, true);
  CAPTURE(tcp);
  local_side local{tcp};
  test::seen& all = test::upcalls();
  const peer_process peer{"echo", local.environment()};
  // The engine of the peer sleeps before the second frame, which needs a doorbell.
  for (const std::uint32_t psn : {0U, 1U}) {
    CHECK(runs_while_cancelled([&] {
      link* const route = local.link_to(peer);
      REQUIRE(route != nullptr);
      CHECK(send_one(*route, psn, 8, local.qpn, peer.qpn()) == sent::yes);
      local.local_node->kick(local.qpn);
    }));
    REQUIRE(all.wait([&] { return all.answers.size() == psn + 1; }));
  }
}

TEST_CASE("a poller alone carries a ping-pong", "[link]") {
  const bool tcp = GENERATE(false, true);
  local_side local{tcp};
  test::seen& all = test::upcalls();
  const peer_process peer{"poll", local.environment()};
  link* route = local.link_to(peer);
  REQUIRE(route != nullptr);
  const auto cq = std::make_unique<completion_queue>();
  for (std::uint32_t psn = 0; psn < 200; ++psn) {
    REQUIRE(send_one(*route, psn, 8, local.qpn, peer.qpn()) == sent::yes);
    for (bool answered = false; !answered;) {
      local.local_node->on_empty_poll(*cq);
      const std::lock_guard lock{all.mutex};
      answered = all.answers.size() == psn + 1;
    }
  }
}

TEST_CASE("nobody there: no link", "[link]") {
  local_side local;
  node_address to;
  to.slot = static_cast<std::uint16_t>(local.local_node->slot() ^ 1);
  CHECK(local.local_node->link_to(to) == nullptr);
}

TEST_CASE("a TCP link to a closed port goes down by itself", "[link]") {
  local_side local{true};
  test::seen& all = test::upcalls();
  node_address to;
  to.slot = static_cast<std::uint16_t>(local.local_node->slot() ^ 1);
  link* route = local.local_node->link_to(to);
  if (route != nullptr) {
    CHECK(all.wait([&] { return !all.downs.empty(); }));
    CHECK(send_one(*route, 0, 8, local.qpn, 2) == sent::down);
  }
}

TEST_CASE("a stopped peer fills the ring; once it goes on, the waiter is kicked", "[link]") {
  local_side local;
  test::seen& all = test::upcalls();
  const peer_process peer{"echo"};
  link* route = local.link_to(peer);
  REQUIRE(route != nullptr);
  peer.signal(SIGSTOP);
  std::uint32_t psn = 0;
  sent result = sent::yes;
  while ((result = send_one(*route, psn, 10'000, local.qpn, peer.qpn())) == sent::yes) ++psn;
  REQUIRE(result == sent::full);
  CHECK(route->up());
  peer.signal(SIGCONT);
  CHECK(all.wait([&] { return all.runs[local.qpn] != 0 && all.answers.size() == psn; }));
}

TEST_CASE("when a peer is killed its link goes down for every QP, and another can come", "[link]") {
  const bool tcp = GENERATE(false, true);
  local_side local{tcp};
  test::seen& all = test::upcalls();
  const std::uint32_t second = local.local_node->allocate_qpn();
  for (int round = 0; round < 5; ++round) {
    peer_process peer{"echo", local.environment()};
    link* route = local.link_to(peer);
    REQUIRE(route != nullptr);
    REQUIRE(send_one(*route, 1, 8, local.qpn, peer.qpn()) == sent::yes);
    REQUIRE(all.wait([&] { return all.answers.size() == 1; }));
    peer.kill();
    REQUIRE(all.wait([&] { return all.downs.size() == 2; }));
    CHECK_FALSE(route->up());
    CHECK(send_one(*route, 2, 8, local.qpn, peer.qpn()) == sent::down);
    if (!tcp) CHECK(local.link_to(peer) == nullptr);
    const std::lock_guard lock{all.mutex};
    CHECK(std::count(all.downs.begin(), all.downs.end(), second) == 1);
    all.downs.clear();
    all.answers.clear();
  }
  local.local_node->free_qpn(second);
}

TEST_CASE("processes killed in the middle of their frames leave nothing behind", "[link]") {
  const bool tcp = GENERATE(false, true);
  local_side local{tcp};
  test::seen& all = test::upcalls();
  all.locked([&] { return all.keep_payloads = false; });
  const std::size_t before = descriptors();
  for (int round = 0; round < 10; ++round) {
    peer_process peer{"flood " + std::to_string(local.local_node->slot()), local.environment()};
    const auto enough = static_cast<std::size_t>(1 + round * 74);
    REQUIRE(all.wait([&] { return all.requests.size() >= enough; }));
    peer.kill();
    const std::lock_guard lock{all.mutex};
    all.requests.clear();
  }
  // A link is closed after its peer: a last peer's answer shows that the engine has come so far.
  {
    const peer_process last{"echo", local.environment()};
    link* route = local.link_to(last);
    REQUIRE(route != nullptr);
    REQUIRE(send_one(*route, 1, 8, local.qpn, last.qpn()) == sent::yes);
    REQUIRE(all.wait([&] { return all.answers.size() == 1; }));
  }
  REQUIRE(all.wait([&] { return !all.downs.empty(); }));
  // Links that killed processes opened close after a while; no call reports it.
  const auto patience = clock::now() + std::chrono::seconds{30};
  while (descriptors() > before && clock::now() < patience) std::this_thread::yield();
  CHECK(descriptors() <= before);
}

TEST_CASE("a peer whose answers are lies loses its link, and nothing else happens", "[link]") {
  local_side local;
  test::seen& all = test::upcalls();
  const peer_process liar{"echo"};
  const peer_process honest{"echo"};
  link* bad = local.link_to(liar);
  link* good = local.link_to(honest);
  REQUIRE(bad != nullptr);
  REQUIRE(good != nullptr);
  all.locked([&] { return all.answers_are_lies = true; });
  REQUIRE(send_one(*bad, 1, 8, local.qpn, liar.qpn()) == sent::yes);
  REQUIRE(all.wait([&] { return !all.downs.empty(); }));
  {
    const std::lock_guard lock{all.mutex};
    all.answers_are_lies = false;
    all.answers.clear();
  }
  REQUIRE(send_one(*good, 2, 8, local.qpn, honest.qpn()) == sent::yes);
  CHECK(all.wait([&] { return all.answers.size() == 1; }));
  CHECK(good->up());
}

TEST_CASE("members on other hosts have a share of the links, and no more", "[link]") {
  silent_hosts far;
  local_side local;
  node& from = *local.local_node;
  constexpr std::uint8_t hosts = member_links_max / member_links_per_host_max;
  std::vector<node_address> members;
  for (std::uint8_t host = 0; host < hosts; ++host) {
    for (std::uint32_t slot = 0; slot < member_links_per_host_max; ++slot) {
      members.push_back(far.process(host, slot));
      REQUIRE(from.link_to_member(members.back()) != nullptr);
    }
    CHECK(from.link_to_member(far.process(host, member_links_per_host_max)) == nullptr);
  }
  const node_address another = far.process(hosts, 0);
  CHECK(from.link_to_member(another) == nullptr);
  // The rest of the links is for other peers, and a link that is there serves a group as well.
  link* const route = from.link_to(another);
  REQUIRE(route != nullptr);
  CHECK(from.link_to_member(another) == route);
  CHECK(from.link_to(members.back()) == from.link_to_member(members.back()));

  // When a member has gone, another gets its link.
  far.end_first();
  test::seen& all = test::upcalls();
  REQUIRE(all.wait([&] { return !all.downs.empty(); }));
  CHECK(from.link_to_member(far.process(hosts + 1, 0)) != nullptr);
  CHECK(from.link_to_member(far.process(hosts + 2, 0)) == nullptr);
}

}  // namespace softverbs::test
