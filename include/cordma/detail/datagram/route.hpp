#pragma once

#include <cordma/detail/base/counted.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/detail/queue/work_request.hpp>
#include <cordma/queue/work_request.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace cordma {

class send_queue;
struct datagram_address;

namespace detail {

class datagram_state;
/// A path to a peer, with the address handle of it.
class route;

/// A SEND of N slices to a destination, whose route it keeps.
template <std::size_t N>
struct datagram_request {
  using value_type = std::size_t;
  static constexpr request_kind kind = request_kind::send;
  static constexpr std::size_t sge_count = N;

  send_request<N> message;
  request_destination to{};
  counted_ref<route> path{};

  [[nodiscard]] wr_summary summary() const noexcept {
    wr_summary made = message.summary();
    made.to = &to;
    return made;
  }
  [[nodiscard]] value_type value() const noexcept { return message.value(); }
};

/// Sets destination and route of a request, if the route is known. Returns false if it is not.
CORDMA_EXPORT bool route_to(const counted_ref<datagram_state>& from,
                            const datagram_address& address, request_destination& to,
                            counted_ref<route>& path) noexcept;
/// \errors errc::closed: the socket was dropped.
CORDMA_EXPORT send_queue& sends_of(const counted_ref<datagram_state>& from);

}  // namespace detail
}  // namespace cordma
