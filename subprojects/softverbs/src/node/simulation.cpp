#include "node/simulation.hpp"

#include "node/node.hpp"

namespace softverbs {

constinit simulated_host* simulated_host::current_ = nullptr;

simulated_host::simulated_host(std::span<const ibv_gid> gids, std::uint16_t slot,
                               std::uint32_t first_index)
    : gids_{gids.begin(), gids.end()}, slot_{slot}, first_index_{first_index} {}

simulated_host::~simulated_host() {
  if (current_ == this) current_ = nullptr;
  delete node_;
}

}  // namespace softverbs
