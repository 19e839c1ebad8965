#pragma once

#include "../../lib/messages/message_channel.hpp"
#include "script.hpp"

#include "support/hostile_peer.hpp"
#include "support/manual_executor.hpp"

#include <array>
#include <chrono>
#include <optional>
#include <span>
#include <vector>

namespace cordma::fuzz {

// The limits of the victim's stream.
constexpr unsigned depth = 8;
constexpr std::size_t buffer_bytes = 64;
constexpr std::size_t large_max = 4096;
constexpr stream_options options{
    .depth = depth, .buffer_bytes = buffer_bytes, .message_bytes_max = large_max};
constexpr std::array<std::size_t, 8> large_lengths{65,  100,       1000, large_max,
                                                   256, large_max, 65,   512};

/// A peer that says what it likes, and a victim's message channel. Each execution has a connection
/// of its own and a script, which is read from the fuzzer's bytes. A script tells what the peer
/// says on both queue pairs, and what the victim's own program does meanwhile. Then time passes, or
/// the connection ends: all waits have ended, and all memory is back. A derived class uses the
/// channel.
class message_siege {
 public:
  message_siege(const message_siege&) = delete;
  message_siege& operator=(const message_siege&) = delete;
  virtual ~message_siege() = default;
  void run(script& in);

 protected:
  using frame = message_protocol::frame;
  using kind = message_protocol::kind;
  using agent_frame = agent_protocol::frame;
  using agent_kind = agent_protocol::kind;

  message_siege();

  // ---- the victim
  virtual void open(const detail::channel_resources& resources) = 0;
  /// Takes what has ended.
  virtual void collect() = 0;
  /// Ends all that the victim's program wants.
  virtual void give_up() = 0;
  /// Checks that all is over: long after, or after the end of the connection.
  virtual void must_be_over() = 0;
  /// Drops all that the program has, but for what is given back when the queue pair goes.
  virtual void leave() = 0;
  /// Forgets what was given back when the queue pair went.
  virtual void forget() {}

  // ---- the peer
  /// One act of either side.
  virtual void perform(script& in) = 0;
  virtual void hear(const test::heard_frame& f);
  /// Fills the memory that the peer lends, before the victim reads there.
  virtual void fill(std::span<std::byte> /*landing*/, script& /*in*/) {}

  /// The number of acts that any peer of a channel has.
  static constexpr unsigned acts = 11;
  void act(unsigned what, script& in);
  /// Sends a frame, now and then with an old count of taken messages or a few bytes changed.
  void say(frame f, script& in, std::span<const std::byte> payload = {},
           std::optional<std::uint32_t> invalidated = {});
  void put(std::span<const std::byte> message, ibv_wr_opcode how = IBV_WR_SEND,
           std::uint32_t rkey = 0);
  void tell(const agent_frame& f);
  /// Announces a large message, which lies in the peer's landing.
  void announce(script& in);
  /// Turns until nothing moves.
  void drive();
  [[nodiscard]] bool can_say_data();

  test::agent_world world_;
  shared_receives pool_{
      world_.pd,
      world_.memory,
      {.buffers = 4 * depth, .buffer_bytes = 8 + buffer_bytes, .share_min = depth}};
  stream_options of_victim_ = options;  ///< deeper with the pool, which not each execution has
  std::optional<test::victim> victim_;
  std::optional<test::hostile_peer> peer_;
  bool is_gentle_ = false;  ///< true: sends nothing for which it would be cut off

 private:
  void come(shared_receives* pool);
  void pass();
  void depart();
  void check();
  [[nodiscard]] std::uint32_t receives_posted();
  [[nodiscard]] bool can_say();
  void hear_all();
  void tell_credit() { tell({.kind = agent_kind::credit}); }
  void tell_terms(script& in);
  void change_credit(script& in);
  [[nodiscard]] frame one_announced(script& in) const;
  void read_announced(script& in);
  void answer_announced(script& in);
  void pass_time(script& in);
  void babble(script& in);

  std::size_t in_use_at_first_ = 0;
  // The knowledge of the peer.
  std::vector<frame> announced_;  ///< messages that the victim has announced
  std::uint64_t next_tag_ = 0;
  std::uint64_t answered_ = 0;  ///< messages of its own that the victim has answered
  std::uint32_t told_ = 0;
  std::uint32_t granted_ = 0;  ///< the credit that the victim was granted
  std::uint32_t asked_ = 0;    ///< the credit that the victim asked for
  bool is_shrinking_ = false;  ///< true until the victim has confirmed that it shrinks
  // Messages that the victim has not taken yet, at most.
  std::uint32_t in_flight_ = 0;
  std::uint32_t data_in_flight_ = 0;
  bool has_terms_ = false;
  bool has_time_passed_ = false;
};

}  // namespace cordma::fuzz
