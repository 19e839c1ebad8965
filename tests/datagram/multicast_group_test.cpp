#include "datagram/multicast_group.hpp"

#include "sockets.hpp"
#include "support/leaks.hpp"

#include <cordma/verbs/gid.hpp>

#include <arpa/inet.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

using namespace cordma;
using namespace cordma::test;
using Catch::Matchers::Contains;

namespace {

ibv_gid gid(const char* text) {
  ibv_gid made{};
  REQUIRE(::inet_pton(AF_INET6, text, made.raw) == 1);
  return made;
}

/// A row of the device's table with an address of IPv6; nothing: there is none.
std::optional<std::uint32_t> ip6_row() {
  verbs::context ctx{device_name()};
  const auto table = ctx.gid_table(ctx.active_port().number);
  const verbs::gid_entry chosen = verbs::choose_gid(table, {.family = verbs::gid_request::ip::v6});
  const bool is_ip4 = verbs::to_string(chosen.gid).starts_with("::ffff:");
  return is_ip4 ? std::nullopt : std::optional{chosen.index};
}

/// IPv4 multicast addresses of this host's network interfaces, as the kernel lists them.
bool host_has_joined(const char* group) {
  in_addr address{};
  REQUIRE(::inet_pton(AF_INET, group, &address) == 1);
  char text[16];
  std::snprintf(text, sizeof text, "%08X", address.s_addr);
  std::ifstream file{"/proc/self/net/igmp"};
  const std::string lines{std::istreambuf_iterator<char>{file}, {}};
  return lines.find(text) != std::string::npos;
}

/// A group that no other test of this process, or another process, uses.
std::string own_group(unsigned last) {
  const unsigned process = unsigned(::getpid());
  return "239." + std::to_string(process >> 8 & 0xff) + '.' + std::to_string(process & 0xff) + '.' +
         std::to_string(last);
}

}  // namespace

TEST_CASE("members of a group get what another socket sends there", "[datagram][device]") {
  two_sockets s;
  datagram_socket c = s.rt.open_datagram({.qkey = qkey});
  const std::string group = own_group(1);
  const multicast_membership of_b = s.rt.run(s.b.join(group));
  const multicast_membership of_c = s.rt.run(c.join(group));
  CHECK(of_b.address() == of_c.address());
  CHECK(of_b.address().qpn == datagram_address::multicast_qpn);
  s.post_to(s.b);
  s.post_to(c);
  s.rt.run(s.a.send_to(of_b.address(), s.text("to all")));
  for (datagram_socket* member : {&s.b, &c}) {
    const datagram got = s.next(*member);
    CHECK(text_of(got) == "to all");
    CHECK(got.was_multicast);
    CHECK(got.sender.qpn == s.a.address().qpn);
  }
}

TEST_CASE("who was sent a datagram by multicast answers its sender alone", "[datagram][device]") {
  two_sockets s;
  const multicast_membership member = s.rt.run(s.b.join(own_group(2)));
  s.post_to(s.a);
  s.post_to(s.b);
  s.rt.run(s.a.send_to(member.address(), s.text("who is there?")));
  s.rt.run(s.b.send_to(s.next(s.b).sender, s.text("b")));
  const datagram answer = s.next(s.a);
  CHECK(text_of(answer) == "b");
  CHECK_FALSE(answer.was_multicast);
}

TEST_CASE("a membership that is dropped leaves its group", "[datagram][device]") {
  two_sockets s;
  const std::string group = own_group(3);
  std::optional member{s.rt.run(s.b.join(group))};
  const datagram_address address = member->address();
  s.post_to(s.b, 2);
  s.rt.run(s.a.send_to(address, s.text("1")));
  CHECK(text_of(s.next(s.b)) == "1");
  CHECK(host_has_joined(group.c_str()));
  member.reset();
  CHECK_FALSE(host_has_joined(group.c_str()));
  s.rt.run(s.a.send_to(address, s.text("2")));
  s.rt.run(s.a.send_to(s.b.address(), s.text("3")));
  CHECK(text_of(s.next(s.b)) == "3");
}

TEST_CASE("a socket that joins twice gets a datagram once, until both memberships are dropped",
          "[datagram][device]") {
  two_sockets s;
  const std::string group = own_group(4);
  std::optional first{s.rt.run(s.b.join(group))};
  const multicast_membership second = s.rt.run(s.b.join(group));
  s.post_to(s.b, 3);
  s.rt.run(s.a.send_to(second.address(), s.text("1")));
  CHECK(text_of(s.next(s.b)) == "1");
  first.reset();
  s.rt.run(s.a.send_to(second.address(), s.text("2")));
  CHECK(text_of(s.next(s.b)) == "2");
  s.rt.run(s.a.send_to(s.b.address(), s.text("3")));
  CHECK(text_of(s.next(s.b)) == "3");
}

TEST_CASE("a member gets nothing of other groups, nor, on soft0, of what it sends itself",
          "[datagram][device]") {
  two_sockets s;
  const multicast_membership own = s.rt.run(s.b.join(own_group(5)));
  const multicast_membership other = s.rt.run(s.a.join(own_group(6)));
  s.post_to(s.b);
  s.rt.run(s.a.send_to(other.address(), s.text("1")));
  if (is_soft()) s.rt.run(s.b.send_to(own.address(), s.text("2")));
  s.rt.run(s.a.send_to(s.b.address(), s.text("3")));
  CHECK(text_of(s.next(s.b)) == "3");
}

TEST_CASE("a member that only sends receives nothing", "[datagram][device]") {
  two_sockets s;
  const std::string group = own_group(7);
  const multicast_membership sender = s.rt.run(s.a.join(group, {.send_only = true}));
  const multicast_membership member = s.rt.run(s.b.join(group));
  s.post_to(s.a);
  s.post_to(s.b);
  s.rt.run(s.a.send_to(sender.address(), s.text("out")));
  CHECK(text_of(s.next(s.b)) == "out");
  s.rt.run(s.b.send_to(member.address(), s.text("back")));
  s.rt.run(s.b.send_to(s.a.address(), s.text("alone")));
  CHECK(text_of(s.next(s.a)) == "alone");
}

TEST_CASE("members with another Q_Key get nothing", "[datagram][device]") {
  two_sockets s{{.qkey = qkey}, {.qkey = qkey + 1}};
  const std::string group = own_group(8);
  const multicast_membership of_a = s.rt.run(s.a.join(group, {.send_only = true}));
  const multicast_membership of_b = s.rt.run(s.b.join(group));
  s.post_to(s.b);
  s.rt.run(s.a.send_to(of_a.address(), s.text("1")));
  s.rt.run(s.a.send_to(of_b.address(), s.text("2")));
  CHECK(text_of(s.next(s.b)) == "2");
}

TEST_CASE("IPv6 groups and raw MGIDs take a socket with an address of IPv6", "[datagram][device]") {
  const auto row = ip6_row();
  if (!row) return;  // The next test is for this device.
  two_sockets s{{.gid_index = row, .qkey = qkey}, {.gid_index = row, .qkey = qkey}};
  char prefix[32];
  std::snprintf(prefix, sizeof prefix, "ff15::%x:", unsigned(::getpid()) & 0xffff);
  const std::string group{prefix};
  const multicast_membership by_ip = s.rt.run(s.b.join(group + "1"));
  const multicast_membership by_mgid = s.rt.run(s.b.join(gid((group + "2").c_str())));
  CHECK(by_ip.address().path.gid.raw[15] == 1);
  s.post_to(s.b, 2);
  for (const auto& [member, bytes] : {std::pair{&by_ip, "ip"}, std::pair{&by_mgid, "mgid"}}) {
    s.rt.run(s.a.send_to(member->address(), s.text(bytes)));
    const datagram got = s.next(s.b);
    CHECK(text_of(got) == bytes);
    CHECK(got.was_multicast);
  }
}

TEST_CASE("a group of another version of IP than the socket's address is refused",
          "[datagram][device]") {
  two_sockets s;
  const bool is_ip4 = verbs::to_string(s.a.address().path.gid).starts_with("::ffff:");
  const failure refused = s.failure_of(s.a.join(is_ip4 ? "ff15::1" : "239.1.2.3"));
  CHECK_THAT(refused.to_string(), Contains("another version of IP") && Contains("gid_index"));
}

TEST_CASE("what is no group is refused by name", "[datagram][device]") {
  two_sockets s;
  CHECK_THROWS_WITH(s.a.join("10.0.0.1"), Contains("\"10.0.0.1\" is no IP multicast group"));
  CHECK_THROWS_WITH(s.a.join("fe80::1"), Contains("\"fe80::1\""));
  CHECK_THROWS_WITH(s.a.join(""), Contains("\"\""));
  CHECK_THROWS_WITH(s.a.join(std::string(1000, '2')), Contains("222"));
  CHECK_THAT(s.failure_of(s.a.join(gid("fe80::1"))).to_string(),
             Contains("fe80::1 is no multicast group"));
  CHECK_THAT(s.failure_of(s.a.join(ibv_gid{})).to_string(), Contains("begins with ff"));
  CHECK_FALSE(s.a.why_lost().has_value());
}

TEST_CASE("a socket that is dropped leaves its groups, and memberships outlive it",
          "[datagram][device]") {
  runtime rt{on_test_device()};
  {
    datagram_socket warm = rt.open_datagram();
    static_cast<void>(rt.run(warm.join(own_group(12))));
  }
  const std::string before = holdings();
  const std::string group = own_group(9);
  auto socket = std::make_unique<datagram_socket>(rt.open_datagram());
  std::optional member{rt.run(socket->join(group))};
  task<multicast_membership> never = socket->join(own_group(10));
  socket.reset();
  CHECK_FALSE(host_has_joined(group.c_str()));
  CHECK(member->address().qpn == datagram_address::multicast_qpn);
  const auto outcome = rt.run(as_result(std::move(never)));
  CHECK(outcome.failure().code == errc::closed);
  member.reset();
  CHECK(settled_holdings(rt.executor(), before) == before);
}

TEST_CASE("a device that attaches no more leaves no membership of the IP group",
          "[datagram][device]") {
  if (!is_soft()) return;  // Other devices have groups for thousands.
  two_sockets s;
  std::vector<multicast_membership> members;
  std::optional<failure> why;
  std::string group;
  for (unsigned n = 0; n < 1000 && !why; ++n) {
    group = "239.77." + std::to_string(n / 250) + '.' + std::to_string(n % 250);
    auto made = s.rt.run(as_result(s.b.join(group)));
    if (made.has_failure()) why = made.failure();
    if (made.has_value()) members.push_back(std::move(*made));
  }
  REQUIRE(why.has_value());
  CHECK_THAT(why->to_string(), Contains("ibv_attach_mcast") && Contains("::ffff:" + group));
  CHECK_FALSE(host_has_joined(group.c_str()));
  members.clear();
  CHECK_NOTHROW(s.rt.run(s.b.join(own_group(11))));
}
