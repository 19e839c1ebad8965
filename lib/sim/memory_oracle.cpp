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

void memory_oracle::posted_memory::add(const ibv_sge& added) {
  const piece one{added.addr, added.length};
  pieces_.insert(std::ranges::upper_bound(pieces_, one), one);
  longest_ = std::max(longest_, added.length);
}

void memory_oracle::posted_memory::remove(const ibv_sge& removed) noexcept {
  const piece one{removed.addr, removed.length};
  const auto at = std::ranges::lower_bound(pieces_, one);
  if (at != pieces_.end() && *at == one) pieces_.erase(at);
}

bool memory_oracle::posted_memory::contains(std::uint64_t address,
                                            std::uint64_t bytes) const noexcept {
  // Pieces may overlap, and none is longer than `longest_`.
  for (auto at = std::ranges::upper_bound(pieces_, address, {}, &piece::address);
       at != pieces_.begin();) {
    --at;
    if (at->address + at->bytes >= address + bytes) return true;
    if (at->address + longest_ <= address) return false;
  }
  return false;
}

void memory_oracle::lend(const host_state& host, std::span<const ibv_sge> memory) {
  posted_memory& of = posted_[host.number()];
  for (const ibv_sge& piece : memory) of.add(piece);
}

void memory_oracle::take_back(const host_state& host, std::span<const ibv_sge> memory) {
  posted_memory& of = posted_[host.number()];
  for (const ibv_sge& piece : memory) of.remove(piece);
}

void memory_oracle::written(const host_state& host, std::uint64_t address, std::uint64_t bytes,
                            std::uint32_t rkey) {
  if (rkey == 0) {
    if (!posted_[host.number()].contains(address, bytes))
      world_.find("the device of host " + host.name() + " wrote " + text_of(bytes, rkey) +
                  " where no request of its own is under way");
    return;
  }
  // Keys of the program's own are the device's to judge.
  if (!lent_keys_.contains({host.number(), rkey})) return;
  for (const lease& one : leases_[rkey])
    if (one.owner == host.number() && one.is_writable && one.address <= address &&
        address + bytes <= one.address + one.bytes)
      return;
  world_.find("a peer wrote " + text_of(bytes, rkey) + " into memory of host " + host.name() +
              " that it was not lent");
}

void memory_oracle::forget(const host_state& host) {
  posted_.erase(host.number());
  std::erase_if(lent_keys_, [&](const auto& key) { return key.first == host.number(); });
  for (auto& [rkey, of] : leases_)
    std::erase_if(of, [&](const lease& one) { return one.owner == host.number(); });
}

memory_oracle::lease* memory_oracle::find(std::uint64_t address, std::uint32_t rkey) {
  std::vector<lease>& of = leases_[rkey];
  const auto one = std::ranges::find(of, address, &lease::address);
  return one == of.end() ? nullptr : &*one;
}

void memory_oracle::lent(const host_state& owner, std::uint64_t address, std::size_t bytes,
                         std::uint32_t rkey, bool is_writable) {
  leases_[rkey].push_back({owner.number(), address, bytes, is_writable});
  lent_keys_.emplace(owner.number(), rkey);
}

void memory_oracle::taken_back(const host_state& owner, std::uint64_t address, std::uint32_t rkey,
                               bool by_holder) {
  lease* const one = find(address, rkey);
  if (one == nullptr) return;
  if (by_holder && one->is_held)
    world_.find("host " + owner.name() + " took memory back that its holder still uses");
  *one = leases_[rkey].back();
  leases_[rkey].pop_back();
}

void memory_oracle::expired(const host_state& owner, std::uint64_t address, std::uint32_t rkey) {
  const lease* const one = find(address, rkey);
  if (one != nullptr && one->is_held && one->usable_until > world_.now())
    world_.find("a lease ended at its owner, host " + owner.name() + ", before its holder's end");
}

void memory_oracle::borrowed(std::uint64_t address, std::uint32_t rkey, time_point until) {
  lease* const one = find(address, rkey);
  if (one == nullptr) return;
  one->is_held = true;
  one->usable_until = until;
}

void memory_oracle::given_back(std::uint64_t address, std::uint32_t rkey) {
  if (lease* const one = find(address, rkey)) one->is_held = false;
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

void host_leases::expired(std::uint64_t address, std::uint32_t rkey) noexcept {
  host_.world().memory().expired(host_, address, rkey);
}

void host_leases::borrowed(std::uint64_t address, std::uint32_t rkey, time_point until) noexcept {
  host_.world().note("borrows the memory of key {}", host_, rkey);
  host_.world().memory().borrowed(address, rkey, until);
}

void host_leases::given_back(std::uint64_t address, std::uint32_t rkey) noexcept {
  host_.world().memory().given_back(address, rkey);
}

}  // namespace cordma::sim::detail
