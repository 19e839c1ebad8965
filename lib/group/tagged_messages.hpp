#pragma once

#include "collective.hpp"

#include <cordma/coro/task.hpp>
#include <cordma/group/group.hpp>

#include <cstdint>
#include <optional>
#include <vector>

namespace cordma::detail {

/// The messages of a group that its program sends by tag. One that fits a receive buffer is sent at
/// once, up to a window. Others are announced, and go like those of operations once a receive has
/// been found for them.
///
/// A message that has come, or is announced, is in `arrived_` until a receive takes it. A receive
/// is in `waiting_` until a message comes for it. `group_context` tells of frames.
class tagged_messages {
 public:
  /// Messages of one group that are announced, or on their way behind that.
  static constexpr std::uint32_t announced_max = 1024;

  explicit tagged_messages(group_context& g);
  ~tagged_messages();

  static task<> send(counted_ref<group_context> g, const_local_mr_slice bytes, std::uint32_t to,
                     std::uint32_t tag);
  static task<group::message> receive(counted_ref<group_context> g, local_mr_slice into,
                                      std::optional<unsigned> from,
                                      std::optional<std::uint32_t> tag);

  [[nodiscard]] collective& transfers() noexcept { return transfers_; }
  /// Returns true while a receive waits for a message of any rank.
  [[nodiscard]] bool awaits_any() const noexcept { return any_waits_ != 0; }
  /// Takes an eager message, or an announcement.
  void on_arrival(std::uint32_t from, const group_protocol::frame& f,
                  std::span<const std::byte> bytes);
  void on_retract(std::uint32_t from, const group_protocol::frame& f) noexcept;
  /// The rank `from` has taken a message without bytes.
  void on_taken(std::uint32_t from) noexcept {
    if (empties_[from] != 0) --empties_[from];
  }
  void on_rank_gone(std::uint32_t rank) noexcept;
  void fail(const failure& why) noexcept;

 private:
  class arrival;
  struct eager_send;

  void take(early_frame& e) noexcept;
  [[nodiscard]] bool is_for(const early_frame& e, const arrival& a) const noexcept;

  group_context& group_;
  collective transfers_;
  std::uint32_t last_number_ = 0;
  std::uint32_t any_waits_ = 0;         ///< members of `waiting_` that take a message of any rank
  std::vector<std::uint32_t> empties_;  ///< messages without bytes that a rank has not taken
  intrusive_list<early_frame> arrived_;
  intrusive_list<arrival> waiting_;
};

}  // namespace cordma::detail
