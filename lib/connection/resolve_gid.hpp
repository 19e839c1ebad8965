#pragma once

#include <cordma/coro/task.hpp>
#include <cordma/io/executor.hpp>
#include <cordma/verbs/protection_domain.hpp>
#include <cordma/verbs/queue_pair_attributes.hpp>

#include <cstdint>

namespace cordma::detail {

/// Has the kernel find the way to a peer on RoCE, on a thread of its own: the queue pair then finds
/// it at once. The kernel asks the network, for a second or so if nobody answers. A task that is
/// stopped goes on until then; one that is dropped blocks its thread.
/// \errors the errno of ibv_create_ah(3): nobody has the address.
task<> resolve_gid(cordma::executor& executor, verbs::protection_domain& pd, std::uint8_t port,
                   verbs::address_vector to);

}  // namespace cordma::detail
