#include "messages/stream_terms.hpp"

#include "messages/message_frame.hpp"

#include <cordma/base/error.hpp>

#include <catch2/catch.hpp>

#include <cstdint>
#include <string>

using namespace cordma;

TEST_CASE("terms arrive as they were told", "[messages]") {
  const stream_terms told{.messages = 32, .buffer_bytes = 100, .message_bytes_max = 200};
  const agent::note note = encode(told);
  CHECK(note == agent::note{32, 100, 200});
  const stream_terms got = decode_terms(note);
  CHECK(got.messages == told.messages);
  CHECK(got.buffer_bytes == told.buffer_bytes);
  CHECK(got.message_bytes_max == told.message_bytes_max);
}

TEST_CASE("the least and the most of each term are terms, and nothing beyond", "[messages]") {
  namespace limits = message_protocol;
  CHECK_NOTHROW(
      decode_terms({limits::credits_min, limits::buffer_bytes_min, limits::buffer_bytes_min}));
  CHECK_NOTHROW(
      decode_terms({limits::credits_max, limits::buffer_bytes_max, limits::message_bytes_max}));
  struct row {
    agent::note note;
    const char* says;
  };
  for (const row& r :
       {row{{limits::credits_min - 1, 64, 64}, "messages 0x7"},
        row{{limits::credits_max + 1, 64, 64}, "messages 0x100001"},
        row{{std::uint64_t{1} << 32 | 8, 64, 64}, "messages 0x100000008"},
        row{{8, limits::buffer_bytes_min - 1, 64}, "buffer_bytes 0x3f"},
        row{{8, limits::buffer_bytes_max + 1, limits::message_bytes_max}, "buffer_bytes 0x100001"},
        row{{8, 65, 64}, "message_bytes_max 0x40"},
        row{{8, 64, limits::message_bytes_max + 1}, "message_bytes_max 0x40000001"}}) {
    INFO(r.says);
    try {
      static_cast<void>(decode_terms(r.note));
      FAIL("they are terms");
    } catch (const error& e) {
      CHECK(e.code() == errc::bad_frame);
      CHECK(std::string{e.failure().detail.view()} == "a stream's terms: " + std::string{r.says});
    }
  }
}
