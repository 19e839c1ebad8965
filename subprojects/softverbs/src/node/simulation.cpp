#include "node/simulation.hpp"

#include "node/node.hpp"

namespace softverbs {

constinit simulated_host* simulated_host::current_ = nullptr;

simulated_host::simulated_host(std::span<const ibv_gid> gids, std::uint16_t slot,
                               std::uint32_t first_index)
    : gids_{gids.begin(), gids.end()}, slot_{slot}, first_index_{first_index} {}

simulated_host::~simulated_host() {
  if (current_ == this) current_ = nullptr;
  // Channels that the program never destroyed.
  for (const auto& [fd, tokens] : descriptors_) tokens->watch(nullptr);
  delete node_;
}

void simulated_host::add_context(ibv_context& ctx, event_tokens& events) {
  contexts_.reserve(contexts_.size() + 1);
  watch(events);
  contexts_.push_back(&ctx);
}

void simulated_host::watch(event_tokens& tokens) {
  descriptors_[tokens.fd()] = &tokens;
  tokens.watch(this, writes_descriptors());
}

const event_tokens* simulated_host::find_tokens(int fd) const noexcept {
  const auto found = descriptors_.find(fd);
  return found == descriptors_.end() ? nullptr : found->second;
}

}  // namespace softverbs
