#include <cordma/runtime/runtime.hpp>

#include "support/connected_pair.hpp"
#include "support/memory_host.hpp"

#include <catch2/catch.hpp>

#include <cstring>
#include <memory>
#include <string>
#include <string_view>

using namespace cordma;
using namespace cordma::test;
using run_state = executor::run_state;

namespace {

constexpr std::uint16_t port = 7471;

runtime_options on_host(memory_host& host) {
  runtime_options options;
  options.executor = on_memory(host);
  return on_test_device(std::move(options));
}

task<std::string> serve_one(runtime& rt) {
  listener acceptor = rt.listen({"127.0.0.1", port});
  connection client = co_await acceptor.accept();
  local_mr in = rt.memory().allocate_zeroed(16);
  client.post_recv(in);
  const message m = co_await client.next_message();
  co_await client.ended();
  co_return std::string{reinterpret_cast<const char*>(in.bytes().data()), m.size_bytes};
}

task<> tell(runtime& rt, std::string_view text) {
  connection server = co_await rt.connect("127.0.0.1", port);
  local_mr out = rt.memory().allocate_zeroed(16);
  std::memcpy(out.bytes().data(), text.data(), text.size());
  co_await server.send(out.slice(0, text.size()));
  co_await server.close();
}

/// Steps both in turn, until one has heard the other.
std::string exchange(runtime& server, runtime& client, std::string_view text) {
  auto serving = server.executor().begin(serve_one(server));
  auto telling = client.executor().begin(tell(client, text));
  serving.step();  // The server listens first.
  while (telling.step().state != run_state::ended) serving.step();
  telling.take();
  while (serving.step().state != run_state::ended) continue;
  return serving.take();
}

}  // namespace

TEST_CASE("two runtimes that are stepped in turn on one thread connect, and one hears the other",
          "[runtime][device]") {
  const auto network = std::make_shared<memory_network>();
  memory_host here{network};
  memory_host there{network};
  runtime server{on_host(here)};
  runtime client{on_host(there)};
  CHECK(exchange(server, client, "stepped") == "stepped");
  CHECK(network->open_sockets() == 0);
}

TEST_CASE("runs that are dropped while they connect leave no socket, and the runtimes work",
          "[runtime][device]") {
  const auto network = std::make_shared<memory_network>();
  memory_host here{network};
  memory_host there{network};
  runtime server{on_host(here)};
  runtime client{on_host(there)};
  const int steps = GENERATE(0, 1, 2, 3, 5, 8);
  {
    auto serving = server.executor().begin(serve_one(server));
    auto telling = client.executor().begin(tell(client, "never"));
    for (int i = 0; i < steps; ++i) {
      serving.step();
      telling.step();
    }
  }
  CHECK(exchange(server, client, "later") == "later");
  CHECK(network->open_sockets() == 0);
}
