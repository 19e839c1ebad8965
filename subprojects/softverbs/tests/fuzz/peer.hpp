#pragma once

#include "link/unique_fd.hpp"
#include "wire/frame.hpp"
#include "wire/ring.hpp"

#include <cstddef>
#include <cstdint>

namespace softverbs::fuzz {

/// The malicious end of a link: both rings, without their rules.
class hostile_link {
 public:
  /// `opener`: the link was opened by this side.
  bool attach(unique_fd socket, int file, bool opener) noexcept;
  void close() noexcept { socket_.reset(); }
  [[nodiscard]] bool open() const noexcept { return static_cast<bool>(socket_); }
  /// Tells whether the victim has closed; drops the victim's doorbells.
  [[nodiscard]] bool ended() noexcept;
  void ring_doorbell() const noexcept;

  /// Writes behind all frames, and shows them to the victim. The payload repeats `pattern`.
  void put(const frame_header& header, std::uint64_t pattern) noexcept;
  [[nodiscard]] std::byte* next_frame() const noexcept { return out_.data + (tail_ & ring_mask); }
  [[nodiscard]] bool has_room() const noexcept;
  [[nodiscard]] ring_control& out() const noexcept { return *out_.control; }
  [[nodiscard]] ring_control& in() const noexcept { return *in_.control; }
  [[nodiscard]] std::byte* out_data() const noexcept { return out_.data; }
  void publish(std::uint64_t tail) noexcept;
  [[nodiscard]] std::uint64_t tail() const noexcept { return tail_; }
  [[nodiscard]] bool all_taken() const noexcept { return out_.control->head.load() == tail_; }
  /// Takes all that the victim sent, and makes room for more.
  void take_all() noexcept;

 private:
  static constexpr std::uint64_t ring_mask = ring_bytes - 1;
  unique_fd socket_;
  ring_memory memory_;
  ring_view out_;
  ring_view in_;
  std::uint64_t tail_ = 0;
  std::uint64_t head_ = 0;
};

/// Another adapter in this process, made by hand. `in`: it connected, and sends requests; `back`:
/// the victim connected, and gets answers.
class peer {
 public:
  explicit peer(std::uint16_t target);

  [[nodiscard]] std::uint16_t slot() const noexcept { return slot_; }
  /// Connects, and waits until the victim's engine has let it in.
  void come() noexcept;
  /// Accepts or rejects the processes that have connected to our listener.
  void serve_listener() noexcept;
  /// Connects to the victim's listener, sends these bytes, with or without a descriptor, and
  /// closes.
  void mumble(const void* words, std::size_t bytes, bool with_file) const noexcept;

  hostile_link in;
  hostile_link back;

 private:
  [[nodiscard]] unique_fd connect() const noexcept;
  std::uint16_t target_;
  std::uint16_t slot_ = 0;
  unique_fd listener_;
};

}  // namespace softverbs::fuzz
