#include "stream_terms.hpp"

#include "message_frame.hpp"

namespace cordma {
namespace {

std::uint64_t checked(const char* what, std::uint64_t value, std::uint64_t low,
                      std::uint64_t high) {
  if (value >= low && value <= high) return value;
  message_protocol::throw_bad_value(what, value);
}

}  // namespace

agent::note encode(const stream_terms& terms) noexcept {
  return {terms.messages, terms.buffer_bytes, terms.message_bytes_max};
}

stream_terms decode_terms(const agent::note& note) {
  namespace limits = message_protocol;
  stream_terms terms;
  terms.messages = std::uint32_t(
      checked("a stream's terms: messages", note[0], limits::credits_min, limits::credits_max));
  terms.buffer_bytes = std::size_t(checked("a stream's terms: buffer_bytes", note[1],
                                           limits::buffer_bytes_min, limits::buffer_bytes_max));
  // No message is shorter than a buffer.
  terms.message_bytes_max = std::size_t(checked("a stream's terms: message_bytes_max", note[2],
                                                terms.buffer_bytes, limits::message_bytes_max));
  return terms;
}

}  // namespace cordma
