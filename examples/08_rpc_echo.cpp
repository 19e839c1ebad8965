// Remote procedure calls: a client keeps DEPTH calls under way until it has made CALLS of them, and
// shows how long they took. The first process is `server`, which prints its address; the second is
// `client HOST:PORT`. Then comes the device ('' is the first), for the client also CALLS and DEPTH.
// `examples/processes` starts both.

#include <cordma/cordma.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using bytes = std::span<const std::byte>;
using us = std::chrono::duration<double, std::micro>;

constexpr unsigned calls_to_warm_up = 1000;
constexpr unsigned depth_max = 60;  // The server has receive buffers for no more, by default.
constexpr std::size_t bar_columns = 50;

/// A method, as both sides know it: its name, what is sent and what comes back. `bytes` is a view
/// of a message: nothing is copied.
struct echo : cordma::rpc::method<"example.echo", bytes, bytes> {};

cordma::task<> serve(cordma::listener& listener) {
  cordma::rpc::server server;
  server.handle<echo>([](bytes said) -> cordma::task<bytes> { co_return said; });
  cordma::connection conn = co_await listener.accept();
  co_await server.serve(std::move(conn));  // Until the client closes.
  std::printf("server: answered %ju calls\n", std::uintmax_t{server.counters().replied});
}

/// Makes a call after another, while any are left. Several run side by side.
cordma::task<> call(cordma::executor& clock, cordma::rpc::client& server, unsigned& left,
                    std::vector<us>& latencies) {
  std::array<std::byte, 64> text;
  while (left > 0) {
    text.fill(std::byte(left--));
    const cordma::time_point start = clock.now();
    const auto reply = co_await server.call<echo>(text);
    latencies.emplace_back(clock.now() - start);
    if (!std::ranges::equal(*reply, text)) throw std::runtime_error{"client: that is no echo"};
  }
}

cordma::task<std::vector<us>> call_all(cordma::executor& clock, cordma::rpc::client& server,
                                       unsigned calls, unsigned depth) {
  std::vector<us> latencies;
  latencies.reserve(calls);
  co_await cordma::with_scope([&](cordma::scope& callers) -> cordma::task<> {
    for (unsigned i = 0; i < depth; ++i) callers.spawn(call(clock, server, calls, latencies));
    co_return;
  });
  co_return latencies;
}

/// A bar for each half octave; the last is for all that is beyond the p99.9.
void print_histogram(std::vector<us> latencies) {
  std::ranges::sort(latencies);
  const auto at = [&](double part) {
    return latencies[std::size_t(double(latencies.size() - 1) * part)];
  };
  const auto bucket_of = [](us t) {
    return int(std::floor(2 * std::log2(std::max(t.count(), 0.01))));
  };
  const int first = bucket_of(at(0)), last = bucket_of(at(0.999)) + 1;
  std::vector<std::size_t> counts(std::size_t(last - first + 1));
  for (const us t : latencies) ++counts[std::size_t(std::min(bucket_of(t), last) - first)];
  if (counts.back() == 0) counts.pop_back();

  const std::size_t most = std::ranges::max(counts);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::string bar((counts[i] * bar_columns + most - 1) / most, '#');
    std::printf("%9.1f us %8zu %s\n", std::exp2((first + int(i)) / 2.0), counts[i], bar.c_str());
  }
  std::printf("client: p50 %.1f us, p90 %.1f us, p99 %.1f us, p99.9 %.1f us, the longest %.1f us\n",
              at(0.5).count(), at(0.9).count(), at(0.99).count(), at(0.999).count(), at(1).count());
}

cordma::task<> client(cordma::runtime& rt, cordma::endpoint to, unsigned calls, unsigned depth) {
  cordma::connection conn = co_await rt.connect(to);
  cordma::rpc::client server{std::move(conn)};
  cordma::executor& clock = rt.executor();
  co_await call_all(clock, server, calls_to_warm_up, depth);
  const cordma::time_point start = clock.now();
  std::vector<us> latencies = co_await call_all(clock, server, calls, depth);
  const std::chrono::duration<double> took = clock.now() - start;
  std::printf("client: %u calls, %u at a time: %.0f a second\n", calls, depth,
              calls / took.count());
  print_histogram(std::move(latencies));
  co_await server.close();
}

}  // namespace

// A test runs the programs above on hosts of a simulation, with a `main` of its own.
#ifndef CORDMA_EXAMPLE_WITHOUT_MAIN

namespace {

/// The `i`th argument, from 1 to `most`; 0 when it is none.
unsigned number(int argc, char** argv, int i, unsigned otherwise, unsigned most) {
  if (i >= argc) return otherwise;
  const std::string_view text = argv[i];
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), value);
  return error == std::errc{} && end == text.end() && value <= most ? value : 0;
}

}  // namespace

int main(int argc, char** argv) try {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // Line by line, also into a pipe.
  const std::string_view role = argc > 1 ? argv[1] : "";
  const unsigned calls = number(argc, argv, 4, 20'000, 10'000'000);
  const unsigned depth = number(argc, argv, 5, 1, depth_max);
  // Adaptive: looks for completions for a moment before it sleeps, for a short latency.
  const auto mode = cordma::completion_mode::adaptive;
  if (role == "server") {
    cordma::runtime rt{{.device = argc > 2 ? argv[2] : "", .cq = {.mode = mode}}};
    cordma::listener listener = rt.listen();
    std::printf("listening on %s\n", listener.local_endpoint().to_string().c_str());
    rt.run(serve(listener));
  } else if (role == "client" && argc > 2 && calls > 0 && depth > 0) {
    cordma::runtime rt{{.device = argc > 3 ? argv[3] : "", .cq = {.mode = mode}}};
    rt.run(client(rt, cordma::endpoint::parse(argv[2]), calls, depth));
  } else {
    std::fprintf(stderr,
                 "usage: %s server [DEVICE] | client HOST:PORT [DEVICE [CALLS [DEPTH]]]\n"
                 "CALLS from 1 to 10 million, DEPTH from 1 to 60\n",
                 argv[0]);
    return 2;
  }
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}

#endif
