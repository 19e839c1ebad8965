#pragma once

#include <cordma/base/time.hpp>

#include <cstddef>
#include <cstdint>

namespace cordma::detail {

/// Sees the leases of a host at both ends, for a simulation. All functions are called in the middle
/// of a change. \thread the executor's.
class lease_witness {
 public:
  lease_witness() noexcept = default;
  lease_witness(lease_witness&&) = delete;

  /// The peer may use this memory of ours from now on.
  virtual void lent(std::uint64_t address, std::size_t bytes, std::uint32_t rkey,
                    bool is_writable) noexcept = 0;
  /// Nobody can use the memory any more. \param by_holder  the holder has given it back.
  virtual void taken_back(std::uint64_t address, std::uint32_t rkey, bool by_holder) noexcept = 0;
  /// The lease is over for the owner, who asks the holder for the memory.
  virtual void expired(std::uint64_t address, std::uint32_t rkey) noexcept = 0;
  /// The program may use this memory of a peer's until then. Called again when a lease is renewed.
  virtual void borrowed(std::uint64_t address, std::uint32_t rkey, time_point until) noexcept = 0;
  /// No request of the program's on that memory can begin any more.
  virtual void given_back(std::uint64_t address, std::uint32_t rkey) noexcept = 0;

 protected:
  ~lease_witness() = default;
};

}  // namespace cordma::detail
