#include "memory_oracle.hpp"

#include "host_state.hpp"
#include "world_state.hpp"

#include <algorithm>
#include <string>

namespace cordma::sim::detail {
namespace {

std::string text_of(std::uint64_t bytes, std::uint32_t rkey) {
  return std::to_string(bytes) + " bytes" +
         (rkey == 0 ? "" : " by the key " + std::to_string(rkey));
}

}  // namespace

bool memory_oracle::posted_memory::contains(std::uint64_t address, std::uint64_t bytes) const {
  // Pieces may overlap, and none is longer than `longest`.
  for (auto at = pieces.upper_bound(address); at != pieces.begin();) {
    --at;
    if (at->first + at->second >= address + bytes) return true;
    if (at->first + longest <= address) return false;
  }
  return false;
}

void memory_oracle::lend(const host_state& host, std::span<const ibv_sge> memory) {
  posted_memory& of = posted_[host.number()];
  for (const ibv_sge& piece : memory) {
    of.pieces.emplace(piece.addr, piece.length);
    of.longest = std::max(of.longest, piece.length);
  }
}

void memory_oracle::take_back(const host_state& host, std::span<const ibv_sge> memory) {
  posted_memory& of = posted_[host.number()];
  for (const ibv_sge& piece : memory) {
    const auto [first, last] = of.pieces.equal_range(piece.addr);
    const auto same =
        std::find_if(first, last, [&](const auto& one) { return one.second == piece.length; });
    if (same != last) of.pieces.erase(same);
  }
}

void memory_oracle::written(const host_state& host, std::uint64_t address, std::uint64_t bytes,
                            std::uint32_t rkey) {
  if (rkey == 0) {
    if (!posted_[host.number()].contains(address, bytes))
      world_.find("the device of host " + host.name() + " wrote " + text_of(bytes, rkey) +
                  " where no request of its own is under way");
    return;
  }
  for (const auto& [name, one] : leases_)
    if (name.second == rkey && one.owner == host.number() && one.is_writable &&
        name.first <= address && address + bytes <= name.first + one.bytes)
      return;
  world_.find("a peer wrote " + text_of(bytes, rkey) + " into memory of host " + host.name() +
              " that it was not lent");
}

void memory_oracle::forget(const host_state& host) {
  posted_.erase(host.number());
  std::erase_if(leases_, [&](const auto& one) { return one.second.owner == host.number(); });
  std::erase_if(holders_, [&](const auto& one) { return one.second == host.number(); });
}

void memory_oracle::lent(const host_state& owner, std::uint64_t address, std::size_t bytes,
                         std::uint32_t rkey, bool is_writable) {
  leases_.emplace(lease_name{address, rkey}, lease{owner.number(), bytes, is_writable});
}

void memory_oracle::taken_back(const host_state& owner, std::uint64_t address, std::uint32_t rkey,
                               bool by_holder) {
  const auto [first, last] = leases_.equal_range({address, rkey});
  const auto one =
      std::find_if(first, last, [&](const auto& l) { return l.second.owner == owner.number(); });
  // Two owners with one address and key: nobody can tell whom a holder means.
  const bool is_only = std::distance(first, last) == 1;
  if (one != last) leases_.erase(one);
  if (by_holder && is_only && holders_.contains({address, rkey}))
    world_.find("host " + owner.name() + " took memory back that its holder still uses");
}

void memory_oracle::borrowed(const host_state& holder, std::uint64_t address, std::uint32_t rkey) {
  holders_.emplace(lease_name{address, rkey}, holder.number());
}

void memory_oracle::given_back(const host_state& holder, std::uint64_t address,
                               std::uint32_t rkey) {
  const auto [first, last] = holders_.equal_range({address, rkey});
  const auto one =
      std::find_if(first, last, [&](const auto& h) { return h.second == holder.number(); });
  if (one != last) holders_.erase(one);
}

void host_leases::lent(std::uint64_t address, std::size_t bytes, std::uint32_t rkey,
                       bool is_writable) noexcept {
  host_.world().note("lends {} bytes by the key {}", host_, bytes, rkey);
  host_.world().memory().lent(host_, address, bytes, rkey, is_writable);
}

void host_leases::taken_back(std::uint64_t address, std::uint32_t rkey, bool by_holder) noexcept {
  host_.world().note("takes the memory of key {} back", host_, rkey);
  host_.world().memory().taken_back(host_, address, rkey, by_holder);
}

void host_leases::borrowed(std::uint64_t address, std::uint32_t rkey) noexcept {
  host_.world().note("borrows the memory of key {}", host_, rkey);
  host_.world().memory().borrowed(host_, address, rkey);
}

void host_leases::given_back(std::uint64_t address, std::uint32_t rkey) noexcept {
  host_.world().memory().given_back(host_, address, rkey);
}

}  // namespace cordma::sim::detail
