#include <cordma/rpc/codec.hpp>

#include "base/failures.hpp"

namespace cordma::rpc::detail {

using cordma::detail::detail_text;
using cordma::detail::throw_failure;

void throw_bad_message(const char* why) { throw_failure(errc::bad_message, "rpc::decode", why); }

void check_length(std::size_t length, std::size_t expected) {
  if (length != expected)
    throw_failure(errc::bad_message, "rpc::decode",
                  detail_text("%zu bytes, its type takes %zu: do both sides mean the same type?",
                              length, expected));
}

int protobuf_length(std::size_t length) {
  if (length > INT_MAX)
    throw_failure(errc::limit_exceeded, "rpc::encode",
                  detail_text("%zu bytes, protobuf takes %zu: split the message", length,
                              std::size_t{INT_MAX}));
  return int(length);
}

void check_serialized(bool is_serialized, std::size_t length) {
  if (!is_serialized)
    throw_failure(
        errc::bad_message, "rpc::encode",
        detail_text("SerializeToArray failed, into %zu bytes: are required fields missing?",
                    length));
}

void check_parsed(bool is_parsed, std::size_t length) {
  if (!is_parsed)
    throw_failure(
        errc::bad_message, "rpc::decode",
        detail_text("ParseFromArray failed, on %zu bytes: do both sides mean the same type?",
                    length));
}

}  // namespace cordma::rpc::detail
