#include "route_cache.hpp"

#include <cordma/detail/base/assert.hpp>

#include <cstring>
#include <iterator>

namespace cordma::detail {

path_key::path_key(const verbs::address_vector& path, std::uint32_t gid_index) noexcept {
  std::memcpy(words_, path.gid.raw, sizeof path.gid.raw);
  words_[2] = std::uint64_t{path.lid} << 48 | std::uint64_t{path.flow_label} << 16 |
              std::uint64_t{path.hop_limit} << 8 | path.traffic_class;
  words_[3] = std::uint64_t{std::uint32_t(path.static_rate)} << 32 |
              std::uint64_t{gid_index & 0xffff} << 16 | std::uint64_t{path.service_level} << 8 |
              (path.is_global ? 1u : 0u);
}

std::size_t path_key::hash::operator()(const path_key& key) const noexcept {
  constexpr std::uint64_t golden = 0x9e3779b97f4a7c15;
  std::uint64_t mixed = 0;
  for (const std::uint64_t word : key.words_) {
    mixed = (mixed ^ word) * golden;
    mixed ^= mixed >> 32;
  }
  return mixed;
}

void route_cache::clear() noexcept {
  for (const counted_ref<route>& one : routes_) one->handle_.reset();
  index_.clear();
  routes_.clear();
}

route* route_cache::find_older(const path_key& path) noexcept {
  const auto found = index_.find(path);
  if (found == index_.end()) return nullptr;
  routes_.splice(routes_.begin(), routes_, found->second);
  routes_.front()->idle_at_.reset();
  return routes_.front().get();
}

void route_cache::insert(const path_key& path, verbs::address_handle handle) {
  list made;
  counted_ref<route> one{*new route{path, std::move(handle)}};
  made.push_back(std::move(one));
  const auto [at, is_new] = index_.insert_or_assign(path, made.begin());
  CORDMA_ASSERT(is_new, "a route is added once");
  routes_.splice(routes_.begin(), made);
}

std::size_t route_cache::trim(std::uint32_t posted, std::uint32_t in_flight) noexcept {
  std::size_t gone = 0;
  // The route used last stays: its request has not been posted yet.
  for (auto at = routes_.end(); routes_.size() > routes_max_ && at != std::next(routes_.begin());) {
    const auto one = --at;
    route& oldest = *one->get();
    if (oldest.references() > 1) continue;
    // A doorbell that fails takes requests back.
    const bool is_ahead = oldest.idle_at_ && std::int32_t(posted - *oldest.idle_at_) < 0;
    if (!oldest.idle_at_ || is_ahead) oldest.idle_at_ = posted;
    const std::uint32_t since = posted - *oldest.idle_at_;
    if (since < in_flight) continue;
    index_.erase(oldest.key_);
    at = routes_.erase(one);
    ++gone;
  }
  return gone;
}

}  // namespace cordma::detail
