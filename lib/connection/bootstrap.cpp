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
task<handshake::frame> read_frame(byte_channel& channel) {
  handshake::frame_bytes_t bytes;
  const std::span<std::byte, handshake::frame_bytes> all{bytes};
  co_await read_exactly(channel, all.first<handshake::preamble_bytes>());
  const auto whole = all.first(handshake::check_preamble(all.first<handshake::preamble_bytes>()));
  co_await read_exactly(channel, whole.subspan(handshake::preamble_bytes));
  co_return handshake::decode(whole);
}

/// Reads a frame that is a `Wanted`, or a refusal. \errors what the refusal says.
template <class Wanted>
task<Wanted> read(byte_channel& channel, const char* wanted) {
  const handshake::frame f = co_await read_frame(channel);
  if (const auto* verdict = std::get_if<handshake::verdict>(&f);
      verdict != nullptr && !verdict->is_accepted()) {
    throw error{verdict->to_failure()};
  }
  if (const auto* due = std::get_if<Wanted>(&f)) co_return *due;
  throw error{{.code = errc::bad_handshake, .call = "handshake", .detail = wanted}};
}

task<> send_last_words(byte_channel& channel, failure why) {
  const handshake::frame_bytes_t words = handshake::encode(handshake::verdict::refused(why));
  co_await write_all(channel, words);
  channel.end_writing();
  std::array<std::byte, 4096> rest;
  for (std::size_t left = linger_bytes_max; left > 0;) {
    const std::size_t n = co_await read_some(channel, rest);
    if (n == 0) co_return;
    left -= std::min(left, n);
  }
}

}  // namespace

task<handshake::start> read_start(byte_channel& channel) {
  return read<handshake::start>(channel, "another frame came where a start was due");
}

task<handshake::hello> read_hello(byte_channel& channel) {
  return read<handshake::hello>(channel, "another frame came where a hello was due");
}

task<> read_acceptance(byte_channel& channel) {
  static_cast<void>(
      co_await read<handshake::verdict>(channel, "another frame came where a verdict was due"));
}

task<> refuse(byte_channel& channel, failure why) {
  // The outcome does not matter: the peer is refused even if it does not listen.
  const auto outcome = co_await as_result(
      with_timeout(send_last_words(channel, why), linger_max, &channel.executor()));
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
