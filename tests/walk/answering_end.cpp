#include "side.hpp"

#include <support/filled.hpp>

#include <cordma/coro/scope.hpp>

#include <algorithm>

namespace walk {

using namespace cordma;
using namespace std::chrono_literals;
using verbs::access;

namespace {

/// Takes out of `left` the operation that a message is of: nothing else tells which.
unsigned take_match(std::span<const std::byte> bytes, const cell& c, std::vector<unsigned>& left) {
  const auto head = bytes.first(std::min(bytes.size(), sizeof(std::uint64_t)));
  const auto found =
      std::ranges::find_if(left, [&](unsigned k) { return test::is_filled(head, c.key(k)); });
  if (found == left.end()) complain(c.operations, "a message that nobody sent");
  const unsigned k = *found;
  left.erase(found);
  check_filled(bytes, c, k);
  return k;
}

std::vector<unsigned> all_of(const cell& c) {
  std::vector<unsigned> all;
  for (unsigned k = 0; k < c.operations; ++k) all.push_back(k);
  return all;
}

using view = std::span<const std::byte>;

task<view> say_again(view said) { co_return said; }
task<rpc::nothing> take_request(view said, const cell& c, std::vector<unsigned>& left) {
  take_match(said, c, left);
  co_return {};
}
task<rpc::nothing> fetch(order o, rpc::server_call& call) {
  const local_mr mine = co_await call.fetch_source(o.size_bytes);
  if (mine.size_bytes() != o.size_bytes || !test::is_filled(mine.bytes(), o.key))
    throw std::runtime_error{"other bytes in the source"};
  co_return {};
}
task<rpc::nothing> put(order o, rpc::server_call& call) {
  const remote_mr theirs = call.sink();
  local_mr mine = call.connection().memory().allocate_uninitialized(o.size_bytes);
  test::fill(mine.bytes(), o.key);
  co_await call.connection().write(mine.slice(), theirs.slice());
  co_return {};
}
task<std::vector<std::byte>> make(order o) {
  std::vector<std::byte> all(o.size_bytes);
  test::fill(all, o.key);
  co_return all;
}

}  // namespace

answering_end::answering_end(runtime& rt, side& me, std::span<const cell> walks,
                             const std::string& host)
    : me_{me},
      walks_{walks},
      memory_{walk_memory(rt.memory(access::local_write | access::remote_write |
                                    access::remote_read | access::remote_atomic),
                          walks)},
      acceptors_{rt.listen({host, 0}, {}, options_of(false)),
                 rt.listen({host, 0}, {}, options_of(true))} {}

acceptors answering_end::listens_at() const {
  return {acceptors_[0].local_endpoint().port, acceptors_[1].local_endpoint().port};
}

task<> answering_end::live() {
  control_ = message_stream{co_await acceptors_[0].accept()};
  for (const cell& c : walks_) {
    me_.walk = std::uint32_t(&c - walks_.data());
    me_.operations = 0;
    co_await take_walk(c);
  }
  me_.does("closes the pair's connection");
  co_await control_.close();
}

task<> answering_end::take_walk(const cell& c) {
  me_.does("accepts");
  connection conn = co_await acceptors_[c.has_heartbeats].accept();
  me_.does("serves");
  if (c.what == deed::stream) {
    co_await echo_messages(c, message_stream{std::move(conn), stream_options_of()});
  } else if (is_call(c.what)) {
    co_await serve_calls(c, std::move(conn));
  } else {
    co_await serve_memory(c, std::move(conn));
  }
}

task<> answering_end::say_ready() {
  const auto where = memory_.remote_slice().encode();
  co_await control_.send(std::span<const std::byte>{where});
  ++me_.steps;
}

task<> answering_end::say_checked() {
  co_await control_.send(std::span<const std::byte>{});
  me_.does("closes");
}

task<> answering_end::serve_memory(const cell& c, connection conn) {
  prepare(c, conn);
  co_await say_ready();
  co_await take_messages(c, conn);
  co_await control_.receive();
  check_memory(c);
  co_await say_checked();
  co_await conn.close();
}

void answering_end::prepare(const cell& c, connection& conn) {
  for (unsigned k = 0; k < c.operations; ++k) {
    switch (c.what) {
      case deed::send: conn.post_recv(area(c, k)); break;
      case deed::send_slices: conn.post_recv(cut(area(c, k), c.size_bytes / 5)); break;
      case deed::write_with_imm: conn.post_recv(local_mr_slice{}); break;
      case deed::read:
      case deed::read_slices: test::fill(area(c, k).bytes(), c.key(k)); break;
      case deed::compare_swap:
      case deed::fetch_add: word(c, k) = c.key(k); break;
      default: break;
    }
    ++me_.steps;
  }
}

task<> answering_end::take_messages(const cell& c, connection& conn) {
  const bool is_send = c.what == deed::send || c.what == deed::send_slices;
  if (!is_send && c.what != deed::write_with_imm) co_return;
  std::vector<unsigned> left = all_of(c);
  while (!left.empty()) {
    const message m = co_await conn.next_message();
    const unsigned setting = c.operations - unsigned(left.size());
    if (is_send) {
      take_match(area(c, setting).first(m.size_bytes).bytes(), c, left);
    } else {
      const auto found = std::ranges::find(left, m.immediate.value_or(c.operations));
      if (found == left.end()) complain(setting, "an immediate that nobody sent");
      check_filled(area(c, *found).bytes(), c, *found);
      left.erase(found);
    }
    me_.has_done_one();
  }
}

void answering_end::check_memory(const cell& c) {
  std::uint64_t sum = c.key(0);
  for (unsigned k = 0; k < c.operations; ++k) {
    if (c.what == deed::write || c.what == deed::write_slices)
      check_filled(area(c, k).bytes(), c, k);
    if (c.what == deed::compare_swap && word(c, k) != ~c.key(k)) complain(k, "was not swapped");
    sum += k + 1;
    ++me_.steps;
  }
  if (c.what == deed::fetch_add && word(c, 0) != sum) complain(0, "another sum");
}

task<> answering_end::echo_messages(const cell& c, message_stream stream) {
  co_await say_ready();
  for (unsigned k = 0; k < c.operations; ++k) {
    const stream_message said = co_await stream.receive();
    ++me_.steps;
    co_await stream.send(said.slice(), said.immediate());
    me_.has_done_one();
  }
  co_await control_.receive();
  co_await say_checked();
  co_await stream.close();
}

task<> answering_end::serve_calls(const cell& c, connection conn) {
  rpc::server server{{.stream = stream_options_of(), .answer_timeout = 120s}};
  std::vector<unsigned> left = all_of(c);
  server.handle<echo>(&say_again);
  server.handle<take>([&](view said) { return take_request(said, c, left); });
  server.handle<give>(&make);
  server.handle<read_source>(&fetch);
  server.handle<write_sink>(&put);
  co_await with_scope([&](scope& all) -> task<> {
    all.spawn(server.serve(std::move(conn)));
    co_await say_ready();
    co_await control_.receive();
    co_await say_checked();
  });
}

}  // namespace walk
