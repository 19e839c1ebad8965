#include "holding_failures.hpp"

#include "base/time_text.hpp"

#include <cstdio>

namespace cordma {

void fail_request(errc why, const char* detail, const char* call) {
  throw error{{.code = why, .call = call, .detail = detail}};
}

void fail_late(const char* call, time_span limit) {
  char text[80];
  std::snprintf(text, sizeof text, "the peer's agent did not answer within %s",
                to_text(limit).c_str());
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
