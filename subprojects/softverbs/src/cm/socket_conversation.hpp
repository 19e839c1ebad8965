#pragma once

#include "cm/poller.hpp"
#include "cm/transport.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace softverbs::cm {

inline constexpr std::uint32_t conversations_max = 8192;
inline constexpr std::uint32_t conversations_per_host_max = 256;  ///< begun by one remote host
inline constexpr std::size_t unsent_messages_max = 4;  ///< a side sends few before an answer
/// How long a requester tries again when a name resets it, or a port resets or refuses it. A holder
/// that dies has a successor within a second.
inline constexpr std::chrono::milliseconds takeover_time{2000};
inline constexpr std::chrono::milliseconds retry_period{100};

/// Where a request goes, or came from.
struct route {
  bool by_tcp = false;
  in6_addr peer_host{};  ///< all zero: this host
  // Members of a requester by TCP:
  in6_addr host{};
  std::uint16_t port = 0;
  bool from_source = false;  ///< the request's source address is the socket's
};

/// How many conversations a process has, and how many of them each remote host began.
class conversation_count {
 public:
  /// \errors std::bad_alloc.
  conversation_count() { of_remote_hosts_.reserve(conversations_max); }
  [[nodiscard]] bool is_full() const noexcept { return all_ == conversations_max; }
  /// True if the host may begin one more. `this_host` may begin as many as there can be.
  [[nodiscard]] bool has_room_for(const in6_addr& host) const noexcept;
  /// `begun_by`: `this_host` for those of our own, too.
  void add(const in6_addr& begun_by) noexcept;
  void remove(const in6_addr& begun_by) noexcept;

 private:
  std::uint32_t all_ = 0;
  std::vector<in6_addr> of_remote_hosts_;  ///< one element a conversation
};

/// A conversation and its socket.
///
/// | state      | socket | left when                                                            |
/// | ---------- | ------ | -------------------------------------------------------------------- |
/// | waiting    | no     | the deadline comes: another attempt, or the end                      |
/// | connecting | TCP    | the peer's host answers: open, or waiting                            |
/// | open       | yes    | the peer has gone or broke the protocol: waiting (see below), or end |
/// | over       | no     | never: the user was told, or there is none                           |
///
/// A requester that heard nothing from the peer goes back to waiting. The peer may have closed the
/// socket for want of a place. The holder of the port may have died before it passed the request
/// on.
class socket_conversation final : public conversation, private watched {
 public:
  using time = watched::time;

  /// A requester; `count` is not full.
  socket_conversation(poller& by, conversation_count& count, const message& request,
                      const route& to, user& owner) noexcept;
  /// The other side, which has read the request from `socket`.
  socket_conversation(poller& by, conversation_count& count, unique_fd socket,
                      const route& from) noexcept;
  ~socket_conversation() override;

  /// The first attempt of a requester. False: out of descriptors or memory.
  [[nodiscard]] bool begin(time now) noexcept;

  void set_user(user& owner) noexcept override;
  void send(const message& one) noexcept override;
  [[nodiscard]] in6_addr peer_host() const noexcept override { return route_.peer_host; }

 private:
  enum class state : std::uint8_t { waiting, connecting, open, over };

  void on_event(std::uint32_t events, time now) noexcept override;
  void on_time(time now) noexcept override;
  void close_copies() noexcept override;

  [[nodiscard]] int attempt() noexcept;
  void fail(int error, time now) noexcept;
  void end(int error) noexcept;
  void close_socket() noexcept;
  void flush() noexcept;
  void watch_socket() noexcept;
  bool read(time now) noexcept;
  bool take() noexcept;
  void put(const message& one) noexcept;

  conversation_count& count_;
  const in6_addr begun_by_;
  user* user_ = nullptr;
  bool* destroyed_ = nullptr;  ///< set by the destructor, during a call to the user
  unique_fd socket_;
  route route_;
  state state_ = state::open;
  bool is_answered_ = false;  ///< true if the peer has answered, and where no request was sent
  int end_error_ = 0;         ///< waiting: what to tell the user at the deadline, or 0
  time give_up_at_{};
  message request_;  ///< the request, if this side is the requester

  message in_;
  std::size_t received_ = 0;  ///< bytes of in_
  std::array<message, unsent_messages_max> out_;
  std::size_t out_count_ = 0;
  std::size_t sent_ = 0;  ///< bytes of out_[0]
};

}  // namespace softverbs::cm
