#pragma once

#include "agent_context.hpp"
#include "grant.hpp"

#include <string_view>

namespace cordma {

class lender;

/// The frames of a lease's owner: makes those that it sends, and takes those that the holder sends.
/// Decides by what a frame says; the lender moves the lease. Thread: the executor's.
class owner_frames {
 public:
  using frame = agent_protocol::frame;
  using grant = detail::grant;

  owner_frames(agent_context& context, lender& lends) noexcept : context_{context}, lends_{lends} {}

  // From the holder. A frame with a `slot` is answered there, now or later.
  void on_request(const frame& f, unsigned slot) noexcept;
  void on_accept(const frame& f) noexcept;
  void on_renew(const frame& f, unsigned slot) noexcept;
  void on_give_back(const frame& f) noexcept;
  void on_hand_over(const frame& f, unsigned slot) noexcept;

  // To the holder.
  [[nodiscard]] static frame granted(const grant& g) noexcept;
  [[nodiscard]] static frame offer(const grant& g) noexcept;
  [[nodiscard]] static frame revoke(const grant& g) noexcept;
  [[nodiscard]] static frame handed_over(const grant& g) noexcept;
  /// \param limit  bytes of the policy; 0: the holder is told none.
  [[nodiscard]] static frame refused(std::uint64_t tag, errc why, std::uint64_t limit = 0) noexcept;

 private:
  void check_request(const frame& request) const;
  void note_refusal(const frame& request, errc why, std::string_view because) noexcept;

  agent_context& context_;
  lender& lends_;
};

}  // namespace cordma
