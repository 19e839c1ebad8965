#include <cordma/rpc/codec.hpp>

#include <cordma/base/error.hpp>

#include <cstdio>

namespace cordma::rpc::detail {

void throw_bad_message(const char* why) {
  throw error{{.code = errc::bad_message, .call = "rpc::decode", .detail = why}};
}

void check_length(std::size_t length, std::size_t expected) {
  if (length == expected) return;
  char text[120];
  std::snprintf(text, sizeof text,
                "%zu bytes, its type takes %zu: do both sides mean the same type?", length,
                expected);
  throw_bad_message(text);
}

int protobuf_length(std::size_t length) {
  if (length <= INT_MAX) return int(length);
  char text[120];
  std::snprintf(text, sizeof text, "%zu bytes, protobuf takes %d: split the message", length,
                INT_MAX);
  throw error{{.code = errc::limit_exceeded, .call = "rpc::encode", .detail = text}};
}

void check_serialized(bool is_serialized, std::size_t length) {
  if (is_serialized) return;
  char text[120];
  std::snprintf(text, sizeof text,
                "SerializeToArray failed, into %zu bytes: are required fields missing?", length);
  throw error{{.code = errc::bad_message, .call = "rpc::encode", .detail = text}};
}

void check_parsed(bool is_parsed, std::size_t length) {
  if (is_parsed) return;
  char text[120];
  std::snprintf(text, sizeof text,
                "ParseFromArray failed, on %zu bytes: do both sides mean the same type?", length);
  throw_bad_message(text);
}

}  // namespace cordma::rpc::detail
