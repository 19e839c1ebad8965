#pragma once

#include <cordma/base/time.hpp>
#include <cordma/coro/event.hpp>
#include <cordma/coro/task.hpp>

#include <cstddef>
#include <optional>
#include <span>

namespace cordma {

class executor;

/// Bytes to and from a peer, in order and without loss. They go over a stream socket, messages on a
/// queue pair, or TLS over one of these. Handshakes use the tasks below; afterwards the connection
/// listens for the peer's goodbye. One task may read and one may write at a time. \thread the
/// executor's.
class byte_channel {
 public:
  class listener {
   public:
    /// Called when there may be more to read, or room to write; never inside a call of the channel.
    virtual void on_channel_change() noexcept = 0;

   protected:
    ~listener() = default;
  };

  explicit byte_channel(cordma::executor& executor) noexcept;
  byte_channel(byte_channel&&) = delete;
  virtual ~byte_channel() = default;

  /// Reads what has come, without waiting. Returns the number of bytes; 0 after the peer's last
  /// byte; nothing while more may come. \errors `error`: the channel is broken.
  virtual std::optional<std::size_t> try_read(std::span<std::byte> into) = 0;
  /// Takes the bytes that there is room for, without waiting, and returns how many.
  /// \errors `error`: the channel is broken.
  virtual std::size_t try_write(std::span<const std::byte> from) = 0;
  /// Ends writing: the peer reads what was written, then the end.
  virtual void end_writing() noexcept = 0;
  /// Ends the channel. The peer reads the end, perhaps before what was written.
  virtual void hang_up() noexcept { end_writing(); }
  /// Returns true if the channel ends when the peer's process does.
  [[nodiscard]] virtual bool ends_with_peer() const noexcept { return true; }

  /// Has the kernel probe a silent peer's host, where it can: `stream_socket::keep_alive`.
  /// \errors `error`.
  virtual void keep_alive(time_span, unsigned) {}
  /// Returns true if the kernel finds a peer's dead host, which ends the channel.
  [[nodiscard]] virtual bool finds_dead_hosts() const noexcept { return false; }

  /// Calls `l` from now on; null: nobody. Waiting tasks are resumed all the same.
  void listen(listener* l) noexcept { listener_ = l; }
  /// Waits for the next change.
  [[nodiscard]] event::wait_op change() noexcept {
    changed_.reset();
    return changed_.wait();
  }
  [[nodiscard]] cordma::executor& executor() const noexcept { return executor_; }

 protected:
  /// Tells the listener and the tasks that wait. The listener may destroy this object.
  void tell_change() noexcept {
    changed_.set();
    if (listener_ != nullptr) listener_->on_channel_change();
  }

 private:
  cordma::executor& executor_;
  listener* listener_ = nullptr;
  event changed_;
};

/// Reads at least one byte; gives 0 after the peer's last. \errors those of `try_read`.
task<std::size_t> read_some(byte_channel& channel, std::span<std::byte> into);
/// Fills `into`. \errors those of `try_read`; errc::disconnected: the bytes ended before.
task<> read_exactly(byte_channel& channel, std::span<std::byte> into);
/// Writes all of `from`. \errors those of `try_write`.
task<> write_all(byte_channel& channel, std::span<const std::byte> from);

}  // namespace cordma
