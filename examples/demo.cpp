// `./dev demo` runs this program as two processes. `demo server` listens and prints its address.
// `demo client ADDRESS` connects and shows each kind of operation, memory that is lent, and what
// becomes of that memory when its lease ends. Further arguments name the device, the way to
// connect, and the folder with what that way needs.

#include "demo_ways.hpp"

#include <cordma/cordma.hpp>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using cordma::verbs::access;

constexpr std::size_t page = 4096;
constexpr int writes_timed = 1000;
constexpr int writes_to_warm_up = 100;
constexpr std::chrono::milliseconds short_lease{1000};

void expect(bool is_so, const char* what) {
  if (!is_so) throw std::runtime_error{std::string{"it should be so that "} + what};
}

void print_device(const char* side, cordma::runtime& rt) {
  const auto port = rt.context().active_port();
  std::printf("[%s] device %s, port %u, %s, MTU %u\n", side, std::string{rt.device_name()}.c_str(),
              port.number, port.is_ethernet() ? "RoCE" : "InfiniBand",
              cordma::verbs::bytes_of(port.mtu_active));
}

cordma::local_mr_slice put(cordma::local_mr& into, std::string_view text) {
  std::memcpy(into.bytes().data(), text.data(), text.size());
  return into.slice(0, text.size());
}

void print_memory(const char* side, cordma::runtime& rt) {
  const cordma::mr_allocator_statistics now = rt.memory().statistics();
  std::printf("[%s] memory: %zu bytes in use, %zu KiB registered; registrations so far: %" PRIu64
              "\n",
              side, now.in_use_bytes, now.registered_bytes / 1024, now.registrations);
}

std::string text_of(const cordma::message& m) {
  const auto bytes = m.payload().bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

const char* text_of(const cordma::local_mr& memory) {
  return reinterpret_cast<const char*>(memory.bytes().data());
}

/// Lends memory for a moment, on a connection of its own, and says when the memory is back.
cordma::task<> lend_briefly(cordma::runtime& rt, demo::meeting& clients) {
  cordma::connection conn = co_await clients.next();
  cordma::local_mr memory = rt.memory().allocate_zeroed(page);
  cordma::local_mr note = rt.memory().allocate_zeroed(page);
  const cordma::loan_options terms{.lease = short_lease};
  cordma::loan lent = co_await conn.send_local_mr(std::move(memory), terms);
  const cordma::loan_end end = co_await lent.ended();
  std::printf("[server] what it lent for %lld ms is back (%s), and holds '%s'\n",
              static_cast<long long>(short_lease.count()), to_string(end.reason),
              text_of(end.memory));
  expect(end.reason == cordma::loan_end_reason::expired, "the lease expired");
  co_await conn.send(put(note, "your lease is over"));

  const auto nothing = co_await cordma::as_result(conn.recv(note));
  expect(nothing.has_failure() && conn.why_lost(), "the second connection ended");
  expect(std::string_view{text_of(end.memory)} == "in time", "the memory is as it was");
  // The device's event and the flushed receive race to be the reason in `why_lost`.
  std::printf("[server] its second connection has ended, and the memory is as it was\n");
}

void print_peer(const cordma::connection& conn, demo::method by) {
  if (by == demo::method::raw) {
    std::printf("[server] connected by the client's text, to queue pair 0x%x\n", conn.peer_qpn());
  } else {
    std::printf("[server] connected by %s to %s\n", name_of(by), conn.peer().to_string().c_str());
  }
  const cordma::identity& client = conn.peer_identity();
  if (client.kind != cordma::authentication::none) {
    std::printf("[server] who connected has proved to be '%s'\n", client.name.c_str());
  }
}

cordma::task<> serve(cordma::runtime& rt, demo::meeting& clients, demo::method by) {
  cordma::connection conn = co_await clients.next();
  print_peer(conn, by);

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

  const cordma::local_mr given = co_await conn.receive_local_mr();
  std::printf("[server] was given %zu bytes of its memory back, with '%s'\n", given.size_bytes(),
              text_of(given));
  conn.post_recv(buffer);  // The receive is there before the client is done.
  co_await lend_briefly(rt, clients);

  const cordma::message done = co_await conn.next_message();
  std::printf("[server] received '%s'; its memory holds '%s', which it never received\n",
              text_of(done).c_str(), text_of(shared));
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

/// Asks for memory of the server's, fills it and hands it over.
cordma::task<> borrow(cordma::connection& conn, cordma::local_mr& buffer) {
  const cordma::remote_mr_request terms{.lease = std::chrono::seconds{30}};
  cordma::remote_mr remote = co_await conn.request_remote_mr(page, terms);
  std::printf("[client] asked for %zu bytes and has them for %lld ms, isolation: %s\n",
              remote.size_bytes(), static_cast<long long>(remote.remaining().count()),
              to_string(remote.isolation()));
  co_await conn.write(put(buffer, "handed over"), remote);
  co_await conn.send_remote_mr(std::move(remote));
  std::printf("[client] wrote 'handed over', and handed it over\n");
}

/// Uses borrowed memory for longer than it may, on a connection of its own.
cordma::task<> overstay(cordma::runtime& rt, demo::meeting& server) {
  cordma::connection conn = co_await server.next();
  cordma::local_mr buffer = rt.memory().allocate_zeroed(page);
  cordma::local_mr note = rt.memory().allocate_zeroed(page);
  conn.post_recv(note);
  const cordma::remote_mr remote = co_await conn.receive_remote_mr();
  co_await conn.write(put(buffer, "in time"), remote);
  const cordma::message over = co_await conn.next_message();
  std::printf("[client] wrote 'in time' into what it was lent; was told '%s'\n",
              text_of(over).c_str());

  const cordma::local_mr_slice late = put(buffer, "too late");
  const auto posted = [&] { return rt.metrics().transfer.of(cordma::request_kind::write).posted; };
  const std::uint64_t posted_before = posted();
  const auto refused_here = co_await cordma::as_result(conn.write(late, remote));
  expect(refused_here.has_failure() &&
             refused_here.failure().code == cordma::make_error_code(cordma::errc::lease_expired),
         "our own side refuses an expired lease");
  expect(posted() == posted_before && conn.is_open(), "nothing was posted");
  std::printf("[client] refused by its own side: %s\n", refused_here.failure().to_string().c_str());

  // This side knows no lease of the raw name: the owner's device has to refuse the WRITE.
  const auto raw = cordma::remote_mr_slice::decode(remote.slice().encode());
  const auto refused_there = co_await cordma::as_result(conn.write(late, raw));
  expect(refused_there.has_failure() && refused_there.failure().code ==
                                            cordma::make_error_code(cordma::wc_errc::remote_access),
         "the server's device refuses the raw key");
  expect(!conn.is_open(), "that ends the connection");
  std::printf("[client] refused by the server's device, which ends that connection: %s\n",
              refused_there.failure().to_string().c_str());
}

cordma::task<> use(cordma::runtime& rt, demo::meeting& server) {
  cordma::connection conn = co_await server.next();
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
  co_await borrow(conn, buffer);
  co_await overstay(rt, server);
  const std::uint64_t still = co_await conn.fetch_add(counter, 0);
  expect(still == after, "the first connection is none the worse");
  std::printf("[client] the first connection goes on: the counter is %" PRIu64 "\n", still);
  co_await conn.send(put(buffer, "done"));
  co_await conn.close();
}

int usage() {
  std::fprintf(stderr,
               "usage: demo server [DEVICE [WAY FOLDER]]\n"
               "       demo client ADDRESS [DEVICE [WAY FOLDER]]\n");
  return 2;
}

/// The last arguments of both sides.
struct arguments {
  explicit arguments(std::span<char*> given)
      : device{given.empty() ? "" : given[0]},
        by{demo::method_of(given.size() > 1 ? given[1] : "tcp")},
        folder{given.size() > 2 ? given[2] : "."} {}
  std::string device;
  demo::method by;
  std::string folder;
};

void run_server(const arguments& given) {
  const auto shown = demo::credentials_of(given.by, given.folder, "server");
  cordma::connection_options policy;
  policy.credentials = shown ? &*shown : nullptr;
  policy.agent.lending.bytes_max = std::size_t{64} << 20;  // Peers may ask for so much memory.
  cordma::runtime rt{{.device = given.device, .connections = policy}};
  print_device("server", rt);
  demo::meeting clients{rt, given.by, given.folder};
  std::printf("listening on %s\n", clients.address().c_str());
  rt.run(serve(rt, clients, given.by));
}

void run_client(const std::string& address, const arguments& given) {
  const auto shown = demo::credentials_of(given.by, given.folder, "client");
  cordma::connection_options policy;
  policy.credentials = shown ? &*shown : nullptr;
  // Busy: looks for completions all the time, for the shortest latency.
  cordma::runtime rt{{.device = given.device,
                      .cq = {.mode = cordma::completion_mode::busy},
                      .connections = policy}};
  print_device("client", rt);
  demo::meeting server{rt, given.by, given.folder, address};
  rt.run(use(rt, server));
}

}  // namespace

int main(int argc, char** argv) try {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // Line by line, also into a pipe.
  const std::span<char*> words{argv, std::size_t(argc)};
  const std::string_view role = argc > 1 ? argv[1] : "";
  if (role == "server") {
    run_server(arguments{words.subspan(2)});
  } else if (role == "client" && argc > 2) {
    run_client(words[2], arguments{words.subspan(3)});
  } else {
    return usage();
  }
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
