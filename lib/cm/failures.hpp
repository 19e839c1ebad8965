#pragma once

#include "cm_event.hpp"

#include <cordma/base/error.hpp>
#include <cordma/io/socket_address.hpp>

namespace cordma::cm {

/// Makes the failure of a call of librdmacm on an identifier whose peer (or, of a listener, own
/// address) is `address`.
failure call_failure(int errno_value, const char* call, const socket_address& address) noexcept;

/// Makes the failure that an event of rdma_cm tells. `call` is what the program had asked for;
/// `address` is the peer's.
failure event_failure(const cm_event& event, const char* call,
                      const socket_address& address) noexcept;

/// Checks the size of private data. \errors errc::limit_exceeded: names the limit.
void check_private_data(std::size_t size_bytes, std::size_t limit_bytes, const char* call);

}  // namespace cordma::cm
