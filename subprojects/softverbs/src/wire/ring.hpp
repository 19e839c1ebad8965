#pragma once

#include "wire/frame.hpp"
#include "wire/step.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace softverbs {

/// Data of one direction; a power of two, a multiple of the page, and many times the largest frame.
inline constexpr std::size_t ring_bytes = bound(std::size_t{1} << 20, std::size_t{8192});
inline constexpr std::size_t ring_control_bytes = 4096;
inline constexpr std::size_t ring_file_bytes = ring_control_bytes + ring_bytes;
/// What a link's memory holds: the opener's ring to the acceptor, then the one back.
inline constexpr std::size_t rings_file_bytes = 2 * ring_file_bytes;
/// A producer that found no room is told when this much is free again.
inline constexpr std::size_t ring_roomy_bytes = ring_bytes / 4;

/// The bytes that a frame takes in a ring and on TCP.
constexpr std::size_t frame_bytes(std::size_t payload_bytes) {
  return sizeof(frame_header) + (payload_bytes + frame_align - 1) / frame_align * frame_align;
}
static_assert(frame_bytes(segment_bytes_max) <= ring_roomy_bytes);

/// Shared with a process that is not trusted: each value is checked by the side that reads it.
/// Indices only grow; they count bytes.
struct ring_control {
  alignas(64) step_atomic<std::uint64_t> tail;             ///< the producer's
  alignas(64) step_atomic<std::uint64_t> head;             ///< the consumer's
  alignas(64) step_atomic<std::uint32_t> doorbell_wanted;  ///< set by the consumer before it sleeps
  alignas(64) step_atomic<std::uint32_t> space_wanted;     ///< set by the producer before it sleeps
};
static_assert(sizeof(ring_control) <= ring_control_bytes);
static_assert(step_atomic<std::uint64_t>::is_always_lock_free);

/// A ring's place: its data are mapped twice in a row, so that every frame is contiguous.
struct ring_view {
  ring_control* control = nullptr;
  std::byte* data = nullptr;
};

/// Address space for two rings, kept for ever: while nothing is mapped it reads as zeros, so a look
/// at the control page without a lock never faults. A child of fork does not inherit it.
class ring_memory {
 public:
  ring_memory() = default;
  ~ring_memory();
  ring_memory(const ring_memory&) = delete;
  ring_memory& operator=(const ring_memory&) = delete;

  /// A sealed memfd of rings_file_bytes, or -1 with errno.
  [[nodiscard]] static int create_file() noexcept;
  /// Whether a received descriptor is such a file: it cannot shrink under our mapping.
  [[nodiscard]] static bool is_valid(int fd) noexcept;

  [[nodiscard]] bool reserve() noexcept;  ///< first; again does nothing
  [[nodiscard]] bool map(int fd, bool opener) noexcept;
  void unmap() noexcept;

  [[nodiscard]] ring_view out() const noexcept { return view(0); }
  [[nodiscard]] ring_view in() const noexcept { return view(1); }

 private:
  [[nodiscard]] ring_view view(std::size_t which) const noexcept;
  std::byte* base_ = nullptr;
};

enum class ring_answer : std::uint8_t {
  yes,
  no,      ///< empty, or full
  broken,  ///< the other side's index or header makes no sense
};

/// The side that writes frames. Its methods are called under a lock, except roomy() and
/// published().
class ring_producer {
 public:
  void attach(ring_view view) noexcept;  ///< of a fresh ring: both indices are zero

  /// Room for `bytes` (of frame_bytes()) at `place`.
  [[nodiscard]] ring_answer reserve(std::size_t bytes, std::byte*& place) noexcept;
  void publish(std::size_t bytes) noexcept;
  /// All bytes so far. Any thread.
  [[nodiscard]] std::uint64_t published() const noexcept {
    return tail_.load(std::memory_order_relaxed);
  }
  /// The consumer sleeps and wants to be woken for what was published: true once for each wish.
  [[nodiscard]] bool take_doorbell_wish() noexcept;

  /// Whether it is worth to wake those who found no room. Any thread.
  [[nodiscard]] bool roomy() const noexcept;
  void want_space(bool wanted) noexcept;

 private:
  ring_view view_;
  std::atomic<std::uint64_t> tail_{0};  ///< written under the lock; atomic for roomy()
  std::uint64_t head_seen_ = 0;
};

/// The side that reads frames. Its methods are called under a lock, except has_frames().
class ring_consumer {
 public:
  void attach(ring_view view) noexcept;

  [[nodiscard]] bool has_frames() const noexcept {
    return view_.control->tail.load() != head_.load(std::memory_order_relaxed);
  }
  /// Takes note of the frames there are now; seen_all() once those were popped.
  [[nodiscard]] ring_answer look() noexcept;
  [[nodiscard]] bool seen_all() const noexcept {
    return tail_seen_ == head_.load(std::memory_order_relaxed);
  }
  /// The next frame: its header copied out, its payload still in the ring.
  [[nodiscard]] ring_answer peek(frame_header& header, const std::byte*& payload) noexcept;
  void pop() noexcept;  ///< the frame that peek() showed
  /// All bytes so far.
  [[nodiscard]] std::uint64_t popped() const noexcept {
    return head_.load(std::memory_order_relaxed);
  }
  /// The producer sleeps until there is room, and there is: true once for each wish. Call after the
  /// pops of a batch.
  [[nodiscard]] bool take_space_wish() noexcept;

  void want_doorbell(bool wanted) noexcept;

 private:
  ring_view view_;
  std::atomic<std::uint64_t> head_{0};  ///< written under the lock; atomic for has_frames()
  std::uint64_t tail_seen_ = 0;
  std::size_t frame_size_ = 0;
};

/// The other end of a ring_producer whose frames leave on a byte stream.
class stream_reader {
 public:
  void attach(ring_view view) noexcept;
  [[nodiscard]] std::span<const std::byte> pending() const noexcept;
  void consumed(std::size_t bytes) noexcept;

 private:
  ring_view view_;
  std::uint64_t head_ = 0;
};

/// The other end of a ring_consumer whose frames come from a byte stream.
class stream_writer {
 public:
  void attach(ring_view view) noexcept;
  [[nodiscard]] std::span<std::byte> room() const noexcept;
  /// Publishes the frames that are whole now. False: the stream holds an impossible header.
  [[nodiscard]] bool produced(std::size_t bytes) noexcept;

 private:
  ring_view view_;
  std::uint64_t tail_ = 0;      ///< published
  std::uint64_t received_ = 0;  ///< with the part of a frame behind it
};

}  // namespace softverbs
