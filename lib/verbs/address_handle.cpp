#include "address_handle.hpp"

#include "failures.hpp"
#include "queue_pair_attributes.hpp"

#include <cordma/detail/base/assert.hpp>

#include <cerrno>

namespace cordma::verbs {
namespace {

constexpr const char* create_ah = "ibv_create_ah";

}  // namespace

void address_handle::destroyer::operator()(ibv_ah* ah) const noexcept {
  const int rc = ibv_destroy_ah(ah);  // Another errno: the device is gone, which is nobody's bug.
  CORDMA_ASSERT(rc != EBUSY, "address handle destroyed while in use");
}

address_handle::address_handle(protection_domain& pd, std::uint8_t port, const address_vector& to) {
  check(to, create_ah);
  ibv_ah_attr attributes = ah_of(to, port);
  ah_.reset(ibv_create_ah(pd.native_handle(), &attributes));
  if (ah_ != nullptr) return;
  const int error_number = errno;
  detail::throw_errno(error_number, create_ah,
                      detail::is_no_route(error_number) && to.is_global
                          ? detail::no_route_text(attributes.grh)
                          : detail::detail_text("port %u", unsigned{port}));
}

}  // namespace cordma::verbs
