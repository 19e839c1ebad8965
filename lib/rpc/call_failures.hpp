#pragma once

#include "call_frame.hpp"

#include <cordma/base/error.hpp>
#include <cordma/io/socket_address.hpp>

#include <cstddef>
#include <span>

namespace cordma::rpc::detail {

/// Why a request was not sent. Call in a `catch`: tells of the exception that is handled there.
failure why_not_sent() noexcept;

/// What a server's answer of kind `failure` says about a call of `method`.
failure failure_in(const call_protocol::header& h, std::span<const std::byte> text,
                   const char* method) noexcept;

/// Has `lost` name the connection's other end.
void say_where(failure& lost, const socket_address& peer) noexcept;

}  // namespace cordma::rpc::detail
