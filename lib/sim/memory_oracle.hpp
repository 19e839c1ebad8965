#pragma once

#include "base/lease_witness.hpp"

#include <infiniband/verbs.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

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

  /// Returns true if cordma lent memory by that key of the host, at any time.
  [[nodiscard]] bool was_lent(unsigned host, std::uint32_t rkey) const {
    return lent_keys_.contains({host, rkey});
  }

  // Leases.
  void lent(const host_state& owner, std::uint64_t address, std::size_t bytes, std::uint32_t rkey,
            bool is_writable);
  void taken_back(const host_state& owner, std::uint64_t address, std::uint32_t rkey,
                  bool by_holder);
  /// Hosts are in one process: no two have memory at one address.
  void expired(const host_state& owner, std::uint64_t address, std::uint32_t rkey);
  void borrowed(std::uint64_t address, std::uint32_t rkey, time_point until);
  void given_back(std::uint64_t address, std::uint32_t rkey);

 private:
  struct lease {
    unsigned owner = 0;
    std::uint64_t address = 0;
    std::size_t bytes = 0;
    bool is_writable = false;
    bool is_held = false;  ///< The peer's program may use it.
    time_point usable_until{};
  };
  /// Memory of requests that have not ended, by address.
  class posted_memory {
   public:
    void add(const ibv_sge& piece);
    void remove(const ibv_sge& piece) noexcept;
    [[nodiscard]] bool contains(std::uint64_t address, std::uint64_t bytes) const noexcept;

   private:
    /// Trivially copied, unlike std::pair.
    struct piece {
      std::uint64_t address = 0;
      std::uint32_t bytes = 0;
      auto operator<=>(const piece&) const = default;
    };
    std::vector<piece> pieces_;  ///< sorted; a few hundred
    std::uint32_t longest_ = 0;
  };

  world_state& world_;
  std::map<unsigned, posted_memory> posted_;
  std::unordered_map<std::uint32_t, std::vector<lease>> leases_;  ///< the key's
  std::set<std::pair<unsigned, std::uint32_t>> lent_keys_;  ///< at any time, with their owners
  [[nodiscard]] lease* find(std::uint64_t address, std::uint32_t rkey);
};

/// The witness of one host's leases.
class host_leases final : public cordma::detail::lease_witness {
 public:
  explicit host_leases(host_state& host) noexcept : host_{host} {}
  void lent(std::uint64_t address, std::size_t bytes, std::uint32_t rkey,
            bool is_writable) noexcept override;
  void taken_back(std::uint64_t address, std::uint32_t rkey, bool by_holder) noexcept override;
  void expired(std::uint64_t address, std::uint32_t rkey) noexcept override;
  void borrowed(std::uint64_t address, std::uint32_t rkey, time_point until) noexcept override;
  void given_back(std::uint64_t address, std::uint32_t rkey) noexcept override;

 private:
  host_state& host_;
};

}  // namespace cordma::sim::detail
