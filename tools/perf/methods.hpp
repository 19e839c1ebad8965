#pragma once

#include "job.hpp"

#include <cordma/datagram/datagram.hpp>
#include <cordma/memory/slice.hpp>
#include <cordma/rpc/method.hpp>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace perf {

// The calls between a client and a server of cordma-perf, on a connection beside those that are
// measured.

/// The place where the client connects for its job.
struct opened {
  std::uint32_t number = 0;
  std::uint32_t port = 0;
};
struct open_job : cordma::rpc::method<"perf.open", job_frame, opened> {};

/// One connection of a job, as the server knows it.
struct remote_end {
  std::uint32_t qpn = 0;  ///< The client's queue pair.
  std::array<std::byte, cordma::remote_mr_slice::encoded_bytes> memory{};
  std::array<std::byte, cordma::datagram_address::encoded_bytes> datagrams{};
};
/// The places of all connections, one `remote_end` after another, as soon as the server is ready on
/// each of them. No message from then on meets a peer without a receive.
struct remote_ends_of : cordma::rpc::method<"perf.places", std::uint32_t, std::vector<std::byte>> {
};

/// The server's cost of a job that is over.
struct ended {
  std::uint64_t cpu_ns = 0;
  // The server's own operations of a job in both directions, all connections together.
  std::uint64_t operations = 0;
  std::uint64_t time_ns = 0;
  std::uint64_t p50_ns = 0;
  std::uint64_t p99_ns = 0;
  std::uint64_t max_ns = 0;
};
struct end_job : cordma::rpc::method<"perf.end", std::uint32_t, ended> {};

/// The call that is measured as `rpc`: the server gives back what it gets.
using bytes = std::span<const std::byte>;
struct echo : cordma::rpc::method<"perf.echo", bytes, bytes> {};

}  // namespace perf
