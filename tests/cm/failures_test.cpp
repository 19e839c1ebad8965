#include "cm/failures.hpp"

#include <catch2/catch.hpp>

#include <cerrno>
#include <string>

using namespace cordma;
using namespace cordma::cm;
using Catch::Matchers::Contains;

namespace {

failure failure_of(rdma_cm_event_type kind, int status) {
  rdma_cm_event original{};
  original.event = kind;
  original.status = status;
  return event_failure(cm_event{original}, "rdma_connect", socket_address::loopback(7471));
}

}  // namespace

TEST_CASE(
    "each event that ends a connection is a failure with the step, the address and the reason",
    "[cm]") {
  struct {
    rdma_cm_event_type kind;
    int status;
    std::error_code code;
    const char* text;
  } const cases[] = {
      {RDMA_CM_EVENT_ADDR_ERROR, -ENODEV, {ENODEV, std::system_category()}, "no RDMA device"},
      // librdmacm 44 reports this where the kernel knew an address and no device.
      {RDMA_CM_EVENT_ADDR_ERROR, -1, {ENODEV, std::system_category()}, "no RDMA device"},
      {RDMA_CM_EVENT_ADDR_ERROR,
       -EHOSTUNREACH,
       {EHOSTUNREACH, std::system_category()},
       "no route there"},
      {RDMA_CM_EVENT_ROUTE_ERROR, -ETIMEDOUT, {ETIMEDOUT, std::system_category()}, "no answer"},
      {RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, {ETIMEDOUT, std::system_category()}, "no answer"},
      {RDMA_CM_EVENT_CONNECT_ERROR, -ENOMEM, {ENOMEM, std::system_category()}, "127.0.0.1:7471"},
      {RDMA_CM_EVENT_CONNECT_ERROR, 1, {EPROTO, std::system_category()}, "127.0.0.1:7471"},
      {RDMA_CM_EVENT_REJECTED, 8, {ECONNREFUSED, std::system_category()}, "nobody listens"},
      {RDMA_CM_EVENT_REJECTED,
       -ECONNREFUSED,
       {ECONNREFUSED, std::system_category()},
       "nobody listens"},
      {RDMA_CM_EVENT_REJECTED, 28, errc::refused, "the program there refused"},
      {RDMA_CM_EVENT_REJECTED, 3, errc::refused, "no room"},
      {RDMA_CM_EVENT_REJECTED, 4, errc::refused, "given up waiting"},
      {RDMA_CM_EVENT_REJECTED, 10, errc::refused, "still knows"},
      {RDMA_CM_EVENT_REJECTED, 77, errc::refused, "reason 77"},
  };
  for (const auto& one : cases) {
    const failure f = failure_of(one.kind, one.status);
    CHECK(f.code == one.code);
    CHECK(std::string_view{f.call} == "rdma_connect");
    CHECK_THAT(f.to_string(), Contains(one.text) && Contains("127.0.0.1:7471"));
  }
}

TEST_CASE("a connection that ends later says who ended it", "[cm]") {
  const failure left = failure_of(RDMA_CM_EVENT_DISCONNECTED, 0);
  CHECK(left.code == errc::disconnected);
  CHECK_THAT(left.to_string(), Contains("127.0.0.1:7471: the peer ended the connection"));
  CHECK(failure_of(RDMA_CM_EVENT_DEVICE_REMOVAL, 0).code == errc::device_failed);
}

TEST_CASE("a port that cannot be listened on says what to do", "[cm]") {
  const auto text = [](int errno_value) {
    return call_failure(errno_value, "rdma_bind_addr", socket_address::loopback(80)).to_string();
  };
  CHECK_THAT(text(EADDRINUSE), Contains("127.0.0.1:80: the port is taken"));
  CHECK_THAT(text(EACCES), Contains("CAP_NET_BIND_SERVICE"));
  CHECK_THAT(text(EADDRNOTAVAIL), Contains("not an address of this host"));
  CHECK_THAT(text(ENODEV), Contains("no RDMA device"));
  CHECK_THAT(text(EOPNOTSUPP), Contains("connect by TCP"));
}

TEST_CASE("too much private data is an error that names the limit", "[cm]") {
  CHECK_NOTHROW(check_private_data(request_bytes_max, request_bytes_max, "rdma_connect"));
  try {
    check_private_data(57, request_bytes_max, "rdma_connect");
    FAIL("57 bytes are too many");
  } catch (const error& e) {
    CHECK(e.code() == errc::limit_exceeded);
    CHECK_THAT(e.what(), Contains("57 bytes") && Contains("56"));
  }
}
