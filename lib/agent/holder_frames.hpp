#pragma once

#include "agent_context.hpp"
#include "holding.hpp"

namespace cordma {

class borrower;

/// The frames of a lease's holder: makes those that it sends, and takes those that the owner sends.
/// Finds the holding and checks the answer; the borrower moves the lease. Thread: the executor's.
class holder_frames {
 public:
  using frame = agent_protocol::frame;
  using holding = detail::holding;

  holder_frames(agent_context& context, borrower& borrows) noexcept
      : context_{context}, borrows_{borrows} {}

  // From the owner. \errors errc::bad_frame: what no owner says.
  void on_granted(const frame& f);
  void on_refused(const frame& f);
  void on_offer(const frame& f, unsigned slot);
  void on_renewed(const frame& f);
  void on_handed_over(const frame& f);
  void on_revoke(const frame& f) noexcept;

  // To the owner.
  [[nodiscard]] static frame request(const holding& h, std::size_t size_bytes,
                                     const remote_mr_request& options) noexcept;
  [[nodiscard]] static frame renew(const holding& h, time_span lease) noexcept;
  [[nodiscard]] static frame hand_over(const holding& h) noexcept;
  [[nodiscard]] static frame accept(const holding& h) noexcept;
  [[nodiscard]] static frame give_back(const holding& h) noexcept;

 private:
  [[nodiscard]] holding& answered(const frame& f, agent_protocol::kind question);

  agent_context& context_;
  borrower& borrows_;
};

}  // namespace cordma
