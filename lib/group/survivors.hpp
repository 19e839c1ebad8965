#pragma once

#include "group_frame.hpp"
#include "world.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/coro/task.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace cordma::detail {

class group_context;

/// Agrees with the other ranks of a failed group on who survives.
///
/// The lowest rank that is not gone decides, once each rank that is not gone has asked it to: all
/// of these survive. When it dies, the next lowest asks all others, and decides. A rank that knows
/// of a decision tells it to all when another rank dies. Whoever asks is told, also after the group
/// was dropped. A rank that has asked the next to decide takes no decision of those before. The
/// next takes over any that it hears. So no two ranks that live have different decisions (Paxos:
/// the decider's rank is the ballot).
///
/// States:
///   idle     the program has not asked on this rank. Questions and decisions of others are kept.
///   asking   by `agree`.
///   decided  by `try_to_decide` or `on_decision`, from both; for ever.
class survivors {
 public:
  explicit survivors(group_context& g);
  survivors(const survivors&) = delete;
  ~survivors() { end_waits(); }

  /// Gives the ranks that survive. \errors errc::rank_failed: this one does not, for the others.
  static task<std::vector<bool>> agree(counted_ref<group_context> g);

  /// Returns the identity of the group of the survivors: equal on all of them.
  [[nodiscard]] static std::uint64_t identity(std::uint64_t of,
                                              const std::vector<bool>& alive) noexcept;
  /// Reads a decision. \errors errc::bad_frame: of another number of ranks.
  [[nodiscard]] static std::vector<bool> read(std::span<const std::byte> bitmap, std::size_t ranks);
  /// The group of the survivors is made here.
  void made_rest() noexcept { has_rest_ = true; }
  /// The group is dropped. Tells the survivors if they may count on this rank, which has made no
  /// group of them.
  void drop() noexcept;
  /// Returns true if others may count on this rank by a decision that it has not heard.
  [[nodiscard]] bool awaits_decision() const noexcept { return is_asking_ && !decision_; }

  /// Returns the decision as its frame has it; empty: there is none.
  [[nodiscard]] std::string bitmap() const;

  /// Returns the rank that has made the decision, if there is one.
  [[nodiscard]] std::uint32_t decider() const noexcept { return decider_; }

  /// Tells that rank of the decision, if there is one.
  void pass_on(std::uint32_t rank) noexcept {
    if (decision_) tell(rank);
  }

  /// Returns true if that rank has asked this one.
  [[nodiscard]] bool is_asked_by(std::uint32_t rank) const noexcept { return ready_[rank]; }

  void on_ready(std::uint32_t from) noexcept;
  /// \errors errc::bad_frame.
  void on_decision(std::uint32_t decider, std::span<const std::byte> bitmap);
  void on_rank_gone() noexcept;

 private:
  [[nodiscard]] std::uint32_t lowest() const noexcept;
  void ask() noexcept;
  void try_to_decide() noexcept;
  void settle(std::vector<bool> alive, std::uint32_t decider) noexcept;
  void tell(std::uint32_t rank) noexcept;
  void tell_all() noexcept;
  void want(std::uint32_t rank) noexcept;
  void end_waits() noexcept;

  group_context& group_;
  bool is_asking_ = false;
  bool has_rest_ = false;      ///< the group of the survivors was made
  std::vector<bool> ready_;    ///< ranks that wait for this one's decision
  std::vector<bool> awaited_;  ///< ranks that this one waits for
  std::uint32_t asked_ = 0;    ///< the highest decider that this rank has asked
  std::uint32_t decider_ = 0;  ///< rank that made `decision_`
  std::optional<std::vector<bool>> decision_;
  event decided_;
};

}  // namespace cordma::detail
