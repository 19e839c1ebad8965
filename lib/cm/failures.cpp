#include "failures.hpp"

#include "base/descriptors.hpp"
#include "base/failures.hpp"

#include <cerrno>
#include <cstdio>
#include <new>
#include <string_view>

namespace cordma::cm {
namespace {

/// Reasons of a CM REJ message that programs meet (IBTA 12.6.7.2).
enum reject_reason : int {
  no_resources = 3,
  timed_out = 4,
  invalid_service_id = 8,
  stale_connection = 10,
  consumer_defined = 28,
};

const char* way_out_of(int errno_value, std::string_view call) noexcept {
  if (call == "rdma_bind_addr" || call == "rdma_listen") {
    switch (errno_value) {
      case EADDRINUSE:
        return "the port is taken; stop who has it (rdma resource show cm_id), or take another, 0 "
               "for any free one";
      case EACCES: return "ports below 1024 need CAP_NET_BIND_SERVICE; take a higher one";
      case EADDRNOTAVAIL: return "not an address of this host (ip addr)";
      default: break;
    }
  }
  switch (errno_value) {
    case ENODEV:
      return "no RDMA device leads there: is the address one of an RDMA network (rdma link)? "
             "Otherwise connect by TCP";
    case EOPNOTSUPP: return "the device does not connect by rdma_cm; connect by TCP";
    case ECONNREFUSED: return "nobody listens there: is the server up, on this address and port?";
    case ETIMEDOUT:
      return "no answer: is the host up, and does a firewall let RDMA (UDP port 4791) through?";
    case EHOSTUNREACH:
    case ENETUNREACH: return "no route there: check the address and this host's network";
    case EADDRNOTAVAIL: return "not an address of this host (ip addr)";
    case EINVAL:
      return "the device does not have so many responder_resources or initiator_depth, "
             "or the peer is gone";
    default: return way_out_of_descriptors(errno_value);
  }
}

fixed_text<240> text(const socket_address& address, const char* what) noexcept {
  try {
    return detail::detail_text(*what != '\0' ? "%s: %s" : "%s", address.to_string().c_str(), what);
  } catch (const std::bad_alloc&) {
    return what;
  }
}

/// Returns what a reason says to people; empty for one that programs rarely meet.
const char* meaning_of(int reason) noexcept {
  switch (reason) {
    case no_resources: return "the host there has no room for the connection now";
    case timed_out: return "the peer has given up waiting for an answer";
    case stale_connection:
      return "the host there still knows a connection of this queue pair; make a new one";
    case consumer_defined: return "the program there refused the connection";
    default: return "";
  }
}

failure refusal(int reason, const char* call, const socket_address& address) noexcept {
  if (reason == invalid_service_id) return call_failure(ECONNREFUSED, call, address);
  char number[48];
  std::snprintf(number, sizeof number, "reason %d (IBTA 12.6.7.2)", reason);
  const char* const meaning = meaning_of(reason);
  return {.code = errc::refused,
          .call = call,
          .detail = text(address, *meaning != '\0' ? meaning : number)};
}

}  // namespace

failure call_failure(int errno_value, const char* call, const socket_address& address) noexcept {
  return errno_failure(errno_value, call, {}, text(address, way_out_of(errno_value, call)));
}

failure event_failure(const cm_event& event, const char* call,
                      const socket_address& address) noexcept {
  switch (event.kind) {
    case RDMA_CM_EVENT_REJECTED:
      // iWARP gives an errno, the others the REJ message's reason.
      if (event.status < 0) return call_failure(-event.status, call, address);
      return refusal(event.status, call, address);
    case RDMA_CM_EVENT_DISCONNECTED:
      return {.code = errc::disconnected,
              .call = "rdma_cm",
              .detail = text(address, "the peer ended the connection, or is gone")};
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return {.code = errc::device_failed,
              .call = "rdma_cm",
              .detail = text(address, "the RDMA device is gone")};
    case RDMA_CM_EVENT_UNREACHABLE: return call_failure(ETIMEDOUT, call, address);
    // librdmacm 44 says -1 where the kernel found an address, but no device.
    case RDMA_CM_EVENT_ADDR_ERROR:
      return call_failure(event.status == -1 ? ENODEV : -event.status, call, address);
    default: return call_failure(event.status < 0 ? -event.status : EPROTO, call, address);
  }
}

void check_private_data(std::size_t size_bytes, std::size_t limit_bytes, const char* call) {
  if (size_bytes <= limit_bytes) return;
  detail::throw_failure(errc::limit_exceeded, call,
                        detail::detail_text("%zu bytes of private data; rdma_cm carries %zu, so "
                                            "send the rest as a message",
                                            size_bytes, limit_bytes));
}

}  // namespace cordma::cm
