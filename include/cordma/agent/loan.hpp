#pragma once

#include <cordma/agent/agent_options.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/memory/local_mr.hpp>

#include <memory>

namespace cordma {

namespace detail {
struct grant;
}

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
