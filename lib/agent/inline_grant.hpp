#pragma once

#include <cordma/agent/agent_options.hpp>

#include <cstdint>
#include <optional>
#include <utility>

namespace cordma {

struct bind_request;

namespace detail {
struct grant;
}

/// The terms that a borrower has to know of lent memory.
struct loan_terms {
  std::uint64_t address = 0;
  std::uint64_t length = 0;  ///< bytes
  std::uint32_t rkey = 0;
  cordma::isolation isolation = isolation::exact;
};

/// Memory that a message of this side on the data queue pair lends. The message carries the terms,
/// and a message of the peer there gives the memory back. No lease runs at this end: the sender of
/// the message says when the loan is over. Must not be moved. \thread the executor's.
class inline_grant {
 public:
  /// Called when the loan has ended: nobody reaches the memory any more, or ever did. Mostly in the
  /// middle of a reap.
  using function = void (*)(inline_grant& self) noexcept;
  /// Loans that one message may carry.
  static constexpr unsigned per_message_max = 3;
  explicit inline_grant(function on_ended) noexcept : on_ended_{on_ended} {}
  inline_grant(inline_grant&&) = delete;
  ~inline_grant() { drop(); }

  [[nodiscard]] explicit operator bool() const noexcept { return grant_ != nullptr; }
  [[nodiscard]] loan_terms terms() const noexcept;
  /// True if a bind must be posted ahead of the message, with the same doorbell.
  [[nodiscard]] bool needs_bind() const noexcept;
  /// The bind, unsignaled.
  [[nodiscard]] bind_request bind() const noexcept;
  /// Call once the message is posted, and the bind ahead of it. Nobody can reach the memory before.
  void posted() noexcept;

  /// The peer has said that it no longer uses the memory. The loan ends once the peer's access is
  /// taken away: at once if the message that said so has `invalidated` the key, else perhaps later.
  void give_back(std::optional<std::uint32_t> invalidated = {}) noexcept;
  /// The peer has been asked for the memory. After the policy's `grace` its access ends anyway.
  void revoke() noexcept;
  /// Ends the loan in the background, without `on_ended`; at once if the peer never heard of it.
  void drop(bool is_known = true) noexcept {
    if (grant_ != nullptr) leave(is_known);
  }

 private:
  friend class lender;
  void leave(bool is_known) noexcept;
  void end() noexcept {
    grant_ = nullptr;
    on_ended_(*this);
  }
  const function on_ended_;
  detail::grant* grant_ = nullptr;
};

}  // namespace cordma
