#pragma once

#include <cordma/agent/agent_options.hpp>
#include <cordma/detail/base/counter.hpp>
#include <cordma/io/executor.hpp>
#include <cordma/memory/mr_allocator.hpp>
#include <cordma/verbs/device.hpp>
#include <cordma/verbs/memory_region.hpp>

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <vector>

namespace cordma {

/// Memory that a peer can or could reach, and by what.
struct lent_memory {
  local_mr memory{};
  std::optional<verbs::memory_region> registration{};
  std::optional<verbs::memory_window> window{};  ///< Bound to one of the two: goes first.
};

struct lending_domain;

/// Counters of all connections of a runtime, those that are gone included.
struct lease_totals {
  counter lent, borrowed, refused, expired;
  counter open, open_bytes, held;  ///< Now: lent, and borrowed.
};

/// The windows that all connections of one protection domain lend with, and what is known of the
/// device. Outlives the connections; the memory that is lent outlives this. \thread the executor's.
class lending {
 public:
  /// Bytes of the flush word. A peer reads the word last, so that what it wrote is visible before
  /// memory changes hands.
  static constexpr std::size_t flush_bytes = 8;

  /// Asks the device nothing yet.
  lending(verbs::context& ctx, verbs::protection_domain& pd);
  /// Lends in another domain of the same device: what is known and lent counts for both.
  lending(const lending& other, verbs::protection_domain& pd);
  lending(const lending&) = delete;
  lending& operator=(const lending&) = delete;
  ~lending();

  /// The strongest isolation that the device has. The first call tries the device out, on a pair of
  /// queue pairs. \errors those of `checks_window_ranges`. \cost once some milliseconds.
  [[nodiscard]] isolation strongest(cordma::executor& executor, const verbs::port_info& port,
                                    const verbs::gid_entry& gid);
  [[nodiscard]] bool has_windows() const noexcept;

  /// Takes the unbound window that was bound longest ago, so that keys recur late. At most one for
  /// each lease that `reserve` has counted. \errors those of `verbs::memory_window`.
  [[nodiscard]] verbs::memory_window take_window();
  void give_back(verbs::memory_window&& window) noexcept {
    idle_[given_++ & (idle_.size() - 1)].emplace(std::move(window));
  }

  /// Counts a lease in the totals of the policy; false: there is no room for it. \errors bad_alloc.
  [[nodiscard]] bool reserve(std::size_t bytes, const lending_policy& policy);
  void release(std::size_t bytes) noexcept;

  /// Keeps memory that the device would not take from the peer, until all queue pairs are gone.
  void strand(lent_memory&& kept) noexcept { stranded_.push_back(std::move(kept)); }

  /// Makes a domain for one connection alone, with memory as `like`'s. The domain stays until the
  /// pointer is gone and all that was allocated there is freed.
  struct leaver {
    void operator()(lending_domain* domain) const noexcept;
  };
  using own_domain = std::unique_ptr<lending_domain, leaver>;
  own_domain make_domain(mr_allocator& like);

  /// Zeros that are registered for the peers of all connections to read.
  [[nodiscard]] remote_mr_slice flush_word();
  [[nodiscard]] verbs::protection_domain& domain() const noexcept { return pd_; }

  /// Returns the runtime's counters, which its other domains share.
  [[nodiscard]] lease_totals& totals() const noexcept { return facts_->totals; }
  /// Counts a lease that this side grants, until `count_end`.
  void count_lent(std::size_t bytes) noexcept {
    totals().lent.add();
    totals().open.add();
    totals().open_bytes.add(bytes);
  }
  void count_end(std::size_t bytes) noexcept {
    totals().open.subtract(1);
    totals().open_bytes.subtract(bytes);
  }
  /// Counts a lease that the peer granted, until `count_returned`.
  void count_borrowed() noexcept {
    totals().borrowed.add();
    totals().held.add();
  }
  void count_returned() noexcept { totals().held.subtract(1); }

 private:
  /// Windows that lie idle before one is used again: a key recurs after 256 binds of its window.
  static constexpr std::size_t rotation = 16;

  struct device_facts {
    explicit device_facts(verbs::context& of) noexcept : ctx{of} {}
    verbs::context& ctx;
    std::optional<isolation> strongest{};
    std::size_t bytes = 0;
    unsigned leases = 0;
    lease_totals totals;
  };

  std::shared_ptr<device_facts> facts_;
  verbs::protection_domain& pd_;
  alignas(64) std::array<std::byte, flush_bytes> zeros_{};
  std::optional<verbs::memory_region> flush_registration_;
  void make_room_for_windows();

  /// A ring, a power of two, with room for all windows that there are: [taken_, given_) are idle.
  std::vector<std::optional<verbs::memory_window>> idle_;
  std::uint64_t taken_ = 0;
  std::uint64_t given_ = 0;
  std::vector<lent_memory> stranded_;  // With room for all that is lent.
  std::size_t lent_ = 0;
  std::list<lending_domain> domains_;
};

struct lending_domain {
  lending_domain(verbs::context& ctx, cordma::lending& of_runtime,
                 const mr_allocator_options& options);
  cordma::lending& from;
  verbs::protection_domain pd;
  mr_allocator memory;
  cordma::lending lending;
  bool is_left = false;
};

}  // namespace cordma
