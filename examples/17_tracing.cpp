// Traces of calls: a client orders from a shop, which takes the goods from a stock. Each call has a
// span at its client and one at its server. All spans of one order have one trace, which
// OpenTelemetry's collector can read from FILE: docs/tracing.md. The first process is `server`,
// which prints its address; the second is `client HOST:PORT`. Then come the device ('' is the
// first) and FILE.
// `examples/processes --both FILE 17_tracing` starts both.

#include "otlp_file.hpp"

#include <cordma/cordma.hpp>

#include <cstdint>
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

namespace rpc = cordma::rpc;

struct goods {
  std::uint32_t item, count;
};
struct take : rpc::method<"stock.take", goods, std::uint32_t> {};  // Gives how many are left.
struct buy : rpc::method<"shop.buy", goods, std::uint64_t> {};     // Gives the price.

void open_stock(rpc::server& stock, std::map<std::uint32_t, std::uint32_t>& items) {
  stock.handle<take>([&items](goods wanted) -> cordma::task<std::uint32_t> {
    const auto found = items.find(wanted.item);
    if (found == items.end()) throw std::runtime_error{"there is no such item"};
    if (found->second < wanted.count) throw std::runtime_error{"too few are left"};
    co_return found->second -= wanted.count;
  });
}

void open_shop(rpc::server& shop, rpc::client& stock) {
  shop.handle<buy>([&stock](goods wanted, rpc::server_call& call) -> cordma::task<std::uint64_t> {
    // The context makes the call a part of the caller's trace.
    co_await stock.call<take>(wanted, {.trace = call.trace()});
    co_return wanted.count* std::uint64_t{25};
  });
}

cordma::task<> serve_one(rpc::server& server, cordma::listener& acceptor) {
  co_await server.serve(co_await acceptor.accept());  // Until the client closes.
}

cordma::task<> serve(cordma::runtime& rt, cordma::listener& orders, const std::string& file) {
  otlp_file stock_spans{file, "stock", rt.executor()}, shop_spans{file, "shop", rt.executor()};
  std::map<std::uint32_t, std::uint32_t> items{{1, 10}, {2, 10}};
  rpc::server stock{{.tracer = &stock_spans}}, shop{{.tracer = &shop_spans}};
  open_stock(stock, items);
  cordma::listener at_stock = rt.listen();
  const auto serve_shop = [&]() -> cordma::task<> {
    rpc::client to_stock{co_await rt.connect(at_stock.local_endpoint()), {.tracer = &shop_spans}};
    open_shop(shop, to_stock);
    co_await serve_one(shop, orders);
    co_await to_stock.close();
  };
  co_await cordma::when_all(serve_one(stock, at_stock), serve_shop());
}

cordma::task<> client(cordma::runtime& rt, cordma::endpoint to, const std::string& file) {
  otlp_file spans{file, "customer", rt.executor()};
  rpc::client shop{co_await rt.connect(to), {.tracer = &spans}};
  // A span of the program's own, below which are both calls.
  const rpc::trace_context errand = rpc::trace_context{}.child();
  const cordma::time_point start = rt.executor().now();
  const std::uint64_t price = co_await shop.call<buy>({.item = 1, .count = 3}, {.trace = errand});
  std::printf("client: 3 pieces cost %ju\n", std::uintmax_t{price});
  const auto refused =
      co_await cordma::as_result(shop.call<buy>({.item = 9, .count = 1}, {.trace = errand}));
  if (refused.has_failure())
    std::printf("client: no other piece: %s\n", refused.failure().to_string().c_str());
  spans.add("errand", errand, start);
  std::printf("client: traceparent %s\n", errand.to_traceparent().c_str());
  co_await shop.close();
}

}  // namespace

int main(int argc, char** argv) try {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // Line by line, also into a pipe.
  const std::string_view role = argc > 1 ? argv[1] : "";
  if (role == "server" && argc == 4) {
    cordma::runtime rt{{.device = argv[2]}};
    cordma::listener orders = rt.listen();
    std::printf("listening on %s\n", orders.local_endpoint().to_string().c_str());
    rt.run(serve(rt, orders, argv[3]));
  } else if (role == "client" && argc == 5) {
    cordma::runtime rt{{.device = argv[3]}};
    rt.run(client(rt, cordma::endpoint::parse(argv[2]), argv[4]));
  } else {
    std::fprintf(stderr, "usage: %s server DEVICE FILE | client HOST:PORT DEVICE FILE\n", argv[0]);
    return 2;
  }
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
