// A store of values by their keys. PUT is a call, whose value the server fetches by READ, out of
// the client's memory. GET is a READ of the client's out of the server's memory. The server's
// program takes no part in it. key_value.hpp says how a client knows that what it read was not
// changed meanwhile.
//
// `server` prints its address, two of `client HOST:PORT` go there; a last argument names the device
// (`examples/processes` starts them all).

#include "key_value.hpp"

#include <cordma/cordma.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

using cordma::rpc::nothing;
using key_value::slot;

constexpr unsigned clients = 2;
constexpr unsigned gets = 2000;  // gets of each client, while all clients put values there
constexpr std::size_t slots = 1024;

/// Gives the name of the table's memory.
struct open : cordma::rpc::method<"key_value.open", nothing,
                                  std::array<std::byte, cordma::remote_mr_slice::encoded_bytes>> {};
/// Stores what the caller lends as the `source`, 1 to `slot::value_max` bytes, by this key.
struct put : cordma::rpc::method<"key_value.put", std::string> {};

/// The value comes into memory of its own first: a client that dies meanwhile leaves what was there
/// before. It is put in its place without a co_await, so no two writers meet.
cordma::task<nothing> store(key_value::table& table, std::string key,
                            cordma::rpc::server_call& call) {
  const cordma::local_mr value = co_await call.fetch_source(slot::value_max);
  table.put(key, value.bytes());
  co_return nothing{};
}

cordma::task<> serve(cordma::runtime& rt, cordma::listener& listener) {
  key_value::table table{rt, slots};
  cordma::rpc::server server;
  server.handle<open>(
      [&](nothing) -> cordma::task<open::reply> { co_return table.name().encode(); });
  server.handle<put>([&](std::string key, cordma::rpc::server_call& call) {
    return store(table, std::move(key), call);
  });
  unsigned left = clients;
  const auto one_is_done = [&] {
    if (--left == 0) listener.close();
  };
  const auto serve_one = [&](cordma::connection client) -> cordma::task<> {
    co_await server.serve(std::move(client));
    one_is_done();
  };
  // A client that is lost is no matter of the others'.
  const auto note_lost = [&](const cordma::handler_failure& lost) {
    std::fprintf(stderr, "server: %s\n", lost.to_string().c_str());
    one_is_done();
  };
  co_await cordma::serve(listener, serve_one, note_lost);
  std::printf("server: answered %ju calls\n", std::uintmax_t{server.counters().replied});
}

cordma::task<> put_text(cordma::runtime& rt, cordma::rpc::client& server, std::string key,
                        std::string_view text) {
  cordma::local_mr value = rt.memory().allocate_uninitialized(text.size());
  std::ranges::copy(std::as_bytes(std::span{text}), value.bytes().begin());
  const cordma::rpc::call_options lent{.source = value};
  co_await server.call<put>(std::move(key), lent);
}

/// Values of many lengths, each of one letter only, until it is stopped.
cordma::task<> put_often(cordma::runtime& rt, cordma::rpc::client& server, unsigned& puts) {
  for (;; ++puts) {
    const std::string text(1 + puts * 997 % slot::value_max, char('a' + puts % 26));
    co_await put_text(rt, server, "busy", text);
  }
}

cordma::task<> get_often(key_value::reader& table) {
  for (unsigned i = 0; i < gets; ++i) {
    const auto value = co_await table.get("busy");
    if (value && value->find_first_not_of((*value)[0]) != std::string::npos) {
      throw std::runtime_error{"client: that is a mixture of two values"};
    }
  }
}

cordma::task<> client(cordma::runtime& rt, cordma::endpoint to) {
  cordma::connection conn = co_await rt.connect(to);
  cordma::rpc::client server{std::move(conn)};
  const auto name = co_await server.call<open>();
  if (server.connection() == nullptr) throw std::runtime_error{"client: the server is gone"};
  key_value::reader table{*server.connection(), cordma::remote_mr_slice::decode(name)};

  co_await put_text(rt, server, "greeting", "hello");
  const auto greeting = co_await table.get("greeting");
  const auto farewell = co_await table.get("farewell");
  std::printf("client: greeting is '%s', farewell %s\n", greeting.value_or("not there").c_str(),
              farewell ? "is there" : "is not there");

  unsigned puts = 0;
  co_await cordma::when_any(get_often(table), put_often(rt, server, puts));
  std::printf("client: %u gets beside %u puts: all whole; %u READs were torn, and read again\n",
              gets, puts, table.torn());
  co_await server.close();
}

}  // namespace

// A test runs the programs above on hosts of a simulation, with a `main` of its own.
#ifndef CORDMA_EXAMPLE_WITHOUT_MAIN

int main(int argc, char** argv) try {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // Line by line, also into a pipe.
  const std::string_view role = argc > 1 ? argv[1] : "";
  if (role == "server") {
    cordma::runtime rt{{.device = argc > 2 ? argv[2] : ""}};
    cordma::listener listener = rt.listen();
    std::printf("listening on %s\n", listener.local_endpoint().to_string().c_str());
    rt.run(serve(rt, listener));
  } else if (role == "client" && argc > 2) {
    cordma::runtime rt{{.device = argc > 3 ? argv[3] : ""}};
    rt.run(client(rt, cordma::endpoint::parse(argv[2])));
  } else {
    std::fprintf(stderr, "usage: %s server [DEVICE] | client HOST:PORT [DEVICE]\n", argv[0]);
    return 2;
  }
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}

#endif
