#pragma once

#include "algorithm_table.hpp"
#include "group_frame.hpp"
#include "meeting.hpp"
#include "rank_link.hpp"

#include <cordma/connection/connection.hpp>
#include <cordma/connection/listener.hpp>
#include <cordma/coro/event.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/detail/base/counted.hpp>
#include <cordma/detail/base/intrusive_list.hpp>
#include <cordma/group/group.hpp>
#include <cordma/group/joining.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace cordma {
class runtime;
}

namespace cordma::detail {

class group_context;
class world;

/// A frame that owns itself: `on_posted` deletes it.
struct dropped_frame : outgoing_frame, frame_cache::recycled {
  explicit dropped_frame(const group_protocol::frame& f, std::string text = {});
  std::string text;
  rank_link* link = nullptr;  ///< counts the frame while it waits
};

/// Tells frames that they will never be posted.
void fail_all(intrusive_list<outgoing_frame>& frames, const failure& why) noexcept;

/// A frame that came before this rank was ready for it.
struct early_frame : list_hook<early_frame>, frame_cache::recycled {
  early_frame(std::uint32_t from, const group_protocol::frame& f, std::span<const std::byte> bytes);
  early_frame(const early_frame&) = delete;
  ~early_frame();
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {copy_, size_}; }

  const std::uint32_t from;  ///< rank of the whole
  const group_protocol::frame frame;

 private:
  std::size_t size_;
  std::byte* copy_;
};

/// Wants to know when the link to a rank works: then `on_link`, once, or not if the rank is lost.
struct link_wait : list_hook<link_wait> {
  virtual void on_link() noexcept = 0;

 protected:
  ~link_wait() = default;
};

/// Credits that a link may grow to, as far as the pool of receive buffers has some.
inline constexpr unsigned link_credits_max = 256;
/// Frames of one peer that may wait for this rank.
inline constexpr std::uint32_t early_frames_max = 4096;

/// A task that says by itself what came of it.
class background_task : private waiter {
 public:
  background_task() noexcept
      : waiter{[](waiter&) noexcept -> std::coroutine_handle<> { return std::noop_coroutine(); }} {}
  background_task(const background_task&) = delete;
  ~background_task() = default;
  void start(task<> t, scheduler& on) {
    task_.emplace(std::move(t));
    static_cast<void>(task_->start(*this, {&on, {}}));
  }
  void stop() noexcept { task_.reset(); }

 private:
  std::optional<task<>> task_;
};

/// A connection that is being made to another rank. The world that is dropped meanwhile leaves it
/// to the closer: a peer that takes the connection is to hear a goodbye.
struct connecting {
  connecting(runtime& rt, const endpoint& to, const connection_changes& how);
  static task<> leave(std::unique_ptr<connecting> c);

  event ended;
  result<connection> outcome{failure{}};  ///< valid once `ended` is set

 private:
  task<> connect(runtime& rt, endpoint to, connection_changes how);
  background_task running_;
};

/// Another rank of the whole, and the connection to it.
///
/// States, moved by `world`:
///   unconnected  frames for it wait, and none does at first.
///   dialing      by `want`, while frames wait. When the peer's own connection comes first, `dial`
///                ends without one.
///   open         by `attach`: of `dial`, or of a connection that came.
///   lost         by `suspect`: the connection ended, and `ask` finds out which of the two ranks
///                the others go on without.
///   left         by `on_link_lost`, when the peer closed the connection.
///   dead         by `cut_off`: the peer gave no answer, was silent, or somebody told so.
struct rank_peer {
  enum class state : std::uint8_t { unconnected, dialing, open, lost, left, dead };

  rank_peer(world& w, std::uint32_t r) noexcept : whole{w}, rank{r} {}
  [[nodiscard]] bool is_gone() const noexcept { return now >= state::left; }

  world& whole;
  const std::uint32_t rank;
  state now = state::unconnected;
  bool was_heard = false;      ///< since the last tick
  bool is_one_of_any = false;  ///< a receive from any rank waits, at this tick
  bool is_told = false;        ///< gone, and the groups know
  std::uint32_t silent_ticks = 0;
  std::uint32_t waits = 0;      ///< transfers that wait for the peer
  std::uint32_t early = 0;      ///< frames of it that came before this rank was ready
  time_point expected_until{};  ///< a connection of its own is under way until then
  cordma::connection conn;
  counted_ref<rank_link> link;
  intrusive_list<outgoing_frame> unsent;  ///< wait for the connection
  intrusive_list<link_wait> link_waits;
  std::optional<failure> why;           ///< the connection is lost, or the rank is gone
  std::unique_ptr<connecting> attempt;  ///< this side connects
  background_task dialing;
  background_task asking;
};

/// A group that this rank has left, which is forgotten when no other member is in it.
struct left_group {
  std::string decision{};     ///< on the survivors, as `survivors::bitmap` gives it
  std::uint32_t decider = 0;  ///< rank that made it
  /// The members, by rank, if a decision may yet come that counts on this rank.
  std::vector<std::uint32_t> members{};
  std::vector<bool> inside{};  ///< members that have not left it, by rank of the whole
  [[nodiscard]] bool is_empty() const noexcept {
    return std::ranges::find(inside, true) == inside.end();
  }
};

/// All ranks that have met, as one of them sees them: the connections, made when they are needed,
/// and the groups that they form. A rank that is lost for one rank is so for all: each tells its
/// peers.
///
/// Counted by the groups and the operations under way. \thread the executor's.
class world final : public counted {
 public:
  static task<counted_ref<world>> join(runtime& rt, meeting_kind& how,
                                       const group_options& options);

  [[nodiscard]] std::uint32_t rank() const noexcept { return roster_.rank; }
  [[nodiscard]] std::uint32_t size() const noexcept {
    return std::uint32_t(roster_.members.size());
  }
  [[nodiscard]] const roster& met() const noexcept { return roster_; }
  [[nodiscard]] runtime& rt() const noexcept { return rt_; }
  [[nodiscard]] cordma::executor& executor() const noexcept { return executor_; }
  [[nodiscard]] const group_options& options() const noexcept { return options_; }
  [[nodiscard]] const algorithm_table& algorithms() const noexcept { return algorithms_; }
  [[nodiscard]] group::statistics counters() const noexcept;
  /// For the operations: counts what they do.
  group::statistics counted{};
  /// Bytes of the longest message that is sent at once.
  [[nodiscard]] std::size_t eager_max() const noexcept { return options_.buffer_bytes; }

  // Peers.
  [[nodiscard]] rank_peer& peer(std::uint32_t rank);
  /// Returns the peer, if there ever was one; null: it is unconnected and not gone.
  [[nodiscard]] const rank_peer* known_peer(std::uint32_t rank) const noexcept {
    return peers_[rank].get();
  }
  [[nodiscard]] bool is_gone(std::uint32_t rank) const noexcept {
    return peers_[rank] != nullptr && peers_[rank]->is_gone();
  }
  [[nodiscard]] bool is_connected(std::uint32_t rank) const noexcept {
    return peers_[rank] != nullptr && peers_[rank]->now == rank_peer::state::open;
  }
  [[nodiscard]] bool is_dead(std::uint32_t rank) const noexcept {
    return peers_[rank] != nullptr && peers_[rank]->now == rank_peer::state::dead;
  }
  /// Sends a frame, when there is a connection. A rank that is gone refuses it.
  void send(std::uint32_t to, outgoing_frame& o) noexcept;
  /// Sends a frame that nobody waits for.
  void tell(std::uint32_t to, const group_protocol::frame& f, std::string text = {}) noexcept;
  /// Tells those of `ranks` to which there is a connection, and some to which one is made now: a
  /// frame that each rank passes on once reaches all of them. \param own  this rank's index.
  void spread(std::span<const std::uint32_t> ranks, std::size_t own, const group_protocol::frame& f,
              const std::string& text) noexcept;
  /// Makes a connection, if there is none.
  void want(rank_peer& p) noexcept;
  /// Connects to all ranks. \errors errc::rank_failed: the first that is lost.
  task<> connect_all();
  /// Does so until the meeting's deadline. \errors errc::timed_out: names those that did not come.
  task<> connect_in_time();
  /// Closes the connections, and waits for that. Nothing uses them any more.
  task<> close();
  /// Transfers that wait for a peer keep asking whether it lives.
  void begin_wait(rank_peer& p) noexcept;
  void end_wait(rank_peer& p) noexcept { --p.waits; }
  /// A group begins to wait for a message of any rank: all that are connected are asked.
  void begin_wait_for_any() noexcept { arm_ticker(); }

  /// The rank is dead, whoever found out. Tells all peers.
  void cut_off(std::uint32_t rank, const failure& why) noexcept;
  /// Ends all groups, and the connections without a goodbye.
  void give_up(const failure& why) noexcept;
  /// Returns why this rank takes part no more: mostly, the others go on without it.
  [[nodiscard]] const std::optional<failure>& why_cut_off() const noexcept { return cut_off_; }

  // Groups.
  void add(group_context& c);
  void remove(group_context& c) noexcept;
  /// Returns the number of groups that this rank has left, and others have not.
  [[nodiscard]] std::size_t left_groups() const noexcept { return left_.size(); }
  /// This rank will not make a group that others of `ranks` may have made, and tells them.
  void disown(std::uint64_t group, std::span<const std::uint32_t> ranks) noexcept;

  /// This rank will not make the group of the survivors of `of`, and tells them.
  void disown_survivors(std::uint64_t of, std::span<const std::uint32_t> members,
                        const std::vector<bool>& alive) noexcept;

  // Called by the links, in the middle of a reap.
  void on_frame(std::uint32_t from, const group_protocol::frame& f,
                std::span<const std::byte> bytes, std::optional<std::uint32_t> invalidated);
  void on_link_lost(std::uint32_t rank, const failure& why) noexcept;

 private:
  world(runtime& rt, const group_options& options);
  ~world() override;

  [[nodiscard]] connection_changes changes(bool asks = false) const;
  void admit(connection_request& request);
  task<> accept_all();
  void attach(rank_peer& p, connection conn) noexcept;
  task<> dial(rank_peer& p);
  void arm_ticker() noexcept;
  [[nodiscard]] bool mark_awaited_as_any() noexcept;
  void suspect(rank_peer& p, const failure& why) noexcept;
  task<> ask(rank_peer& p);
  void drop_link(rank_peer& p) noexcept;
  void lose(rank_peer& p, rank_peer::state how, const failure& why) noexcept;
  void tell_groups() noexcept;
  template <class F>
  void for_each_group(F f) noexcept;
  static void on_tick(timer& self) noexcept;
  void on_dead(std::uint32_t from, const group_protocol::frame& f,
               std::span<const std::byte> bytes);
  void leave_group(std::uint64_t id, std::span<const std::uint32_t> members,
                   left_group left) noexcept;
  void tell_left_groups(const rank_peer& p) noexcept;
  void answer_for_left(std::uint32_t to, const group_protocol::frame& f,
                       const left_group& left) noexcept;
  void on_late_decision(std::uint64_t group, left_group& left, std::span<const std::byte> bitmap);
  struct ticker : timer {
    explicit ticker(world& w) noexcept : timer{&on_tick}, whole{w} {}
    world& whole;
  };
  struct sweeper : waiter {
    explicit sweeper(world& w) noexcept;
    using list_hook<waiter>::is_linked;
    world& whole;
  };

  runtime& rt_;
  cordma::executor& executor_;
  const group_options options_;
  const algorithm_table algorithms_;
  const std::uint64_t settings_;  ///< equal on two ranks whose options that must be equal are
  const duration tick_;
  const unsigned silent_ticks_max_;
  shared_receives* pool_ = nullptr;
  roster roster_;
  time_point meeting_ends_{};       ///< until then a rank that refuses may just be late
  std::vector<std::uint32_t> all_;  ///< all ranks
  std::vector<std::unique_ptr<rank_peer>> peers_;
  std::unordered_map<std::uint64_t, group_context*> groups_;
  intrusive_list<group_context> groups_list_;
  std::unordered_map<std::uint64_t, left_group> left_;
  intrusive_list<early_frame> early_;  ///< frames of groups that this rank has not made yet
  ticker ticker_{*this};
  sweeper sweeper_{*this};
  bool is_telling_ = false;                ///< `tell_groups` runs
  std::vector<cordma::connection> swept_;  ///< lost in the middle of a reap
  std::optional<failure> cut_off_;         ///< set: this rank was cut off
  event changed_;                          ///< set when a connection came
  std::optional<listener> listener_;
  background_task accepting_;
  std::shared_ptr<void> watch_;  ///< the launcher's news of deaths
};

}  // namespace cordma::detail
