#include "host_calls.hpp"

#include "kernel_sockets.hpp"

#include <cordma/io/reactor.hpp>

namespace cordma {
namespace detail {
namespace {

class host_of_kernel final : public host_calls {};

}  // namespace

host_calls& host_calls::of_kernel() noexcept {
  static constinit host_of_kernel kernel;
  return kernel;
}

socket_calls& host_calls::sockets() noexcept { return kernel_sockets(); }

}  // namespace detail

detail::host_calls& reactor::host() noexcept { return detail::host_calls::of_kernel(); }

}  // namespace cordma
