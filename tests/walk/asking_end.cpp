#include "side.hpp"

#include <support/filled.hpp>

#include <cordma/coro/scope.hpp>

#include <algorithm>

namespace walk {

using namespace cordma;
using namespace std::chrono_literals;

connection_options options_of(bool has_heartbeats) {
  connection_options o;
  o.timeout = 24;  // 69 s.
  o.rnr_retry = 0;
  o.close_timeout = o.connect_timeout = o.agent.request_timeout = 120s;
  o.agent.lending.lease_max = o.agent.lending.grace = o.agent.lending.revoke_timeout = 120s;
  o.insecure = true;  // Between two hosts it listens to the link between them.
  o.heartbeat = {.enabled = has_heartbeats, .interval = 20ms, .misses = 1000};
  return o;
}

stream_options stream_options_of() { return {.message_bytes_max = (std::size_t{64} << 20) + 4096}; }

local_mr walk_memory(mr_allocator& from, std::span<const cell> walks) {
  std::size_t most = 0;
  for (const cell& c : walks) most = std::max(most, c.operations * c.stride());
  return from.allocate_uninitialized(most);
}

void complain(unsigned k, const std::string& what) {
  throw std::runtime_error{"operation " + std::to_string(k) + ": " + what};
}

void check_filled(std::span<const std::byte> bytes, const cell& c, unsigned k) {
  if (bytes.size() != c.size_bytes) complain(k, std::to_string(bytes.size()) + " bytes");
  const std::size_t at = test::first_unlike(bytes, c.key(k));
  if (at != bytes.size()) complain(k, "other bytes from " + std::to_string(at) + " on");
}

std::array<local_mr_slice, 3> cut(const local_mr_slice& all, std::size_t first) {
  const std::size_t second = (all.size_bytes() - first) / 3;
  return scatter(all.first(first), all.slice(first, second),
                 all.last(all.size_bytes() - first - second));
}

namespace {

/// Tells whether the other end's bytes are to be in the operations' memory at the end.
bool gets(deed d) { return d == deed::read || d == deed::read_slices || d == deed::call_sink; }

}  // namespace

/// The connection and memory of one walk.
struct asking_end::talk {
  const cell& c;
  local_mr& memory;
  connection* conn = nullptr;
  message_stream* stream = nullptr;
  rpc::client* client = nullptr;
  remote_mr_slice peer{};

  [[nodiscard]] local_mr_slice area(unsigned k) const {
    return memory.slice(k * c.stride(), c.size_bytes);
  }
  /// Memory that the other end writes gets bytes of no operation.
  void fill_all() const {
    for (unsigned k = 0; k < c.operations; ++k)
      test::fill(area(k).bytes(), gets(c.what) ? 0 : c.key(k));
  }
  void check_all() const {
    for (unsigned k = 0; gets(c.what) && k < c.operations; ++k) check_filled(area(k).bytes(), c, k);
  }
  [[nodiscard]] remote_mr_slice there(unsigned k) const {
    return peer.slice(k * c.stride(), c.size_bytes);
  }
};

asking_end::asking_end(runtime& rt, side& me, std::span<const cell> walks)
    : rt_{rt}, me_{me}, walks_{walks}, memory_{walk_memory(rt.memory(), walks)} {}

task<> asking_end::live(std::string host, acceptors where) {
  const endpoint first{host, where[0]};
  control_ = message_stream{co_await rt_.connect(first, options_of(false))};
  for (const cell& c : walks_) {
    me_.walk = std::uint32_t(&c - walks_.data());
    me_.operations = 0;
    const endpoint at{host, where[c.has_heartbeats]};
    co_await take_walk(c, at);
  }
  me_.does("closes the pair's connection");
  co_await control_.close();
}

task<> asking_end::take_walk(const cell& c, endpoint where) {
  me_.does("connects");
  connection conn = co_await rt_.connect(where, options_of(c.has_heartbeats));
  me_.does("waits for the other end to be ready");
  co_await use(std::move(conn), c);
}

task<> asking_end::use(connection conn, const cell& c) {
  talk t{.c = c, .memory = memory_};
  message_stream stream;
  rpc::client client;
  if (c.what == deed::stream) {
    stream = message_stream{std::move(conn), stream_options_of()};
  } else if (is_call(c.what)) {
    client = rpc::client{std::move(conn), {.stream = stream_options_of(), .call_timeout = 120s}};
  }
  t.conn = &conn, t.stream = &stream, t.client = &client;
  {
    const stream_message ready = co_await control_.receive();
    t.peer = remote_mr_slice::decode(ready.bytes());
  }
  me_.does("fills memory");
  t.fill_all();
  me_.does("operates");
  co_await operate_all(t);
  t.check_all();
  me_.does("tells the other end that all has ended");
  co_await control_.send(std::span<const std::byte>{});
  me_.does("waits for the other end to check");
  co_await control_.receive();
  me_.does("closes");
  if (stream) co_return co_await stream.close();
  if (client) co_return co_await client.close();
  co_await conn.close();
}

task<> asking_end::operate_all(talk& t) {
  unsigned next = 0;
  scope all{rt_.executor()};
  for (unsigned n = 0; n < t.c.depth; ++n) all.spawn(operate_some(t, next));
  co_await all.join();
}

task<> asking_end::operate_some(talk& t, unsigned& next) {
  while (next < t.c.operations) {
    co_await operate(t, next++);
    me_.has_done_one();
  }
}

task<> asking_end::operate(talk& t, unsigned k) {
  const std::size_t half = t.c.size_bytes / 2;
  switch (t.c.what) {
    case deed::send: co_await t.conn->send(t.area(k)); break;
    case deed::send_slices: {
      const auto parts = cut(t.area(k), half);
      co_await t.conn->send(gather(parts[0], parts[1], parts[2]));
      break;
    }
    case deed::write: co_await t.conn->write(t.area(k), t.there(k)); break;
    case deed::write_slices: {
      const auto parts = cut(t.area(k), half);
      co_await t.conn->write(gather(parts[0], parts[1], parts[2]), t.there(k));
      break;
    }
    case deed::write_with_imm: co_await t.conn->write_with_imm(t.area(k), t.there(k), k); break;
    case deed::read: co_await t.conn->read(t.area(k), t.there(k)); break;
    case deed::read_slices: {
      const auto parts = cut(t.area(k), half);
      co_await t.conn->read(parts, t.there(k));
      break;
    }
    case deed::compare_swap:
    case deed::fetch_add: co_await swap(t, k); break;
    case deed::stream: co_await echo_message(t, k); break;
    default: co_await call(t, k);
  }
}

task<> asking_end::swap(talk& t, unsigned k) {
  if (t.c.what == deed::fetch_add) {
    // All operations add to one word.
    const std::uint64_t before = co_await t.conn->fetch_add(t.there(0), k + 1);
    if (before - t.c.key(0) > std::uint64_t{t.c.operations} * t.c.operations)
      complain(k, "a sum that nobody made: " + std::to_string(before));
    co_return;
  }
  const std::uint64_t expected = t.c.key(k);
  const std::uint64_t before = co_await t.conn->compare_swap(t.there(k), expected, ~expected);
  if (before != expected) complain(k, "found " + std::to_string(before));
}

task<> asking_end::echo_message(talk& t, unsigned k) {
  const const_local_mr_slice mine = t.area(k);
  // A slice names registered memory; plain bytes are copied by the stream.
  if (k % 2 == 0) {
    co_await t.stream->send(mine, k);
  } else {
    co_await t.stream->send(mine.bytes(), k);
  }
  ++me_.steps;
  const stream_message back = co_await t.stream->receive();
  check_filled(back.bytes(), t.c, back.immediate().value_or(t.c.operations));
}

task<> asking_end::call(talk& t, unsigned k) {
  const order o{.key = t.c.key(k), .size_bytes = t.c.size_bytes};
  rpc::call_options lent;
  switch (t.c.what) {
    case deed::call: {
      const auto back = co_await t.client->call<echo>(t.area(k).bytes());
      check_filled(*back, t.c, k);
      break;
    }
    case deed::call_request: co_await t.client->call<take>(t.area(k).bytes()); break;
    case deed::call_reply: {
      const std::vector<std::byte> back = co_await t.client->call<give>(o);
      check_filled(back, t.c, k);
      break;
    }
    case deed::call_source:
      lent.source = t.area(k);
      co_await t.client->call<read_source>(o, lent);
      break;
    default: lent.sink = t.area(k); co_await t.client->call<write_sink>(o, lent);
  }
}

}  // namespace walk
