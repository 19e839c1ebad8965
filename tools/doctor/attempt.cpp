#include "attempt.hpp"

#include "../perf/text.hpp"
#include "attempt_memory.hpp"

#include <cordma/coro/with_timeout.hpp>
#include <cordma/messages/message_stream.hpp>
#include <cordma/verbs/queue_pair.hpp>

#include <algorithm>
#include <cstring>

namespace doctor {
namespace {

using namespace std::chrono_literals;
using cordma::connection;
using cordma::local_mr_slice;
using cordma::message;
using cordma::remote_mr_slice;
using cordma::runtime;
using cordma::task;
using clock = std::chrono::steady_clock;

constexpr std::size_t long_message_bytes = std::size_t{64} << 10;
constexpr std::uint32_t some_immediate = 0x0c0de000;

/// Gives the next message, and gives its receive back to the device.
task<std::vector<std::byte>> next(connection& conn, std::uint32_t* immediate = nullptr) {
  const message m = co_await conn.next_message();
  const auto payload = m.payload().bytes();
  std::vector<std::byte> bytes(payload.begin(), payload.end());
  if (immediate != nullptr) *immediate = m.immediate.value_or(0);
  conn.post_recv(m.slices);
  co_return bytes;
}

task<remote_mr_slice> learn_area(connection& conn) {
  const std::vector<std::byte> told = co_await next(conn);
  if (told.size() != remote_mr_slice::encoded_bytes)
    throw std::runtime_error{"the peer does not name its memory: is it a cordma-doctor?"};
  std::array<std::byte, remote_mr_slice::encoded_bytes> encoded;
  std::ranges::copy(told, encoded.begin());
  const remote_mr_slice area = remote_mr_slice::decode(encoded);
  if (area.size_bytes() != area_bytes)
    throw std::runtime_error{"the peer's memory has another size: is it of the same version?"};
  co_return area;
}

/// A message there and back.
task<> act_send(connection& conn, buffers& b, bool has_immediate) {
  const local_mr_slice said = b.out.first(message_bytes);
  fill(said.bytes(), message_seed);
  if (has_immediate) {
    co_await conn.send_with_imm(said, some_immediate);
  } else {
    co_await conn.send(said);
  }
  std::uint32_t immediate = 0;
  const std::vector<std::byte> echo = co_await next(conn, &immediate);
  check_filled(echo, message_seed, "SEND");
  check_equal(echo.size(), message_bytes, "the length of a SEND");
  if (has_immediate) check_equal(immediate, some_immediate + 1, "immediate data");
}

task<> act_write_with_imm(connection& conn, buffers& b, remote_mr_slice area) {
  const local_mr_slice said = b.out.first(message_bytes);
  fill(said.bytes(), message_seed);
  co_await conn.write_with_imm(said, area.slice(0, message_bytes), some_immediate);
  std::uint32_t immediate = 0;
  const std::vector<std::byte> echo = co_await next(conn, &immediate);
  check_filled(echo, message_seed, "WRITE with immediate");
  check_equal(immediate, some_immediate + 1, "immediate data");
}

/// Writes `size_bytes`, and reads them from there.
task<> act_write(connection& conn, buffers& b, remote_mr_slice to, std::size_t size_bytes) {
  const local_mr_slice said = b.out.first(size_bytes);
  fill(said.bytes(), message_seed);
  co_await conn.write(said, to.slice(0, size_bytes));
  std::ranges::fill(said.bytes(), std::byte{0});
  co_await conn.read(said, to.slice(0, size_bytes));
  check_filled(said.bytes(), message_seed, "WRITE, then READ");
}

task<> act_read(connection& conn, buffers& b, remote_mr_slice area) {
  const local_mr_slice got = b.out.first(message_bytes);
  co_await conn.read(got, area.slice(0, message_bytes));
  check_filled(got.bytes(), area_seed, "READ");
}

task<> act_atomic(connection& conn, buffers& b, remote_mr_slice area, operation op) {
  std::uint64_t before = 0;
  std::memcpy(&before, b.area.bytes().data(), sizeof before);  // The peer's begins the same.
  const remote_mr_slice word = area.slice(0, sizeof before);
  if (op == operation::compare_swap) {
    check_equal(co_await conn.compare_swap(word, before + 1, 1), before, "compare-and-swap");
    check_equal(co_await conn.compare_swap(word, before, 42), before, "compare-and-swap");
    check_equal(co_await conn.compare_swap(word, 42, before), 42, "compare-and-swap");
  } else if (op == operation::fetch_add) {
    check_equal(co_await conn.fetch_add(word, 5), before, "fetch-and-add");
    check_equal(co_await conn.fetch_add(word, 0), before + 5, "fetch-and-add");
  } else {
    co_await conn.atomic_write(word, 42);
    const local_mr_slice got = b.out.first(sizeof before);
    co_await conn.read(got, word);
    check_equal(got.as<std::uint64_t>()[0], 42, "ATOMIC WRITE");
  }
}

task<std::string> act_lend(connection& conn, buffers& b) {
  cordma::remote_mr lent = co_await conn.request_remote_mr(message_bytes);
  co_await act_write(conn, b, lent.slice(), message_bytes);
  co_return std::string{"isolation "} + cordma::to_string(lent.isolation());
}

/// A long message there and back, over a connection that the stream owns.
task<> act_stream(connection conn, buffers& b) {
  cordma::message_stream stream{std::move(conn)};
  const local_mr_slice said = b.out.first(long_message_bytes);
  fill(said.bytes(), message_seed);
  co_await stream.send(said);
  const cordma::stream_message echo = co_await stream.receive();
  check_equal(echo.size_bytes(), long_message_bytes, "the length of a long message");
  check_filled(echo.bytes(), message_seed, "a long message");
  co_await stream.close();
}

task<std::string> act_late(connection& conn, buffers& b) {
  const clock::time_point start = clock::now();
  co_await conn.send(b.out.first(message_bytes));
  co_return "a receive that came " + std::to_string(lateness.count()) +
      " ms late was waited for; the SEND took " + took(start);
}

/// The peer is silent, not gone: only retries find out.
task<std::string> act_on_silence(connection& conn, buffers& b) {
  static_cast<void>(co_await learn_area(conn));
  const clock::time_point start = clock::now();
  const auto sent = co_await cordma::as_result(conn.send(b.out.first(message_bytes)));
  if (sent.has_value()) throw std::runtime_error{"a SEND to a silent queue pair succeeded"};
  if (sent.is_cancelled()) throw cordma::cancelled{};
  if (sent.failure().code != cordma::wc_errc::retry_exceeded) throw cordma::error{sent.failure()};
  co_return "a silent peer was noticed after " + took(start);
}

task<std::string> act_in_time(runtime& rt, connection& conn, operation op) {
  buffers b{rt};
  if (op == operation::late_receive) co_return co_await act_late(conn, b);
  b.post_receives(conn);
  if (op == operation::silence) co_return co_await act_on_silence(conn, b);
  const remote_mr_slice area = co_await learn_area(conn);
  const clock::time_point start = clock::now();
  std::string more;
  switch (op) {
    case operation::send: co_await act_send(conn, b, false); break;
    case operation::send_with_imm: co_await act_send(conn, b, true); break;
    case operation::write: co_await act_write(conn, b, area, message_bytes); break;
    case operation::write_with_imm: co_await act_write_with_imm(conn, b, area); break;
    case operation::read: co_await act_read(conn, b, area); break;
    case operation::bulk: co_await act_write(conn, b, area, area_bytes); break;
    case operation::lend: more = ", " + co_await act_lend(conn, b); break;
    default: co_await act_atomic(conn, b, area, op); break;
  }
  co_return took(start) + more;
}

bool lacks(runtime& rt, connection& conn, operation op) {
  const auto& limits = rt.context().limits();
  switch (op) {
    case operation::compare_swap:
    case operation::fetch_add: return limits.atomic == IBV_ATOMIC_NONE;
    case operation::atomic_write: return !conn.verbs().has_atomic_write();
    case operation::lend: return !conn.has_agent();
    default: return false;
  }
}

}  // namespace

const char* to_string(operation op) noexcept {
  switch (op) {
    case operation::send: return "send";
    case operation::send_with_imm: return "send_with_imm";
    case operation::write: return "write";
    case operation::write_with_imm: return "write_with_imm";
    case operation::read: return "read";
    case operation::compare_swap: return "compare_swap";
    case operation::fetch_add: return "fetch_add";
    case operation::atomic_write: return "atomic_write";
    case operation::lend: return "lend";
    case operation::stream: return "stream";
    case operation::bulk: return "bulk";
    case operation::late_receive: return "late_receive";
    case operation::silence: return "silence";
  }
  return "unknown";
}

std::string took(clock::time_point since) {
  std::string text;
  const double us = std::chrono::duration<double, std::micro>{clock::now() - since}.count();
  if (us < 1000) {
    perf::append(text, "%.1f us", us);
  } else {
    perf::append(text, "%.1f ms", us / 1000);
  }
  return text;
}

bool is_operation(std::uint8_t number) noexcept {
  return number >= std::uint8_t(operation::send) && number <= std::uint8_t(operation::silence);
}

task<std::string> act(runtime& rt, connection conn, operation op) {
  if (lacks(rt, conn, op)) throw not_there{std::string{to_string(op)} + ": the device has none"};
  if (op == operation::stream) {
    buffers b{rt};
    const clock::time_point start = clock::now();
    co_await cordma::with_timeout(act_stream(std::move(conn), b), attempt_time_max);
    co_return took(start);
  }
  std::string told = co_await cordma::with_timeout(act_in_time(rt, conn, op), attempt_time_max);
  co_await conn.close();
  co_return told;
}

cordma::connection_changes changes_for(operation op) {
  cordma::connection_changes changes;
  if (op == operation::lend) {
    cordma::agent_options lends;
    lends.lending.bytes_max = area_bytes;
    changes.agent = lends;
  }
  if (op == operation::bulk || op == operation::silence) {
    // Packets that are lost show soon: 4.096 us * 2^12 * 4 = 67 ms.
    changes.timeout = std::uint8_t{12};
    changes.retry_cnt = std::uint8_t{3};
  }
  return changes;
}

}  // namespace doctor
