#pragma once

#include "file.hpp"

#include <catch2/catch.hpp>

namespace softverbs::cm::test {

inline constexpr std::uint64_t some_user = 0x77;

/// Two processes, each with one open file.
struct two_processes {
  static constexpr std::uint64_t client_user = 0xc1;
  static constexpr std::uint64_t listener_user = 0x11;
  static constexpr std::uint64_t server_user = 0x5e;
  static constexpr std::uint32_t client_qpn = 0x111111;
  static constexpr std::uint32_t server_qpn = 0x222222;
  static constexpr std::uint16_t port = 7471;

  /// Delivers messages until there are none.
  void run() {
    bool any = true;
    while (any) {
      any = client_process.run();
      any = server_process.run() || any;
    }
  }
  void pass(std::chrono::milliseconds time) {
    all.now += time;
    run();
  }
  static seen_event take(file& from, event_kind kind, std::uint64_t user) {
    const auto found = from.read_event();
    REQUIRE(found);
    CHECK(found->kind() == kind);
    CHECK(found->raw.uid == user);
    return *found;
  }
  void listen(std::uint16_t space = RDMA_PS_TCP, std::uint32_t backlog = 0) {
    listener = server.create(space, listener_user);
    REQUIRE(server.bind(listener, v4("0.0.0.0", port)) == 0);
    REQUIRE(server.listen(listener, backlog) == 0);
  }
  std::uint32_t resolved(std::uint16_t space = RDMA_PS_TCP) {
    const std::uint32_t id = client.create(space, client_user);
    REQUIRE(client.resolve(id, v4("127.0.0.1", port)) == 0);
    take(client, event_kind::address_resolved, client_user);
    REQUIRE(client.resolve_route(id) == 0);
    take(client, event_kind::route_resolved, client_user);
    return id;
  }
  /// Sends a request, and takes it at the server.
  seen_event request(const char* data = "", std::uint16_t space = RDMA_PS_TCP) {
    client_id = resolved(space);
    REQUIRE(client.connect(client_id, parameters(client_qpn, data)) == 0);
    run();
    const seen_event found = take(server, event_kind::connect_request, listener_user);
    server_id = found.raw.id;
    return found;
  }
  seen_event reply(const char* data = "") {
    REQUIRE(server.accept(server_id, server_user, parameters(server_qpn, data)) == 0);
    run();
    return take(client, event_kind::connect_response, client_user);
  }
  void ready() {
    REQUIRE(client.accept(client_id, 0, rdma_ucm_conn_param{}) == 0);
    run();
    take(server, event_kind::established, server_user);
  }
  void establish() {
    listen();
    request();
    reply();
    ready();
  }

  network all;
  process client_process{all};
  process server_process{all};
  file client{client_process};
  file server{server_process};
  std::uint32_t listener = 0;
  std::uint32_t client_id = 0;
  std::uint32_t server_id = 0;
};

inline std::string data_of(const rdma_ucm_conn_param& from) {
  return reinterpret_cast<const char*>(from.private_data);  // The padding is zero.
}

}  // namespace softverbs::cm::test
