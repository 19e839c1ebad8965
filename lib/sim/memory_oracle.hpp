#pragma once

#include "base/lease_witness.hpp"

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>

namespace cordma::sim::detail {

class host_state;
class world_state;

/// Judges what devices write into the memory of their hosts. Each byte belongs to a request that
/// has not ended, or was lent to a peer. A lease ends first at its holder.
class memory_oracle {
 public:
  explicit memory_oracle(world_state& w) noexcept : world_{w} {}
  memory_oracle(const memory_oracle&) = delete;

  /// The device may write there, for a request of its own host.
  void lend(const host_state& host, std::span<const ibv_sge> memory);
  void take_back(const host_state& host, std::span<const ibv_sge> memory);
  /// The device has written. \param rkey  of the peer's request; 0: for a request of its own host
  void written(const host_state& host, std::uint64_t address, std::uint64_t bytes,
               std::uint32_t rkey);
  void forget(const host_state& host);

  // Leases.
  void lent(const host_state& owner, std::uint64_t address, std::size_t bytes, std::uint32_t rkey,
            bool is_writable);
  void taken_back(const host_state& owner, std::uint64_t address, std::uint32_t rkey,
                  bool by_holder);
  void borrowed(const host_state& holder, std::uint64_t address, std::uint32_t rkey);
  void given_back(const host_state& holder, std::uint64_t address, std::uint32_t rkey);

 private:
  using lease_name = std::pair<std::uint64_t, std::uint32_t>;  ///< address and rkey
  struct lease {
    unsigned owner = 0;
    std::size_t bytes = 0;
    bool is_writable = false;
  };
  /// Memory of requests that have not ended, by address.
  struct posted_memory {
    std::multimap<std::uint64_t, std::uint32_t> pieces;
    std::uint32_t longest = 0;
    [[nodiscard]] bool contains(std::uint64_t address, std::uint64_t bytes) const;
  };

  world_state& world_;
  std::map<unsigned, posted_memory> posted_;
  std::multimap<lease_name, lease> leases_;
  std::multimap<lease_name, unsigned> holders_;
};

/// The witness of one host's leases.
class host_leases final : public cordma::detail::lease_witness {
 public:
  explicit host_leases(host_state& host) noexcept : host_{host} {}
  void lent(std::uint64_t address, std::size_t bytes, std::uint32_t rkey,
            bool is_writable) noexcept override;
  void taken_back(std::uint64_t address, std::uint32_t rkey, bool by_holder) noexcept override;
  void borrowed(std::uint64_t address, std::uint32_t rkey) noexcept override;
  void given_back(std::uint64_t address, std::uint32_t rkey) noexcept override;

 private:
  host_state& host_;
};

}  // namespace cordma::sim::detail
