// Metrics over HTTP, for Prometheus: a program that writes to itself until it is stopped (Ctrl-C),
// and shows what it does. Usage: 18_metrics [WHERE [DEVICE]], where WHERE is 127.0.0.1:9464 unless
// something else is named; "unix:@x" is a Unix socket. Then, in another terminal:
//
//     curl http://127.0.0.1:9464/metrics
//     cordma-top http://127.0.0.1:9464/metrics

#include <cordma/cordma.hpp>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>

namespace {

using namespace std::chrono_literals;

// A handler knows no object, so this is global.
volatile std::sig_atomic_t was_told = 0;

/// Some thousand WRITEs a second, over a connection of this program to itself.
cordma::task<> write_on(cordma::runtime& rt) {
  cordma::listener listener = rt.listen();
  auto [client, server] =
      co_await cordma::when_all(rt.connect(listener.local_endpoint()), listener.accept());
  cordma::local_mr memory =
      rt.memory(cordma::verbs::access::local_write | cordma::verbs::access::remote_write)
          .allocate_zeroed(8192);
  const cordma::remote_mr_slice to = memory.remote_slice().slice(4096, 4096);
  while (was_told == 0) {
    for (int n = 0; n < 100; ++n) co_await client.write(memory.slice(0, 4096), to);
    co_await cordma::sleep_for(10ms);
  }
  co_await cordma::when_all(client.close(), server.close());
}

}  // namespace

int main(int argc, char** argv) try {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // Line by line, also into a pipe.
  for (const int number : {SIGINT, SIGTERM})
    static_cast<void>(std::signal(number, [](int) { was_told = 1; }));
  cordma::runtime rt{{.device = argc > 2 ? argv[2] : ""}};
  // A thread of the server's own answers, whatever this one does.
  const cordma::metrics_server page{argc > 1 ? argv[1] : "127.0.0.1:9464", rt};
  std::printf("metrics at %s\n", page.local_endpoint().to_string().c_str());
  rt.run(write_on(rt));
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
