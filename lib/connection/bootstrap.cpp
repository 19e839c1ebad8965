#include "bootstrap.hpp"

#include "base/failures.hpp"
#include "base/time_text.hpp"

#include <cordma/coro/with_timeout.hpp>
#include <cordma/io/executor.hpp>

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

/// A frame, and its bytes.
struct received {
  handshake::frame frame;
  handshake::frame_bytes_t bytes;
};

/// Fills `into` with a part of the frame that is due.
task<> read_part(byte_channel& channel, std::span<std::byte> into, const char* due) {
  const result<void> outcome = co_await as_result(read_exactly(channel, into));
  if (outcome.is_cancelled()) throw cancelled{};
  if (outcome.has_value()) co_return;
  const failure& why = outcome.failure();
  if (why.code != errc::disconnected) throw error{why};
  detail::throw_failure(
      errc::disconnected, "handshake",
      detail::detail_text("the peer has gone before %s: %.*s", due, int(why.detail.view().size()),
                          why.detail.view().data()));
}

/// Reads the preamble first: a peer of another protocol mostly sends less than a frame, and is
/// refused at once, not at the deadline. \errors also what a refusal says.
task<received> read_frame(byte_channel& channel, const char* due) {
  received got;
  const std::span<std::byte, handshake::frame_bytes> all{got.bytes};
  co_await read_part(channel, all.first<handshake::preamble_bytes>(), due);
  const auto whole = all.first(handshake::check_preamble(all.first<handshake::preamble_bytes>()));
  co_await read_part(channel, whole.subspan(handshake::preamble_bytes), due);
  got.frame = handshake::decode(whole);
  const auto* const verdict = std::get_if<handshake::verdict>(&got.frame);
  if (verdict != nullptr && !verdict->is_accepted()) throw error{verdict->to_failure()};
  co_return got;
}

template <class Wanted>
const Wanted& expect(const received& got, const char* wanted) {
  if (const auto* due = std::get_if<Wanted>(&got.frame)) return *due;
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
  const received got = co_await read_frame(channel, "its start");
  co_return expect<handshake::start>(got, "another frame came where a start was due");
}

task<handshake::received_hello> read_hello(byte_channel& channel) {
  const received got = co_await read_frame(channel, "its hello");
  co_return handshake::received_hello{
      expect<handshake::hello>(got, "another frame came where a hello was due"), got.bytes};
}

task<> read_acceptance(byte_channel& channel, handshake::nonce ours) {
  const received got = co_await read_frame(channel, "its verdict");
  const auto& said = expect<handshake::verdict>(got, "another frame came where a verdict was due");
  if (said.of == ours) co_return;
  throw error{{.code = errc::bad_handshake,
               .call = "handshake",
               .detail = "the verdict accepts another hello than this side's: it is of another "
                         "handshake"}};
}

task<> read_refusal(byte_channel& channel) {
  const received got = co_await read_frame(channel, "its refusal");
  static_cast<void>(got);
  throw error{{.code = errc::bad_handshake,
               .call = "handshake",
               .detail = "another frame came where a refusal was due"}};
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
