#pragma once

#include "connected_pair.hpp"
#include "outcome.hpp"
#include "queue/send_queue.hpp"
#include "request/queue_pair.hpp"
#include "text.hpp"
#include "until.hpp"

#include <cordma/coro/scope.hpp>
#include <cordma/messages/message_stream.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

// Two ends of a message stream on one runtime, and what tests send over it.
namespace cordma::test::streams {

using std::size_t;
using test::bytes_of;
using test::code_of;
using test::never_not_ready;
using test::text_of;

/// Different at every offset and for every `seed`.
inline std::vector<std::byte> seeded_bytes(size_t size, unsigned seed) {
  std::vector<std::byte> all(size);
  for (size_t i = 0; i < size; ++i) all[i] = std::byte((i * 7 + (i >> 8) + seed) & 0xff);
  return all;
}

struct stream_pair : test::connected_pair {
  explicit stream_pair(const stream_options& of_client = {}, const stream_options& of_server = {},
                       runtime_options options = {})
      : connected_pair{std::move(options), never_not_ready(), never_not_ready()},
        a{std::move(client), of_client},
        b{std::move(server), of_server} {}
  message_stream a, b;
};

/// The smallest inbox: all but four of eight buffers are for messages.
constexpr stream_options smallest{.depth = 8, .buffer_bytes = 64};
constexpr unsigned inbox = 4;
constexpr size_t large_bytes = 1000;

inline task<> send_numbers(message_stream& s, unsigned first, unsigned end) {
  for (unsigned n = first; n < end; ++n) {
    const std::string text = std::to_string(n);
    co_await s.send(bytes_of(text), n % 3 == 0 ? std::optional{n} : std::nullopt);
  }
}

inline task<> receive_numbers(message_stream& s, unsigned first, unsigned end) {
  for (unsigned n = first; n < end; ++n) {
    const stream_message m = co_await s.receive();
    CHECK(text_of(m.bytes()) == std::to_string(n));
    CHECK(m.immediate() == (n % 3 == 0 ? std::optional{n} : std::nullopt));
  }
}

inline task<> both_ways(message_stream& a, message_stream& b, unsigned count) {
  co_await when_all(send_numbers(a, 0, count), send_numbers(b, 0, count),
                    receive_numbers(a, 0, count), receive_numbers(b, 0, count));
}

/// Sends it, and checks that it arrives as it was.
inline task<> pass(message_stream& from, message_stream& to, std::span<const std::byte> bytes) {
  auto [sent, m] = co_await when_all(as_result(from.send(bytes)), to.receive());
  CHECK(sent.has_value());
  CHECK(m.size_bytes() == bytes.size());
  CHECK(std::ranges::equal(m.bytes(), bytes));
}

inline task<> pass_memory(message_stream& from, message_stream& to, const_local_mr_slice memory) {
  auto [sent, m] = co_await when_all(as_result(from.send(memory)), to.receive());
  CHECK(sent.has_value());
  const std::span<const std::byte> came = m.bytes(), wanted = memory.bytes();
  REQUIRE(came.size() == wanted.size());
  CHECK(std::memcmp(came.data(), wanted.data(), came.size()) == 0);
}

}  // namespace cordma::test::streams
