#pragma once

#include <cordma/verbs/device.hpp>

#include <string>

namespace bench {

/// Returns an address by which rdma_cm finds the device.
[[nodiscard]] std::string cm_address(const cordma::verbs::context& ctx);
/// Runs Debian's cmtime as two processes on the device, which it finds by that address. Returns the
/// microseconds that a connection takes there, from the identifier's creation to its end.
[[nodiscard]] double run_cmtime(const std::string& address, unsigned connections);

}  // namespace bench
