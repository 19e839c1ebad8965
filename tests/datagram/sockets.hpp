#pragma once

#include "support/connected_pair.hpp"

#include <cordma/coro/with_timeout.hpp>
#include <cordma/datagram/datagram_socket.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cordma::test {

inline constexpr std::uint32_t qkey = 0x1234;

/// Two sockets of one runtime.
struct two_sockets {
  explicit two_sockets(const datagram_options& a_options = {.qkey = qkey},
                       const datagram_options& b_options = {.qkey = qkey})
      : a{rt.open_datagram(a_options)}, b{rt.open_datagram(b_options)} {}

  [[nodiscard]] local_mr text(std::string_view bytes) {
    local_mr made = rt.memory().allocate_zeroed(std::max<std::size_t>(bytes.size(), 1));
    std::memcpy(made.bytes().data(), bytes.data(), bytes.size());
    return made;
  }
  [[nodiscard]] local_mr buffer() { return rt.memory().allocate_zeroed(b.payload_max()); }
  void post_to(datagram_socket& to, std::size_t count = 1) {
    for (std::size_t n = 0; n < count; ++n) {
      buffers.push_back(buffer());
      to.post_recv(buffers.back().slice());
    }
  }
  datagram next(datagram_socket& from) {
    return rt.run(with_timeout(from.next_datagram(), std::chrono::seconds{10}));
  }
  template <class Op>
  failure failure_of(Op op) {
    const auto outcome = rt.run(as_result(std::move(op)));
    return outcome.has_failure() ? outcome.failure() : failure{};
  }

  runtime rt{on_test_device()};
  std::vector<local_mr> buffers;
  datagram_socket a;
  datagram_socket b;
};

inline std::string text_of(const datagram& d) {
  const local_mr_slice bytes = d.payload();
  return {reinterpret_cast<const char*>(bytes.bytes().data()), bytes.size_bytes()};
}

}  // namespace cordma::test
