#include "holding_failures.hpp"

#include <cstdio>

namespace cordma {

void fail_request(errc why, const char* detail, const char* call) {
  throw error{{.code = why, .call = call, .detail = detail}};
}

void fail_late(const char* call, std::chrono::milliseconds limit) {
  char text[80];
  std::snprintf(text, sizeof text, "the peer's agent did not answer within %lld ms",
                static_cast<long long>(limit.count()));
  throw error{{.code = errc::timed_out, .call = call, .detail = text}};
}

void fail_ended(const detail::holding& h, const char* call) {
  const errc why = h.block->refusal(h.block->generation(), nullptr, verbs::access::none);
  throw error{{.code = why, .call = call}};
}

void fail_inline(const char* call) {
  fail_request(errc::not_supported, "what a message lends ends with its answer", call);
}

}  // namespace cordma
