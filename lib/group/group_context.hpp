#pragma once

#include "algorithm_table.hpp"
#include "collective.hpp"
#include "host_map.hpp"
#include "survivors.hpp"
#include "tagged_messages.hpp"
#include "world.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace cordma::detail {

/// Mixes two numbers so that each bit of both may change each bit of the result (splitmix64).
constexpr std::uint64_t mixed(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t z = a + 0x9e3779b97f4a7c15 * (b + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

/// The state of a group on this rank. The group has the operations under way, in the order in which
/// they began, and the credits for messages that run ahead of a peer. The `group`, abandoned
/// operations and tasks count as references.
///
/// States:
///   works   operations begin and end.
///   failed  by `fail`, once: nothing begins any more, and what was under way ends.
/// \thread the executor's.
class group_context final : public counted, public list_hook<group_context> {
 public:
  /// Operations of one group that may be under way.
  static constexpr std::uint32_t running_max = 64;
  /// Eager messages to one rank that it has not consumed, of operations; and as many by tag.
  static constexpr std::uint8_t eager_window = 16;
  /// The part of the window that the oldest operation under way here leaves to the others. Theirs
  /// may wait for it on other ranks, so they must not take all: it would wait for them.
  static constexpr std::uint8_t younger_window = eager_window / 2;

  /// \param members  ranks of the whole, by rank of the group.
  /// \errors errc::out_of_range: the world has a group of that identity.
  static counted_ref<group_context> make(counted_ref<world> w, std::uint64_t id,
                                         std::vector<std::uint32_t> members);
  /// Returns the state of a program's group.
  [[nodiscard]] static const counted_ref<group_context>& of(const group& g) noexcept {
    return g.context_;
  }

  [[nodiscard]] world& whole() const noexcept { return *world_.get(); }
  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  [[nodiscard]] std::uint32_t rank() const noexcept { return rank_; }
  [[nodiscard]] std::uint32_t size() const noexcept { return std::uint32_t(members_.size()); }
  [[nodiscard]] std::uint32_t member(std::uint32_t rank) const noexcept { return members_[rank]; }
  [[nodiscard]] const std::vector<std::uint32_t>& members() const noexcept { return members_; }
  /// Returns the rank in the group; nothing for a rank of the whole that is no member.
  [[nodiscard]] std::optional<std::uint32_t> rank_of(std::uint32_t of_whole) const noexcept;
  [[nodiscard]] const host_map& hosts() const noexcept { return *hosts_; }
  /// Makes the identity of a group that descends from this one: equal on all its members.
  [[nodiscard]] std::uint64_t next_id() noexcept;
  [[nodiscard]] tagged_messages& by_tag() noexcept { return by_tag_; }
  [[nodiscard]] survivors& vote() noexcept { return vote_; }

  /// Runs an operation: begins it, has it done by the algorithm that the table names, and waits
  /// until nobody touches its memory.
  static task<> run(counted_ref<group_context> self, collective_call call);
  /// \param table  in place of the group's, for measuring; equal on all ranks, until the end.
  static task<> run(counted_ref<group_context> self, collective_call call,
                    const algorithm_table& table);

  [[nodiscard]] const std::optional<failure>& failed() const noexcept { return failed_; }
  /// Ends everything, and tells the other ranks. \param culprit  the rank that is named.
  void fail(const failure& why, std::uint32_t culprit) noexcept;
  /// Ends everything because `rank` is gone, for `why`.
  void fail_for(const failure& why, std::uint32_t rank) noexcept;
  void fail_for_gone(std::uint32_t rank) noexcept;
  /// Returns true for a rank that is dead, or has left this group or the whole.
  [[nodiscard]] bool is_gone(std::uint32_t rank) const noexcept {
    return has_left_[rank] || world_->is_gone(members_[rank]);
  }
  [[nodiscard]] failure why_gone(std::uint32_t rank) const noexcept;

  // Called by the world.
  void on_frame(std::uint32_t of_whole, const group_protocol::frame& f,
                std::span<const std::byte> bytes, std::optional<std::uint32_t> invalidated);
  /// The rank is dead, has left the whole, or this group.
  void on_rank_gone(std::uint32_t of_whole) noexcept;

  // Called by the operations.
  [[nodiscard]] const char* name_of(const collective& c) const noexcept;
  /// Sends an eager message, or has it wait for a credit of the peer.
  void send_or_stall(outbound& o) noexcept;
  /// Sends eager messages that have waited for a credit and may go now.
  void send_stalled() noexcept;
  /// An eager message of that rank has been consumed.
  void consumed(std::uint32_t rank, std::uint64_t operation) noexcept;
  /// Returns the consumed messages of that rank which it has not been told of, and forgets them.
  [[nodiscard]] std::uint32_t take_owed(std::uint32_t rank, std::uint64_t operation) noexcept;
  /// Returns true if an eager message may be sent to that rank now, and counts it.
  [[nodiscard]] bool try_take_credit(std::uint32_t rank, std::uint64_t operation) noexcept;
  /// Returns true if there is a credit for an eager message of an operation.
  [[nodiscard]] bool may_send(const outbound& o) noexcept;
  /// A message by tag, with its credits, will not be sent.
  void return_credit(std::uint32_t rank, const group_protocol::frame& unsent) noexcept;
  /// Answers an offer of that rank whose memory will not be used.
  void release(std::uint32_t rank, const group_protocol::frame& offer) noexcept;
  void keep_early(intrusive_list<early_frame>& in, std::uint32_t rank,
                  const group_protocol::frame& f, std::span<const std::byte> bytes);
  void drop_early(early_frame& e) noexcept;

 private:
  group_context(counted_ref<world> w, std::uint64_t id, std::vector<std::uint32_t> members);
  ~group_context() override;
  /// Credits of one rank, of operations and by tag.
  struct member_credits {
    std::array<std::uint8_t, 2> unconsumed{};  ///< eager messages of ours that it has
    std::array<std::uint8_t, 2> owed{};        ///< messages of it that were consumed, not told of
  };
  class run_guard;

  [[nodiscard]] collective& begin(const collective_call& call);
  void on_message(std::uint32_t from, const group_protocol::frame& f,
                  std::span<const std::byte> bytes);
  void on_credit(std::uint32_t from, const group_protocol::frame& f);
  void on_broken(std::uint32_t from, const group_protocol::frame& f,
                 std::span<const std::byte> bytes) noexcept;
  void disagree(std::uint32_t from, const group_protocol::signature& theirs,
                const group_protocol::signature& ours) noexcept;
  void end_all(const failure& why) noexcept;
  void on_rank_left(std::uint32_t rank) noexcept;
  [[nodiscard]] collective* find(std::uint64_t operation) noexcept;
  [[nodiscard]] failure left_in_the_middle(const char* name) const noexcept;

  const counted_ref<world> world_;
  const std::uint64_t id_;
  const std::vector<std::uint32_t> members_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>>
      ranks_;  ///< a rank of the whole, and in the group
  std::optional<host_map> hosts_;
  std::uint32_t rank_ = 0;
  std::uint64_t descendants_ = 0;
  std::uint64_t next_operation_ = 0;
  std::uint32_t running_count_ = 0;
  intrusive_list<collective> running_;
  intrusive_list<collective> ending_;  ///< abandoned by their tasks
  std::vector<bool> has_left_;
  std::array<group_protocol::signature, 64> history_{};  ///< calls of operations, by number
  intrusive_list<early_frame> early_;  ///< frames of operations that have not begun here
  std::vector<member_credits> credits_;
  intrusive_list<outgoing_frame> stalled_;  ///< `outbound`s that lack credits
  tagged_messages by_tag_;
  survivors vote_;
  std::optional<failure> failed_;
};

/// Returns the call as people write it: "broadcast(root 1, 64 bytes)".
fixed_text<240> to_text(const group_protocol::signature& s) noexcept;

}  // namespace cordma::detail
