// What `./dev demo` runs, as two processes: `demo server` listens and prints its address, `demo
// client HOST:PORT` connects and shows each kind of operation. A last argument names the device.

#include <cordma/cordma.hpp>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace {

using cordma::verbs::access;

constexpr std::size_t page = 4096;
constexpr int writes_timed = 1000;
constexpr int writes_to_warm_up = 100;

void print_device(const char* who, cordma::runtime& rt) {
  const auto port = rt.context().active_port();
  std::printf("[%s] device %s, port %u, %s, MTU %u\n", who, std::string{rt.device_name()}.c_str(),
              port.number, port.is_ethernet() ? "RoCE" : "InfiniBand",
              cordma::verbs::bytes_of(port.mtu_active));
}

cordma::local_mr_slice put(cordma::local_mr& into, std::string_view text) {
  std::memcpy(into.bytes().data(), text.data(), text.size());
  return into.slice(0, text.size());
}

void print_memory(const char* who, cordma::runtime& rt) {
  const cordma::mr_allocator_statistics now = rt.memory().statistics();
  std::printf("[%s] memory: %zu bytes in use, %zu KiB registered; registrations so far: %" PRIu64
              "\n",
              who, now.in_use_bytes, now.registered_bytes / 1024, now.registrations);
}

std::string text_of(const cordma::message& m) {
  const auto bytes = m.payload().bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

cordma::task<> serve(cordma::runtime& rt, cordma::listener& listener) {
  cordma::connection conn = co_await listener.accept();
  std::printf("[server] connected to %s\n", conn.peer().to_string().c_str());

  cordma::local_mr shared = rt.memory(access::local_write | access::remote_read |
                                      access::remote_write | access::remote_atomic)
                                .allocate_zeroed(page);
  cordma::local_mr buffer = rt.memory().allocate_zeroed(page);
  const cordma::message hello = co_await conn.recv(buffer);
  std::printf("[server] received '%s', answers with the name of %zu bytes of its memory\n",
              text_of(hello).c_str(), shared.size_bytes());
  const auto name = shared.remote_slice().encode();
  std::ranges::copy(name, buffer.bytes().begin());
  co_await conn.send(buffer.slice(0, name.size()));

  const cordma::message done = co_await conn.recv(buffer);  // Until the client says it is done.
  std::printf("[server] received '%s'; its memory holds '%s', which it never received\n",
              text_of(done).c_str(), reinterpret_cast<const char*>(shared.bytes().data()));
  co_await conn.close();
}

cordma::task<> time_writes(cordma::connection& conn, cordma::local_mr_slice from,
                           cordma::remote_mr_slice to) {
  std::vector<double> us;
  us.reserve(writes_timed);
  for (int i = -writes_to_warm_up; i < writes_timed; ++i) {
    const auto start = std::chrono::steady_clock::now();
    co_await conn.write(from, to);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    if (i >= 0) us.push_back(took.count());
  }
  std::ranges::sort(us);
  std::printf("[client] %d writes of %zu bytes: p50 %.1f us, p99 %.1f us\n", writes_timed,
              from.size_bytes(), us[writes_timed / 2], us[writes_timed * 99 / 100]);
}

cordma::task<> use(cordma::runtime& rt, cordma::endpoint server) {
  cordma::connection conn = co_await rt.connect(server);
  cordma::local_mr buffer = rt.memory().allocate_zeroed(page);
  cordma::local_mr copy = rt.memory().allocate_zeroed(page);

  co_await conn.send(put(buffer, "hello from the client"));
  std::printf("[client] sent 'hello from the client'\n");
  const cordma::message told = co_await conn.recv(copy);
  const auto remote = cordma::remote_mr_slice::decode(told.payload().bytes());

  const cordma::local_mr_slice text = put(buffer, "written by RDMA");
  co_await conn.write(text, remote);
  co_await conn.read(copy.slice(0, text.size_bytes()), remote.first(text.size_bytes()));
  std::printf("[client] wrote 'written by RDMA', read back '%.*s'\n", int(text.size_bytes()),
              reinterpret_cast<const char*>(copy.bytes().data()));

  const cordma::remote_mr_slice counter = remote.slice(page - 8, 8);
  const std::uint64_t before = co_await conn.compare_swap(counter, 0, 42);
  const std::uint64_t after = co_await conn.fetch_add(counter, 0);
  std::printf("[client] compare-swap of a counter from 0 to 42: before %" PRIu64 ", after %" PRIu64
              "\n",
              before, after);

  co_await time_writes(conn, buffer.slice(0, 8), remote.slice(1024, 8));
  print_memory("client", rt);
  co_await conn.send(put(buffer, "done"));
  co_await conn.close();
}

int usage() {
  std::fprintf(stderr, "usage: demo server [DEVICE]\n       demo client HOST:PORT [DEVICE]\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) try {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // Line by line, also into a pipe.
  const std::string_view role = argc > 1 ? argv[1] : "";
  if (role == "server") {
    cordma::runtime rt{{.device = argc > 2 ? argv[2] : ""}};
    print_device("server", rt);
    cordma::listener listener = rt.listen();
    std::printf("listening on %s\n", listener.local_endpoint().to_string().c_str());
    rt.run(serve(rt, listener));
  } else if (role == "client" && argc > 2) {
    // Busy: looks for completions all the time, for the shortest latency.
    cordma::runtime rt{{.device = argc > 3 ? argv[3] : "", .mode = cordma::completion_mode::busy}};
    print_device("client", rt);
    rt.run(use(rt, cordma::endpoint::parse(argv[2])));
  } else {
    return usage();
  }
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
