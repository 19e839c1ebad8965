#include "call_failures.hpp"

#include <cerrno>
#include <cstdio>
#include <exception>
#include <new>
#include <string_view>

namespace cordma::rpc::detail {

using call_protocol::status;

namespace {

errc code_of(status s) noexcept {
  switch (s) {
    case status::unknown_method: return errc::unknown_method;
    case status::unknown_version: return errc::incompatible_peer;
    case status::bad_request: return errc::bad_message;
    case status::reply_too_large: return errc::wrong_length;
    case status::shutting_down: return errc::shutting_down;
    case status::stopped: return errc::timed_out;
    case status::out_of_memory:
    case status::handler_failed: break;
  }
  return errc::handler_failed;
}

}  // namespace

failure why_not_sent() noexcept {
  try {
    throw;
  } catch (const error& e) {
    return e.failure();
  } catch (const std::bad_alloc&) {
    return errno_failure(ENOMEM, "rpc");
  } catch (const std::exception& e) {
    return {.code = errc::bad_message, .call = "rpc", .detail = e.what()};
  } catch (...) {
    return {.code = errc::bad_message, .call = "rpc", .detail = "its codec failed"};
  }
}

failure failure_in(const call_protocol::header& h, std::span<const std::byte> text,
                   const char* method) noexcept {
  const std::string_view said{reinterpret_cast<const char*>(text.data()), text.size()};
  failure f{.code = code_of(status{h.value}), .call = method};
  f.detail = said;
  return f;
}

void say_where(failure& lost, const socket_address& peer) noexcept {
  try {
    char text[200];
    std::snprintf(text, sizeof text, "%s: the connection to %s was lost", lost.call,
                  peer.to_string().c_str());
    lost.detail = text;
  } catch (const std::bad_alloc&) {
    // The text stays shorter.
  }
}

}  // namespace cordma::rpc::detail
