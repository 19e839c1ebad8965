#pragma once

#include <cordma/detail/base/fixed_text.hpp>
#include <cordma/io/socket_address.hpp>

namespace cordma::detail {

/// Returns what `socket_address::to_string` returns, without an allocation. A Unix socket's path
/// may have any bytes.
fixed_text<128> address_text(const socket_address& address) noexcept;

}  // namespace cordma::detail
