#include "transport_rig.hpp"

#include "cm/message_check.hpp"
#include "cm/socket_conversation.hpp"
#include "link/ip_address.hpp"
#include "link/listeners.hpp"
#include "link/tcp_listener.hpp"

#include <rdma/rdma_user_cm.h>

#include <catch2/catch.hpp>

#include <cerrno>
#include <set>

using namespace softverbs;
using namespace softverbs::cm;
using namespace softverbs::cm::test;
using namespace std::chrono_literals;

TEST_CASE("a name is one process's, and is free again when its binding ends", "[cm]") {
  side one, other;
  auto bound = one.bind("127.0.0.1");
  REQUIRE(bound);
  const std::uint16_t port = bound->at().port;
  CHECK_FALSE(other.bind("127.0.0.1", port));
  CHECK(other.error == EADDRINUSE);
  CHECK_FALSE(one.bind("127.0.0.1", port));
  CHECK(one.error == EADDRINUSE);
  CHECK(other.bind("127.0.0.2", port));
  int error = 0;
  CHECK(other.network->bind(RDMA_PS_UDP, at("127.0.0.1", port), false, false, error));
  bound.reset();
  CHECK(other.bind("127.0.0.1", port));
}

TEST_CASE("a wildcard and an address of the same port exclude each other", "[cm]") {
  struct row {
    const char* first;
    bool first_v6_only;
    const char* second;
    bool second_v6_only;
    int error;
  };
  const auto [first, first_v6_only, second, second_v6_only, expected] = GENERATE(values<row>({
      {"0.0.0.0", false, "127.0.0.1", false, EADDRNOTAVAIL},
      {"127.0.0.1", false, "0.0.0.0", false, EADDRNOTAVAIL},
      {"0.0.0.0", false, "0.0.0.0", false, EADDRNOTAVAIL},
      {"::", false, "127.0.0.1", false, EADDRNOTAVAIL},
      {"::", true, "127.0.0.1", false, 0},
      {"127.0.0.1", false, "::", true, 0},
      {"::", true, "0.0.0.0", false, 0},
      {"::", true, "::1", false, EADDRNOTAVAIL},
      {"::", true, "::1", true, EADDRNOTAVAIL},
      {"0.0.0.0", false, "::1", false, EADDRNOTAVAIL},
      {"0.0.0.0", false, "::1", true, 0},
      {"127.0.0.1", false, "::1", false, 0},
      {"::1", true, "::1", false, EADDRINUSE},
      {"::", true, "::", false, EADDRNOTAVAIL},
  }));
  CAPTURE(first, first_v6_only, second, second_v6_only);
  side one, other;
  const auto bound = one.bind(first, 0, first_v6_only);
  REQUIRE(bound);
  const auto another = other.bind(second, bound->at().port, second_v6_only);
  CHECK(other.error == expected);
}

TEST_CASE("names that may be shared are, until one of them listens", "[cm]") {
  side one, other;
  const std::uint16_t port = one.bind("127.0.0.1")->at().port;
  auto first = one.bind("127.0.0.1", port, false, true);
  REQUIRE(first);
  CHECK_FALSE(other.bind("127.0.0.1", port));
  CHECK(other.error == EADDRINUSE);
  auto second = other.bind("127.0.0.1", port, false, true);
  REQUIRE(second);
  CHECK(first->listen() == EADDRINUSE);
  second.reset();
  CHECK(first->listen() == 0);
  CHECK_FALSE(other.bind("127.0.0.1", port, false, true));
  CHECK(other.error == EADDRINUSE);
  const auto asks = other.ask(first->at());
  CHECK(run_until({&one, &other}, [&] { return one.requests.size() == 1; }));
}

TEST_CASE("ephemeral ports are of the usual range, and differ", "[cm]") {
  side one;
  std::vector<std::unique_ptr<binding>> all;
  std::set<std::uint16_t> ports;
  for (int n = 0; n < 100; ++n) {
    all.push_back(one.bind("127.0.0.1"));
    REQUIRE(all.back());
    CHECK(all.back()->at().port >= 32768);
    CHECK(all.back()->at().port <= 60999);
    CHECK(ports.insert(all.back()->at().port).second);
  }
}

TEST_CASE("a connection's messages reach both sides, and so does its end", "[cm]") {
  const bool by_tcp = GENERATE(false, true);
  CAPTURE(by_tcp);
  const setting port{"SOFTVERBS_PORT", free_port()};
  const setting link{"SOFTVERBS_LINK", by_tcp ? "tcp" : ""};
  side server, client;
  const auto name = server.listen();
  auto asks = client.ask(name->at());
  REQUIRE(run_until({&server, &client}, [&] { return !server.requests.empty(); }));
  CHECK(server.requests.front().name == name.get());
  const message& words = server.requests.front().words;
  const auto& serves = server.requests.front().from;
  CHECK(words.qpn == 0x1234);
  CHECK(words.private_bytes == 5);
  CHECK(std::memcmp(words.private_data, "hello", 5) == 0);
  CHECK(IN6_IS_ADDR_UNSPECIFIED(&words.source.address) == 0);
  const in6_addr peer = serves->with->peer_host();
  CHECK(IN6_IS_ADDR_UNSPECIFIED(&peer) != 0);
  serves->with->send(of_kind(message_kind::reply));
  REQUIRE(run_until({&server, &client}, [&] { return asks->has_heard(message_kind::reply); }));
  for (const auto kind : {message_kind::ready, message_kind::disconnect_request}) {
    asks->with->send(of_kind(kind));
    REQUIRE(run_until({&server, &client}, [&] { return serves->has_heard(kind); }));
  }
  // A message that was sent before the end arrives.
  serves->with->send(of_kind(message_kind::disconnect_reply));
  serves->with.reset();
  REQUIRE(run_until({&server, &client}, [&] { return asks->ended.has_value(); }));
  CHECK(asks->has_heard(message_kind::disconnect_reply));
  CHECK(asks->ended == ECONNRESET);
  CHECK_FALSE(serves->ended);
  asks->with->send(of_kind(message_kind::ready));  // The peer is gone.
}

TEST_CASE("an end tells of what was said before it, also with bytes that nobody read", "[cm]") {
  const bool by_tcp = GENERATE(false, true);
  const setting port{"SOFTVERBS_PORT", free_port()};
  const setting link{"SOFTVERBS_LINK", by_tcp ? "tcp" : ""};
  side server, client;
  const auto name = server.listen();
  auto asks = client.ask(name->at());
  REQUIRE(run_until({&server, &client}, [&] { return !server.requests.empty(); }));
  auto& serves = *server.requests.front().from;
  serves.with->send(of_kind(message_kind::reply));
  REQUIRE(run_until({&server, &client}, [&] { return asks->has_heard(message_kind::reply); }));
  serves.with->send(of_kind(message_kind::disconnect_request));
  asks->with->send(of_kind(message_kind::ready));
  serves.with.reset();  // The server has not read `ready`.
  REQUIRE(run_until({&client}, [&] { return asks->ended.has_value(); }));
  CHECK(asks->has_heard(message_kind::disconnect_request));
}

TEST_CASE("each remote host has its share of the conversations", "[cm]") {
  const in6_addr host = address_of("10.0.0.1");
  const in6_addr other = address_of("10.0.0.2");
  conversation_count count;
  for (std::uint32_t n = 0; n < conversations_per_host_max; ++n) {
    CHECK(count.has_room_for(host));
    count.add(host);
  }
  CHECK_FALSE(count.has_room_for(host));
  CHECK(count.has_room_for(other));
  count.add(other);
  count.remove(other);
  CHECK_FALSE(count.has_room_for(host));
  count.remove(host);
  CHECK(count.has_room_for(host));
  // This host has no share, and counts.
  for (std::uint32_t n = conversations_per_host_max - 1; n < conversations_max; ++n) {
    CHECK(count.has_room_for(this_host));
    count.add(this_host);
  }
  CHECK(count.is_full());
  CHECK_FALSE(count.has_room_for(this_host));
  CHECK_FALSE(count.has_room_for(other));
}

TEST_CASE("requests go to whoever listens at the address or at a wildcard", "[cm]") {
  side server, client;
  const char* name = GENERATE("127.0.0.1", "0.0.0.0", "::");
  const auto bound = server.listen(name);
  const auto asks = client.ask(at("127.0.0.1", bound->at().port));
  CHECK(run_until({&server, &client}, [&] { return server.requests.size() == 1; }));
  const auto stray = client.ask(at("::1", bound->at().port), "::1");
  const bool takes_v6 = std::string{name} == "::";
  CHECK(run_until({&server, &client}, [&] {
    return takes_v6 ? server.requests.size() == 2 : stray->ended == ECONNREFUSED;
  }));
}

TEST_CASE("a request for a name that nobody has is refused", "[cm]") {
  const bool by_tcp = GENERATE(false, true);
  CAPTURE(by_tcp);
  const setting port{"SOFTVERBS_PORT", free_port()};
  const setting link{"SOFTVERBS_LINK", by_tcp ? "tcp" : ""};
  side server, client;
  SECTION("nobody listens at all") {
    const endpoint nobody = server.bind("127.0.0.1")->at();
    const auto asks = client.ask(nobody);
    CHECK(run_until({&server, &client}, [&] { return asks->ended == ECONNREFUSED; }));
    CHECK(asks->heard.empty());
  }
  SECTION("others listen") {
    const auto name = server.listen();
    const auto asks = client.ask(at("127.0.0.3", name->at().port));
    CHECK(run_until({&server, &client}, [&] { return asks->ended == ECONNREFUSED; }));
    CHECK(asks->heard.empty());
  }
  SECTION("its process does not listen") {
    const auto name = server.listen();
    const auto silent = server.bind("127.0.0.1");
    const auto asks = client.ask(silent->at());
    CHECK(run_until({&server, &client}, [&] { return asks->ended == ECONNREFUSED; }));
    CHECK(asks->heard.empty());
  }
  SECTION("its process listens no more") {
    auto name = server.listen();
    const endpoint where = name->at();
    const auto before = client.ask(where);
    REQUIRE(run_until({&server, &client}, [&] { return server.requests.size() == 1; }));
    name.reset();
    const auto asks = client.ask(where);
    CHECK(run_until({&server, &client}, [&] { return asks->ended == ECONNREFUSED; }));
    CHECK(server.requests.size() == 1);
    // A conversation outlives the name that it came to.
    server.requests[0].from->with->send(of_kind(message_kind::reply));
    CHECK(run_until({&server, &client}, [&] { return before->has_heard(message_kind::reply); }));
  }
}

TEST_CASE("the holder of the port passes requests on to whoever has the name", "[cm]") {
  const setting port{"SOFTVERBS_PORT", free_port()};
  const setting link{"SOFTVERBS_LINK", "tcp"};
  side holder, server, client;
  const auto held = holder.listen();
  const auto name = server.listen();
  const auto asks = client.ask(name->at());
  REQUIRE(run_until({&holder, &server, &client}, [&] { return server.requests.size() == 1; }));
  CHECK(holder.requests.empty());
  server.requests[0].from->with->send(of_kind(message_kind::reply));
  // From here on, the holder has no part in the conversation.
  REQUIRE(run_until({&server, &client}, [&] { return asks->has_heard(message_kind::reply); }));
}

TEST_CASE("a process that stops listening gives the port up, and another one takes it", "[cm]") {
  const std::string first = free_port();
  const setting port{"SOFTVERBS_PORT", first};
  const setting link{"SOFTVERBS_LINK", "tcp"};
  const auto is_taken = [&] {
    const auto number = cm_port(static_cast<std::uint16_t>(std::stoi(first)));
    return !open_tcp_listener(address_of("127.0.0.1"), number);
  };
  side holder, server, client;
  CHECK_FALSE(is_taken());
  auto one = holder.listen();
  auto two = holder.listen("127.0.0.2");
  auto name = server.listen();
  one.reset();
  CHECK(is_taken());
  two.reset();
  CHECK_FALSE(is_taken());
  // Only the server's transport runs: it takes the port.
  const auto asks = client.ask(name->at());
  REQUIRE(run_until({&server, &client}, [&] { return server.requests.size() == 1; }));
  CHECK(is_taken());
  name.reset();
  CHECK_FALSE(is_taken());
}
