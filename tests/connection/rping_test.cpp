// Debian's rping, in a process of its own, talks to a plain connection: a program that knows
// nothing of cordma, on either side of rdma_cm.

#include "cm/rig.hpp"
#include "connection/addresses.hpp"
#include "connection/cm_acceptor.hpp"
#include "support/commands.hpp"
#include "support/connected_pair.hpp"
#include "support/preload.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>

using namespace cordma;

namespace {

/// Reads a buffer as rping tells it: address, key and length, big-endian.
remote_mr_slice buffer_in(std::span<const std::byte> said) {
  const auto number = [&](std::size_t at, std::size_t bytes) {
    std::uint64_t value = 0;
    for (std::size_t n = 0; n < bytes; ++n) value = value << 8 | std::uint64_t(said[at + n]);
    return value;
  };
  return {number(0, 8), std::size_t(number(12, 4)), std::uint32_t(number(8, 4))};
}

/// rping's server: READs what the client offers, and WRITEs it where the client wants it.
task<int> serve_pings(connection conn, mr_allocator& memory) {
  local_mr said = memory.allocate_zeroed(64);
  local_mr data = memory.allocate_zeroed(4096);
  int pings = 0;
  const auto next_buffer = [&]() -> task<remote_mr_slice> {
    const message m = co_await conn.next_message();
    const remote_mr_slice buffer = buffer_in(m.payload().bytes());
    conn.post_recv(said.slice(0, 16));
    co_return buffer;
  };
  conn.post_recv(said.slice(0, 16));
  try {
    for (;;) {
      const remote_mr_slice source = co_await next_buffer();
      co_await conn.read(data.slice(0, source.size_bytes()), source);
      co_await conn.send(said.slice(16, 16));
      const remote_mr_slice sink = co_await next_buffer();
      co_await conn.write(data.slice(0, sink.size_bytes()), sink);
      co_await conn.send(said.slice(16, 16));
      ++pings;
    }
  } catch (const error& e) {
    if (e.code() != errc::disconnected) throw;
  }
  co_return pings;
}

/// Writes a buffer for rping, as `buffer_in` reads it.
void say_buffer(std::span<std::byte> into, const remote_mr_slice& buffer) {
  const auto put = [&](std::size_t at, std::size_t bytes, std::uint64_t value) {
    for (std::size_t n = bytes; n-- > 0; value >>= 8) into[at + n] = std::byte(value);
  };
  put(0, 8, buffer.address());
  put(8, 4, buffer.rkey());
  put(12, 4, buffer.size_bytes());
}

/// rping's client: offers data that the server READs, and a sink that the server WRITEs it to.
/// Returns what arrived in the sink.
task<std::string> ping(connection& conn, runtime& rt, std::string_view data) {
  using verbs::access;
  local_mr said = rt.memory().allocate_zeroed(64);
  local_mr buffers = rt.memory(access::local_write | access::remote_read | access::remote_write)
                         .allocate_zeroed(2 * data.size());
  std::ranges::copy(std::as_bytes(std::span{data}), buffers.bytes().begin());
  for (const std::size_t at : {std::size_t{0}, data.size()}) {
    conn.post_recv(said.slice(0, 16));
    say_buffer(said.bytes().subspan(16, 16), buffers.remote_slice().slice(at, data.size()));
    co_await conn.send(said.slice(16, 16));
    static_cast<void>(co_await conn.next_message());  // The server has done its part.
  }
  const std::span<std::byte> sink = buffers.bytes().subspan(data.size());
  co_return std::string(reinterpret_cast<const char*>(sink.data()), sink.size());
}

endpoint device_endpoint(runtime& rt) {
  endpoint where = detail::endpoint_of(
      cm::test::device_address(rt.context(), rt.context().active_port().number));
  where.kind = endpoint::bootstrap::rdma_cm;
  return where;
}

connection_options plain_options() {
  connection_options options;
  options.plain = true;
  options.insecure = true;
  options.rd_atomic_max = 1;
  return options;
}

}  // namespace

TEST_CASE("rping's data comes back over a plain connection", "[connection][device][rdma_cm]") {
  runtime rt{test::on_test_device()};
  const endpoint where = device_endpoint(rt);
  listener acceptor = rt.listen(where, {}, plain_options());
  test::outcome rping;
  std::thread client{[&, port = acceptor.local_endpoint().port] {
    rping = test::run("LD_PRELOAD='" + test::preload() + "' rping -c -v -V -C 3 -S 100 -a " +
                      where.host + " -p " + std::to_string(port));
    // Ends the wait for a client that never came.
    rt.executor().post([&acceptor]() noexcept { acceptor.close(); });
  }};
  const auto serve = [&]() -> task<int> {
    connection conn = co_await acceptor.accept();
    co_return co_await serve_pings(std::move(conn), rt.memory());
  };
  const int pings = rt.run(serve());
  client.join();
  INFO(rping.output);
  CHECK(rping.exit_status == 0);
  CHECK(pings == 3);
  CHECK_THAT(rping.output, Catch::Contains("ping data: rdma-ping-2"));
}

TEST_CASE("rping serves a plain connection", "[connection][device][rdma_cm]") {
  constexpr std::size_t bytes = 100;
  runtime rt{test::on_test_device()};
  // A port that was free a moment ago: rping would not say which one the system gave it.
  const endpoint where = rt.listen(device_endpoint(rt), {}, plain_options()).local_endpoint();
  test::outcome rping;
  std::jthread server{[&] {
    rping = test::run("LD_PRELOAD='" + test::preload() + "' timeout 60 rping -s -v -S " +
                      std::to_string(bytes) + " -a " + where.host + " -p " +
                      std::to_string(where.port));
  }};
  const auto pings = [&]() -> task<> {
    result<connection> conn = co_await as_result(rt.connect(where, plain_options()));
    const time_point deadline = rt.executor().after(std::chrono::seconds{30});
    // rping does not say when it listens.
    while (conn.has_failure() && rt.executor().now() < deadline)
      conn = co_await as_result(rt.connect(where, plain_options()));
    for (const char filler : {'a', 'b', 'c'}) {
      const std::string data = "cordma-ping-" + std::string(bytes - 13, filler) + '\0';
      const std::string echo = co_await ping(*conn, rt, data);
      CHECK(echo == data);
    }
    co_await conn->close();
  };
  rt.run(pings());
  server.join();
  INFO(rping.output);
  CHECK(rping.exit_status == 0);
  CHECK_THAT(rping.output, Catch::Contains("server ping data: cordma-ping-ccc"));
}
