#pragma once

#include "verbs/address_handle.hpp"

#include <cordma/detail/base/counted.hpp>
#include <cordma/detail/datagram/route.hpp>
#include <cordma/verbs/queue_pair_attributes.hpp>

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>
#include <utility>

namespace cordma::detail {

/// The fields of a path that make it another one.
class path_key {
 public:
  explicit path_key(const verbs::address_vector& path) noexcept : path_key{path, path.gid_index} {}
  /// Makes the key of `path` from another row of the own table.
  path_key(const verbs::address_vector& path, std::uint32_t gid_index) noexcept;
  friend bool operator==(const path_key&, const path_key&) = default;
  struct hash {
    std::size_t operator()(const path_key& key) const noexcept;
  };

 private:
  std::uint64_t words_[4];  // std::array would compare them by memcmp(3).
};

/// A route, which requests keep. The handle goes with the cache, when no request is in flight.
class route final : public counted {
 public:
  route(const path_key& key, verbs::address_handle handle)
      : key_{key}, handle_{std::move(handle)} {}

  [[nodiscard]] ibv_ah* path() const noexcept { return handle_->native_handle(); }

 private:
  friend class route_cache;
  const path_key key_;
  std::optional<verbs::address_handle> handle_;
  /// Requests posted when a trim first found no user; their end frees the handle.
  std::optional<std::uint32_t> idle_at_;
};

/// The routes that were used last. A route goes when there are more than `routes_max`, nobody holds
/// it, and the requests that may name its handle have completed. Routes in use can exceed the
/// limit. \thread the executor's.
class route_cache {
 public:
  explicit route_cache(std::size_t routes_max) noexcept : routes_max_{routes_max} {}
  route_cache(const route_cache&) = delete;
  ~route_cache() { clear(); }
  /// Destroys the handles; their queue pair is gone.
  void clear() noexcept;

  /// Returns the route on this path, and makes it the one used last; null: there is none.
  [[nodiscard]] route* find(const path_key& path) noexcept {
    if (routes_.empty() || routes_.front()->key_ != path) [[unlikely]]
      return find_older(path);
    routes_.front()->idle_at_.reset();
    return routes_.front().get();
  }
  /// Adds a route, the one used last. \errors bad_alloc.
  void insert(const path_key& path, verbs::address_handle handle);
  /// Lets the routes go that exceed the limit, the least recently used first. `posted` is the
  /// number of requests ever posted, of which the last `in_flight` have not completed. Returns how
  /// many.
  std::size_t trim(std::uint32_t posted, std::uint32_t in_flight) noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return routes_.size(); }

 private:
  using list = std::list<counted_ref<route>>;
  [[nodiscard]] route* find_older(const path_key& path) noexcept;

  const std::size_t routes_max_;
  list routes_;  // The one used last comes first.
  std::unordered_map<path_key, list::iterator, path_key::hash> index_;
};

}  // namespace cordma::detail
