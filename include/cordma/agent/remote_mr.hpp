#pragma once

#include <cordma/agent/agent_options.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/memory/local_mr.hpp>
#include <cordma/memory/slice.hpp>

#include <chrono>
#include <memory>

namespace cordma {

namespace detail {
struct grant;
struct holding;
}  // namespace detail

/// Memory of the peer that we may use for a while. Its slices go where any remote slice goes. A
/// request that may not run is refused before it is posted. Errors are `errc::lease_expired` for
/// too short a rest of the lease, and `errc::lease_ended` for memory that was returned or revoked.
/// Others are `errc::access_denied` for more than was granted, `errc::wrong_connection`, and
/// `errc::disconnected` after the connection's end. Move-only; may outlive its connection. Dropping
/// it returns the memory in the background, which can neither fail nor allocate. \thread the
/// executor's.
class CORDMA_EXPORT remote_mr {
 public:
  remote_mr() noexcept = default;
  explicit remote_mr(detail::holding& h) noexcept : holding_{&h} {}

  [[nodiscard]] std::size_t size_bytes() const noexcept { return slice().size_bytes(); }
  /// The access that was granted: perhaps less than was asked.
  [[nodiscard]] verbs::access access() const noexcept;
  [[nodiscard]] cordma::isolation isolation() const noexcept;
  /// How long requests may still be posted; 0 when no longer.
  [[nodiscard]] std::chrono::milliseconds remaining() const noexcept;

  [[nodiscard]] remote_mr_slice slice() const noexcept;
  [[nodiscard]] remote_mr_slice slice(std::size_t offset, std::size_t length) const {
    return slice().slice(offset, length);
  }
  [[nodiscard]] remote_mr_slice first(std::size_t length) const { return slice().first(length); }
  [[nodiscard]] remote_mr_slice last(std::size_t length) const { return slice().last(length); }
  operator remote_mr_slice() const noexcept { return slice(); }

  /// Asks the owner for `lease` from now on; it may grant less.
  /// \errors errc::lease_expired, errc::lease_ended, errc::disconnected; errc::timed_out after
  ///   `request_timeout`; errc::out_of_range: a lease of no more than the margin, or of over 24 h;
  ///   errc::not_supported: memory that a call lends, which ends with the call.
  task<> renew(time_span lease);
  [[nodiscard]] explicit operator bool() const noexcept { return holding_ != nullptr; }

 private:
  friend class borrower;
  struct dropper {
    void operator()(detail::holding* h) const noexcept;
  };
  std::unique_ptr<detail::holding, dropper> holding_;
};

/// Why lent memory came back.
enum class loan_end_reason {
  returned,      ///< The peer gave it back.
  expired,       ///< The lease ended.
  revoked,       ///< This side asked for the memory.
  disconnected,  ///< The connection ended.
};
CORDMA_EXPORT const char* to_string(loan_end_reason reason) noexcept;

struct loan_end {
  /// The memory, with what the peer wrote. Empty only when the device would not end the peer's
  /// access.
  local_mr memory;
  loan_end_reason reason = loan_end_reason::returned;
};

/// Memory of ours that a peer may use until it returns it, its lease ends, or we take it back.
/// Nobody else reaches the memory once it comes back. Move-only; may outlive its connection.
/// Dropping a loan revokes it in the background, and frees the memory then. \thread the executor's.
class CORDMA_EXPORT loan {
 public:
  loan() noexcept = default;
  explicit loan(detail::grant& g) noexcept : grant_{&g} {}

  /// Waits until the loan has ended, and gives the memory, once. A stopped wait changes nothing.
  /// The loan must not be moved or destroyed meanwhile.
  task<loan_end> ended();
  /// Asks the peer to return the memory, and waits as `ended`. Bounded by the policy's `grace` and
  /// `revoke_timeout`; a peer that does not answer loses its access, and mostly its connection.
  task<loan_end> revoke();

  [[nodiscard]] bool has_ended() const noexcept;
  [[nodiscard]] cordma::isolation isolation() const noexcept;
  [[nodiscard]] std::size_t size_bytes() const noexcept;
  /// Raw metadata, for programs that tell their peer by other means.
  [[nodiscard]] remote_mr_slice remote_slice() const noexcept;
  [[nodiscard]] explicit operator bool() const noexcept { return grant_ != nullptr; }

 private:
  struct dropper {
    void operator()(detail::grant* g) const noexcept;
  };
  std::unique_ptr<detail::grant, dropper> grant_;
};

}  // namespace cordma
