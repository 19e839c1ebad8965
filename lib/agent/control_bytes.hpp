#pragma once

#include "control_channel.hpp"
#include "io/byte_channel.hpp"

#include <cordma/detail/coro/waiter.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace cordma {

/// Bytes in the frames of a control queue pair: a handshake runs over them where there is no
/// socket. Bytes that nobody reads keep their credits, so a peer cannot fill the memory. Frames
/// come in the middle of a reap, where a listener may not reap: it is told once the reap is over.
/// The states of the two directions:
///
/// | state | what moves it | next state |
/// | --- | --- | --- |
/// | reading | `on_frame` takes the peer's end | read to the end: `has_ended_` |
/// | writing | `end_writing`, with a free frame | end said: `has_said_end_` |
/// | writing | `end_writing`, without one | end due: `ends_later_` |
/// | end due: `ends_later_` | the channel has sent a frame, which is free then | end said |
///
/// While `is_sending_`, a frame that is sent at once tells nobody. \thread the executor's.
class control_bytes final : public byte_channel, private waiter {
 public:
  using frame = agent_protocol::frame;

  explicit control_bytes(control_channel& frames) noexcept;

  std::optional<std::size_t> try_read(std::span<std::byte> into) override;
  std::size_t try_write(std::span<const std::byte> from) override;
  void end_writing() noexcept override;
  [[nodiscard]] bool ends_with_peer() const noexcept override { return false; }

  /// Takes a frame of bytes, and keeps its slot until they are read. \errors errc::bad_frame: bytes
  /// after the end.
  void on_frame(const frame& f, unsigned slot);
  /// Lets the next read behind the bytes that have come fail: a frame of the peer's was refused.
  /// Later reads and writes go on, so that the peer can be told, unless the channel has stopped.
  void on_bad_frame(const failure& why) noexcept {
    bad_frame_ = why;
    next_read_fails_ = true;
    tell_soon();
  }
  /// The queue pair works no more: reads and writes fail from now on.
  void on_failure() noexcept { tell_soon(); }

 private:
  /// Frames that were given to the control channel, and that it has not posted yet.
  static constexpr std::size_t unsent_max = 8;

  struct outgoing : control_channel::outgoing {
    control_bytes* owner = nullptr;
    bool is_free = true;
  };
  struct arrived {
    agent_protocol::payload bytes;
    std::uint8_t size;
    std::uint8_t slot;
  };

  [[nodiscard]] outgoing* free_frame() noexcept;
  void send(outgoing& o, const frame& f) noexcept;
  void check_works() const;
  /// Tells of a change once the present reap, or call of the channel, is over.
  void tell_soon() noexcept;

  control_channel& frames_;
  std::array<outgoing, unsent_max> outgoing_;
  /// A ring; the first one may be read in part.
  std::array<arrived, agent_protocol::credits> arrived_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  std::size_t read_ = 0;
  std::optional<failure> bad_frame_;
  bool next_read_fails_ = false;  ///< With the bad frame.
  bool has_ended_ = false;
  bool is_sending_ = false;  ///< A frame is being given to the control channel.
  bool ends_later_ = false;  ///< The end is sent when a frame is free.
  bool has_said_end_ = false;
};

}  // namespace cordma
