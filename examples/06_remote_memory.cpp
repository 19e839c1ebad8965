// Remote memory: the client asks its peer for memory, works in it, and hands it over. Its lease
// ends by itself if the client dies or dawdles; nobody else reaches it meanwhile. Two processes:
// `server` prints its address, `client HOST:PORT` goes there; a last argument names the device
// (`examples/processes` starts both).

#include <cordma/cordma.hpp>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <stdexcept>
#include <string_view>

using namespace std::chrono_literals;

namespace {

constexpr std::byte filling{1};

cordma::task<> client(cordma::runtime& rt, cordma::endpoint server) {
  cordma::connection conn = co_await rt.connect(server);
  const cordma::remote_mr_request terms{.lease = 30s};
  cordma::remote_mr remote = co_await conn.request_remote_mr(16, terms);  // Zeroed, and ours alone.
  std::printf("client: has %zu bytes of the server's for %lld ms\n", remote.size_bytes(),
              static_cast<long long>(remote.remaining().count()));

  cordma::local_mr local = rt.memory().allocate_zeroed(8);
  std::ranges::fill(local.bytes(), filling);
  co_await conn.write(local, remote.slice(8, 8));
  const std::uint64_t before = co_await conn.compare_swap(remote.slice(0, 8), 0, 42);
  if (before != 0) throw std::runtime_error{"client: the memory was not zero"};

  co_await conn.send_remote_mr(std::move(remote));  // Returns when the server has it.
  std::printf("client: handed it over\n");
  co_await conn.close();
}

cordma::task<> server(cordma::listener& listener) {
  cordma::connection conn = co_await listener.accept();
  auto given = co_await as_result(conn.receive_local_mr());
  if (const auto refused = conn.last_refusal())  // For a server's log: who asked for what.
    std::fprintf(stderr, "server: refused %s\n", refused->to_string().c_str());
  const cordma::local_mr memory = std::move(given).value();  // Out of the client's reach by now.
  const std::uint64_t word = memory.first(8).as<std::uint64_t>()[0];
  std::printf("server: was given %zu bytes, the first word is %" PRIu64 "\n", memory.size_bytes(),
              word);
  const auto is_filling = [](std::byte b) { return b == filling; };
  if (word != 42 || !std::ranges::all_of(memory.last(8).bytes(), is_filling)) {
    throw std::runtime_error{"server: that is not what the client wrote"};
  }
  co_await conn.close();
}

/// Peers may ask for memory only if the server says how much.
cordma::connection_options lend_up_to_64_mib() {
  cordma::connection_options options;
  options.agent.lending.bytes_max = std::size_t{64} << 20;
  options.agent.lending.leases_max = 1024;
  return options;
}

}  // namespace

int main(int argc, char** argv) try {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // Line by line, also into a pipe.
  const std::string_view role = argc > 1 ? argv[1] : "";
  if (role == "server") {
    cordma::runtime rt{{.device = argc > 2 ? argv[2] : "", .connections = lend_up_to_64_mib()}};
    cordma::listener listener = rt.listen();
    std::printf("listening on %s\n", listener.local_endpoint().to_string().c_str());
    rt.run(server(listener));
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
