#pragma once

#include <cordma/base/result.hpp>
#include <cordma/coro/operation.hpp>
#include <cordma/detail/coro/operation_base.hpp>
#include <cordma/memory/slice.hpp>

#include <cstddef>
#include <cstdint>

namespace cordma::detail {

class exchange;
class host_map;

/// One message of a collective operation, at its sender or at its receiver. Both sides know its
/// length, and name it by the peer's rank and by a step that no other message between the two has.
///
/// A transfer is posted when it is made, and ends once: `exchange` calls `end`. Await it once, or
/// destroy it: `exchange::withdraw` is then told.
/// \thread the executor's.
class [[nodiscard]] transfer : public operation_base<transfer>, private suspension {
 public:
  using value_type = void;

  transfer(const transfer&) = delete;
  transfer& operator=(const transfer&) = delete;

  /// Returns the peer's rank in the whole exchange.
  [[nodiscard]] unsigned peer() const noexcept { return peer_; }
  [[nodiscard]] std::uint32_t step() const noexcept { return step_; }
  [[nodiscard]] bool has_ended() const noexcept { return state_ != state::pending; }

  // The operation that `co_await` needs.
  bool start(waiter& w, const environment& env) noexcept {
    if (has_ended()) return true;
    // A stop ends the whole collective operation, and thereby its transfers.
    begin(w, {env.scheduler, {}});
    return false;
  }
  [[nodiscard]] bool failed() const noexcept { return state_ == state::failed; }
  inline result<void> take_result() noexcept;

  /// For `exchange`: ends the transfer, and resumes its waiter through the scheduler. A transfer
  /// fails with its operation, and for the same reason.
  void end(bool has_failed) noexcept {
    state_ = has_failed ? state::failed : state::done;
    if (is_waiting()) suspension::end();
  }

 protected:
  inline transfer(exchange& x, unsigned peer, std::uint32_t step) noexcept;
  ~transfer() {
    if (is_waiting()) forget();
  }
  exchange& exchange_;

 private:
  enum class state : std::uint8_t { pending, done, failed };

  const unsigned peer_;
  const std::uint32_t step_;
  state state_ = state::pending;
};

/// A message that this rank receives into memory of the message's length. Ends when the bytes are
/// there and the sender can no longer reach the memory. Post it early: a large message is not sent
/// before.
class incoming final : public transfer {
 public:
  inline incoming(exchange& x, unsigned from, std::uint32_t step,
                  const local_mr_slice& into) noexcept;
  inline ~incoming();
  const local_mr_slice memory;
};

/// A message that this rank sends. Ends when the bytes may change.
class outgoing final : public transfer {
 public:
  inline outgoing(exchange& x, unsigned to, std::uint32_t step,
                  const const_local_mr_slice& from) noexcept;
  inline ~outgoing();
  const const_local_mr_slice memory;
};

/// The view that an algorithm of a collective operation has of its group. Tests put a model
/// in place of connections.
///
/// A failure of the operation ends all transfers with it, and all that are posted afterwards.
class exchange {
 public:
  exchange(unsigned rank, unsigned size) noexcept : rank_{rank}, size_{size} {}
  exchange(const exchange&) = delete;
  exchange& operator=(const exchange&) = delete;

  [[nodiscard]] unsigned rank() const noexcept { return rank_; }
  [[nodiscard]] unsigned size() const noexcept { return size_; }
  /// Returns which ranks share a host; null if no algorithm is to make use of that.
  [[nodiscard]] virtual const host_map* hosts() const noexcept = 0;
  /// Returns the exchange that has the transfers of this one. A `rank_view` is an exchange of some
  /// ranks, with numbers of their own.
  [[nodiscard]] virtual exchange& whole() noexcept { return *this; }
  /// Returns what a rank here is in the whole exchange.
  [[nodiscard]] virtual unsigned rank_in_whole(unsigned rank) const noexcept { return rank; }
  [[nodiscard]] virtual std::uint32_t step_in_whole(std::uint32_t step) const noexcept {
    return step;
  }
  /// Returns why the operation has failed, or that it was stopped; a value while it goes on.
  [[nodiscard]] virtual result<void> why() const noexcept = 0;

  /// Begins a transfer of the whole exchange, and calls its `end` then or later.
  virtual void post(incoming& message) noexcept = 0;
  virtual void post(outgoing& message) noexcept = 0;
  /// Forgets a transfer that is destroyed before its end. Its memory stays until the peer cannot
  /// reach it.
  virtual void withdraw(transfer& message) noexcept = 0;

  /// Gives registered memory that lives as long as the operation; none for 0 bytes. The bytes are
  /// undefined.
  /// \errors what the allocator throws.
  virtual local_mr_slice scratch(std::size_t size_bytes) = 0;

  /// Copies bytes of the same length, which do not overlap. Equal addresses copy nothing.
  virtual void copy(const local_mr_slice& into, const const_local_mr_slice& from) = 0;
  /// Puts `left` combined with `right`, element by element, into `into`, which is one of the two or
  /// overlaps neither. All have the same length.
  virtual void combine(const local_mr_slice& into, const const_local_mr_slice& left,
                       const const_local_mr_slice& right) = 0;

 protected:
  ~exchange() = default;

 private:
  const unsigned rank_;
  const unsigned size_;
};

inline transfer::transfer(exchange& x, unsigned peer, std::uint32_t step) noexcept
    : suspension{nullptr},
      exchange_{x.whole()},
      peer_{x.rank_in_whole(peer)},
      step_{x.step_in_whole(step)} {}
inline result<void> transfer::take_result() noexcept {
  return failed() ? exchange_.why() : result<void>{};
}

inline incoming::incoming(exchange& x, unsigned from, std::uint32_t step,
                          const local_mr_slice& into) noexcept
    : transfer{x, from, step}, memory{into} {
  exchange_.post(*this);
}
inline incoming::~incoming() {
  if (!has_ended()) exchange_.withdraw(*this);
}
inline outgoing::outgoing(exchange& x, unsigned to, std::uint32_t step,
                          const const_local_mr_slice& from) noexcept
    : transfer{x, to, step}, memory{from} {
  exchange_.post(*this);
}
inline outgoing::~outgoing() {
  if (!has_ended()) exchange_.withdraw(*this);
}

}  // namespace cordma::detail
