#include "bootstrap.hpp"

#include "base/time_text.hpp"

#include <cordma/coro/with_timeout.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>

namespace cordma::bootstrap {
namespace {

/// Longest time that `refuse` waits for the peer to read its verdict, and drains what the peer
/// still sends.
constexpr std::chrono::milliseconds linger_max{500};
constexpr std::size_t linger_bytes_max = 64 * 1024;

/// Reads the preamble first: a peer of another protocol mostly sends less than a frame, and is
/// refused at once, not at the deadline.
task<handshake::frame> read_frame(stream_socket& stream) {
  handshake::frame_bytes_t bytes;
  const std::span<std::byte, handshake::frame_bytes> all{bytes};
  co_await stream.read_exactly(all.first<handshake::preamble_bytes>());
  handshake::check_preamble(all.first<handshake::preamble_bytes>());
  co_await stream.read_exactly(all.subspan<handshake::preamble_bytes>());
  co_return handshake::decode(bytes);
}

[[noreturn]] void throw_unexpected(const char* wanted) {
  throw error{{.code = errc::bad_handshake, .call = "handshake", .detail = wanted}};
}

task<> send_last_words(stream_socket& stream, failure why) {
  co_await send(stream, handshake::encode(handshake::verdict::refused(why)));
  stream.shut_down_writing();
  std::array<std::byte, 4096> rest;
  for (std::size_t left = linger_bytes_max; left > 0;) {
    const std::size_t n = co_await stream.read_some(rest);
    if (n == 0) co_return;
    left -= std::min(left, n);
  }
}

}  // namespace

task<> send(stream_socket& stream, handshake::frame_bytes_t frame) {
  co_await stream.write_all(frame);
}

task<handshake::hello> read_hello(stream_socket& stream) {
  const handshake::frame f = co_await read_frame(stream);
  if (const auto* hello = std::get_if<handshake::hello>(&f)) co_return *hello;
  const auto& verdict = std::get<handshake::verdict>(f);
  if (!verdict.is_accepted()) throw error{verdict.to_failure()};
  throw_unexpected("an acceptance came where a hello was due");
}

task<> read_acceptance(stream_socket& stream) {
  const handshake::frame f = co_await read_frame(stream);
  const auto* verdict = std::get_if<handshake::verdict>(&f);
  if (verdict == nullptr) throw_unexpected("a hello came where a verdict was due");
  if (!verdict->is_accepted()) throw error{verdict->to_failure()};
}

task<> refuse(stream_socket& stream, failure why) {
  // The outcome does not matter: the peer is refused even if it does not listen.
  const auto outcome = co_await as_result(
      with_timeout(send_last_words(stream, why), linger_max, &stream.executor()));
  if (outcome.is_cancelled()) throw cancelled{};
}

failure name_timeout(const failure& f, const char* call, time_span limit) noexcept {
  // A failure that the peer reported is not renamed: its own deadline may have passed.
  if (f.code != make_error_code(errc::timed_out) || f.call != std::string_view{"with_timeout"}) {
    return f;
  }
  char text[80];
  std::snprintf(text, sizeof text, "it took longer than %s", to_text(limit).c_str());
  return {.code = f.code, .call = call, .detail = text};
}

}  // namespace cordma::bootstrap
