#pragma once

#include "call_frame.hpp"

#include <cordma/base/error.hpp>
#include <cordma/io/socket_address.hpp>

#include <cstddef>
#include <span>

namespace cordma::rpc::detail {

/// Why a request was not sent: call in a `catch`, for the exception that is handled there.
failure why_not_sent() noexcept;

/// The failure of a call of `method`, from a server's answer of kind `failure`.
failure failure_in(const call_protocol::header& h, std::span<const std::byte> text,
                   const char* method) noexcept;

/// Adds the peer's address to `lost`.
void say_where(failure& lost, const socket_address& peer) noexcept;

}  // namespace cordma::rpc::detail
