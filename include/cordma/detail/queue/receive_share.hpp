#pragma once

#include <cordma/detail/base/intrusive_list.hpp>

#include <cstdint>

namespace cordma {

class callback_queue_pair;
class shared_receives;

namespace detail {
/// Holder of completed buffers: a queue pair's share, or the pool for destroyed queue pairs.
struct receive_holder {
  std::uint32_t held = 0;
  callback_queue_pair* qp = nullptr;
};

/// Messages that nobody has taken, linked by the numbers of their buffers.
struct arrived_list {
  static constexpr std::uint32_t none = ~0u;
  std::uint32_t oldest = none;
  std::uint32_t newest = none;
};

/// Access of the program to a peer's plain messages.
enum class admittance : std::uint8_t {
  none,   ///< The peer has yet to prove who it is; a message breaks the queue pair.
  later,  ///< The handshake has not ended; messages wait for its end.
  all,
};
}  // namespace detail

/// One queue pair's share of a receive pool. Messages in flight to the queue pair and unreturned
/// buffers together never exceed the share's credit, if the peer keeps to it. The pool grants no
/// more credit than it has buffers, so a receiver-not-ready answer cannot happen.
/// \thread the executor's.
class receive_share : private detail::receive_holder, public list_hook<receive_share> {
 public:
  /// \errors errc::limit_exceeded: fewer than `share_min` buffers are left.
  explicit receive_share(shared_receives& pool);
  receive_share(const receive_share&) = delete;
  receive_share& operator=(const receive_share&) = delete;
  /// Frees the credit for other shares. Held buffers stay held until they are given back.
  ~receive_share();

  /// Returns the number of messages that the peer may be allowed.
  [[nodiscard]] std::uint32_t credit() const noexcept { return credit_; }
  /// Returns the buffers, counted against the credit, that arrived and are not given back.
  [[nodiscard]] std::uint32_t held() const noexcept { return receive_holder::held; }
  /// Adds credit, of which the peer is to be told. Returns false, and adds none, unless all of it
  /// is available.
  [[nodiscard]] bool try_grow(std::uint32_t by) noexcept;
  /// Returns how much the credit may grow, at most `most`. An eighth of the pool stays free for
  /// future queue pairs. An amount below both `most` and `share_min` is not worth granting. If the
  /// result is 0, the pool asks the least recently used share to shrink, and notifies the queue
  /// pair when it may try again.
  [[nodiscard]] std::uint32_t want(std::uint32_t most) noexcept;
  /// Lowers the credit to what the peer has confirmed, from `share_min` to the present credit. A
  /// peer that was asked for more than it can spare answers with the least that it needs. Returns
  /// false, and keeps the credit, if more is held: the peer exceeded what it confirmed.
  [[nodiscard]] bool try_shrink_to(std::uint32_t credit) noexcept;
  [[nodiscard]] shared_receives& pool() const noexcept { return pool_; }

  // The queue pair calls the following functions.
  void belongs_to(callback_queue_pair& of) noexcept;
  /// Takes a message's buffer. Returns false if there is no credit for it.
  [[nodiscard]] bool take(std::uint32_t number) noexcept;
  /// Notes that all receives the device took for this share have completed, or have CQEs that will
  /// be reaped.
  void all_is_known() noexcept { is_all_known_ = true; }

  // The connection calls the following functions.
  /// Sets what the program may have; `all` hands it what has waited.
  void admit(detail::admittance what) noexcept;
  [[nodiscard]] detail::admittance admitted() const noexcept { return admitted_; }

 private:
  friend class shared_receives;
  /// Hook of a share that wanted more in vain and is to be notified.
  struct growth_request : list_hook<growth_request> {
    explicit growth_request(receive_share& s) noexcept : of{s} {}
    receive_share& of;
  };

  shared_receives& pool_;
  std::uint32_t credit_;
  growth_request growth_request_{*this};
  bool is_asked_ = false;        ///< the share was asked to shrink, and has not
  std::uint64_t last_used_ = 0;  ///< in the pool's count of messages
  bool is_all_known_ = false;
  detail::admittance admitted_ = detail::admittance::later;
  detail::arrived_list early_;  ///< messages that wait for the end of the handshake
};

}  // namespace cordma
