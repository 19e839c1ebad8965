#pragma once

#include "group/exchange.hpp"
#include "group/host_map.hpp"

namespace cordma::detail {

/// Some ranks of an exchange under numbers of their own: to an algorithm, an exchange like any.
/// Steps of several views of one exchange differ if their `level` does.
class rank_view : public exchange {
 public:
  static constexpr unsigned step_bits = 30;  ///< Steps of an algorithm lie below 2^30.

  /// Returns what a rank here is in the exchange below.
  [[nodiscard]] virtual unsigned below(unsigned rank) const noexcept = 0;

  [[nodiscard]] const host_map* hosts() const noexcept final { return nullptr; }
  [[nodiscard]] exchange& whole() noexcept final { return below_.whole(); }
  [[nodiscard]] unsigned rank_in_whole(unsigned rank) const noexcept final {
    return below_.rank_in_whole(below(rank));
  }
  [[nodiscard]] std::uint32_t step_in_whole(std::uint32_t step) const noexcept final {
    return below_.step_in_whole(step + (level_ << step_bits));
  }
  [[nodiscard]] result<void> why() const noexcept final { return below_.why(); }
  void post(incoming& message) noexcept final { below_.whole().post(message); }
  void post(outgoing& message) noexcept final { below_.whole().post(message); }
  void withdraw(transfer& message) noexcept final { below_.whole().withdraw(message); }
  local_mr_slice scratch(std::size_t size_bytes) final { return below_.scratch(size_bytes); }
  void copy(const local_mr_slice& into, const const_local_mr_slice& from) final {
    below_.copy(into, from);
  }
  void combine(const local_mr_slice& into, const const_local_mr_slice& left,
               const const_local_mr_slice& right) final {
    below_.combine(into, left, right);
  }

 protected:
  rank_view(exchange& below, unsigned rank, unsigned size, std::uint32_t level) noexcept
      : exchange{rank, size}, below_{below}, level_{level} {}
  ~rank_view() = default;

 private:
  exchange& below_;
  const std::uint32_t level_;
};

/// All ranks, counted from the root on.
class ranks_from final : public rank_view {
 public:
  ranks_from(unsigned root, exchange& of) noexcept
      : rank_view{of, (of.rank() + of.size() - root) % of.size(), of.size(), 0}, root_{root} {}
  [[nodiscard]] unsigned below(unsigned rank) const noexcept override {
    return (root_ + rank) % size();
  }

 private:
  const unsigned root_;
};

/// The ranks that share this rank's host.
class ranks_of_host final : public rank_view {
 public:
  ranks_of_host(exchange& of, std::uint32_t level) noexcept
      : ranks_of_host{of, of.hosts()->ranks_of(of.hosts()->host_of(of.rank())), level} {}
  [[nodiscard]] unsigned below(unsigned rank) const noexcept override { return ranks_[rank]; }

 private:
  ranks_of_host(exchange& of, std::span<const unsigned> ranks, std::uint32_t level) noexcept
      : rank_view{of, of.hosts()->index_of(of.rank()), unsigned(ranks.size()), level},
        ranks_{ranks} {}
  const std::span<const unsigned> ranks_;
};

/// A rank of each host: the lowest, but the root is the one of the root's host.
class ranks_of_leaders final : public rank_view {
 public:
  ranks_of_leaders(exchange& of, unsigned root, std::uint32_t level) noexcept
      : rank_view{of, of.hosts()->host_of(of.rank()), of.hosts()->count(), level},
        hosts_{*of.hosts()},
        root_{root} {}
  /// Returns the leader's index among the ranks of a host.
  [[nodiscard]] unsigned index_of_leader(unsigned host) const noexcept {
    return host == hosts_.host_of(root_) ? hosts_.index_of(root_) : 0;
  }
  [[nodiscard]] unsigned below(unsigned host) const noexcept override {
    return hosts_.ranks_of(host)[index_of_leader(host)];
  }

 private:
  const host_map& hosts_;
  const unsigned root_;
};

}  // namespace cordma::detail
