#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace cordma::sim::detail {

class host_state;
class memory_oracle;
class world_state;

/// Judges what WRITEs and atomics leave in the memory of their target. Each piece that lands there
/// has the bytes that were posted for its range. A request that succeeds has landed as a whole.
class write_oracle {
 public:
  /// A request that was posted. A number of 0: it is not judged.
  struct ticket {
    unsigned host = 0;
    std::uint32_t rkey = 0;
    std::uint64_t number = 0;
  };

  write_oracle(world_state& w, memory_oracle& memory) noexcept : world_{w}, memory_{memory} {}
  write_oracle(const write_oracle&) = delete;

  /// A request for memory of that host is posted. The bytes are copied: a request that fails may
  /// land late, when its memory has changed.
  ticket posted(const host_state& target, const ibv_send_wr& wr);
  /// The device did not take the request, or it succeeded and nothing of it lands any more.
  void forget(const ticket& of);
  /// Finds a request that succeeds too early, and forgets it.
  void succeeded(const host_state& requester, const ticket& of);
  /// The device of `target` has written for a peer.
  void landed(const host_state& target, std::uint64_t address, std::uint64_t bytes,
              std::uint32_t rkey);
  /// The process of the target is gone.
  void forget(const host_state& target);
  /// Requests are posted that the oracle does not see: so no piece is judged any more.
  void stop() noexcept { is_stopped_ = true; }

 private:
  struct request {
    std::uint64_t number = 0;
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    std::vector<std::byte> content;  ///< Empty: it depends on what is there.
    std::uint64_t landed = 0;        ///< bytes
  };
  using key = std::pair<unsigned, std::uint32_t>;  ///< a host and its remote key

  world_state& world_;
  memory_oracle& memory_;
  std::map<key, std::vector<request>> requests_;
  std::uint64_t count_ = 0;
  bool is_stopped_ = false;
};

}  // namespace cordma::sim::detail
