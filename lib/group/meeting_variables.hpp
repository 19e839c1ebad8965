#pragma once

#include "meeting_kinds.hpp"

namespace cordma::detail {

/// The launchers whose variables are set.
struct launchers {
  bool pmix = false;      ///< PMIX_NAMESPACE and PMIX_RANK: mpirun, srun --mpi=pmix.
  bool torchrun = false;  ///< RANK and WORLD_SIZE.
  /// torchrun itself was launched, so that PMIx's variables are those of its agent.
  bool torchrun_is_inner = false;
};
launchers launchers_of_environment() noexcept;

/// Returns where torchrun's ranks meet: at CORDMA_MEETING (host:port) if that is set, else at
/// MASTER_ADDR and MASTER_PORT. The agent's TCPStore listens at MASTER_PORT itself if
/// TORCHELASTIC_USE_AGENT_STORE is True: then the ranks meet at the next port. All ranks are on one
/// host if LOCAL_WORLD_SIZE says so, or, where that is unset, a MASTER_ADDR of loopback.
/// \errors EINVAL: a variable that is missing or wrong; names its text.
meeting_point point_of_environment();

}  // namespace cordma::detail
