#pragma once

#include "wire/frame.hpp"
#include "wire/step.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace softverbs {

/// The data bytes of one direction: a power of two, a multiple of the page, and many times the
/// largest frame.
inline constexpr std::size_t ring_bytes = bound(std::size_t{1} << 20, std::size_t{8192});
inline constexpr std::size_t ring_control_bytes = 4096;
inline constexpr std::size_t ring_file_bytes = ring_control_bytes + ring_bytes;
/// The memory of a link: the ring from the opener to the acceptor, then the ring back.
inline constexpr std::size_t rings_file_bytes = 2 * ring_file_bytes;
/// A producer that found no space gets a doorbell when this much is free again.
inline constexpr std::size_t space_doorbell_bytes = ring_bytes / 4;

/// The size of a frame in a ring and on TCP.
constexpr std::size_t frame_bytes(std::size_t payload_bytes) {
  return sizeof(frame_header) + (payload_bytes + frame_align - 1) / frame_align * frame_align;
}
static_assert(frame_bytes(segment_bytes_max) <= space_doorbell_bytes);

/// The control page of a ring, shared with an untrusted process: the side that reads a value checks
/// it. The indices count bytes and only grow.
struct ring_control {
  alignas(64) step_atomic<std::uint64_t> tail;             ///< written by the producer
  alignas(64) step_atomic<std::uint64_t> head;             ///< written by the consumer
  alignas(64) step_atomic<std::uint32_t> doorbell_wanted;  ///< set by the consumer before it sleeps
  alignas(64) step_atomic<std::uint32_t> space_wanted;     ///< set by the producer before it sleeps
};
static_assert(sizeof(ring_control) <= ring_control_bytes);
static_assert(step_atomic<std::uint64_t>::is_always_lock_free);

/// A mapped ring. The data is mapped twice in a row, so that every frame is contiguous.
struct ring_view {
  ring_control* control = nullptr;
  std::byte* data = nullptr;
  /// Bytes that always count as used, so that the ring is full earlier. The head that the consumer
  /// publishes is behind its own by as many, from the beginning.
  std::size_t unusable = 0;
};

/// Address space for the two rings of a link. The space is kept for ever and reads as zeros while
/// no ring is mapped, so an unlocked read of a control page never faults. A forked child does not
/// inherit it.
class ring_memory {
 public:
  ring_memory() = default;
  ~ring_memory();
  ring_memory(const ring_memory&) = delete;
  ring_memory& operator=(const ring_memory&) = delete;

  /// Creates a sealed memfd of rings_file_bytes. Returns -1 with errno on failure.
  [[nodiscard]] static int create_file() noexcept;
  /// True if the received descriptor is such a file, which cannot shrink under our mapping.
  [[nodiscard]] static bool is_valid(int fd) noexcept;

  [[nodiscard]] bool reserve() noexcept;  ///< call before map(); a second call does nothing
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
  broken,  ///< the peer's index or header is invalid
};

/// The side that writes frames. Callers hold a lock, except for has_space() and published().
class ring_producer {
 public:
  void attach(ring_view view) noexcept;  ///< to a fresh ring, which holds nothing

  /// Reserves `bytes` (see frame_bytes()) and stores their address in `to`.
  [[nodiscard]] ring_answer reserve(std::size_t bytes, std::byte*& to) noexcept;
  void publish(std::size_t bytes) noexcept;
  /// In place of publish(): the consumer sees the frame by its show_next(). Returns its header.
  const frame_header& hold(std::size_t bytes) noexcept;
  /// The bytes published so far. \thread any.
  [[nodiscard]] std::uint64_t published() const noexcept {
    return tail_.load(std::memory_order_relaxed);
  }
  /// True if the consumer waits for a doorbell; clears that request, so one call of several rings.
  [[nodiscard]] bool claim_doorbell() noexcept;

  /// True if enough space is free to wake the QPs that found none. \thread any.
  [[nodiscard]] bool has_space() const noexcept;
  void want_space(bool wanted) noexcept;

 private:
  ring_view view_;
  modelled_atomic<std::uint64_t> tail_{0};  ///< written under the lock; atomic for has_space()
  std::uint64_t head_seen_ = 0;
};

/// The side that reads frames. Callers hold a lock, except for has_frames().
class ring_consumer {
 public:
  void attach(ring_view view) noexcept;

  [[nodiscard]] bool has_frames() const noexcept {
    return view_.control->tail.load() != head_.load(std::memory_order_relaxed);
  }
  /// Loads the tail. seen_all() is true once all frames up to that tail are popped.
  [[nodiscard]] ring_answer refresh() noexcept;
  [[nodiscard]] bool seen_all() const noexcept {
    return tail_seen_ == head_.load(std::memory_order_relaxed);
  }
  /// Copies the header of the next frame out of the ring; the payload stays in the ring.
  [[nodiscard]] ring_answer peek(frame_header& header, const std::byte*& payload) noexcept;
  void pop() noexcept;  ///< the frame of the last peek()
  /// The bytes popped so far.
  [[nodiscard]] std::uint64_t popped() const noexcept {
    return head_.load(std::memory_order_relaxed);
  }
  /// True if the producer waits for space and enough is free; clears that request. Call after the
  /// pops of a batch.
  [[nodiscard]] bool claim_space_doorbell() noexcept;

  void want_doorbell(bool wanted) noexcept;
  /// Publishes the oldest frame that the producer holds, or one that says that it was lost. There
  /// is such a frame.
  void show_next(bool is_lost) noexcept;

 private:
  ring_view view_;
  modelled_atomic<std::uint64_t> head_{0};  ///< written under the lock; atomic for has_frames()
  std::uint64_t tail_seen_ = 0;
  std::size_t frame_size_ = 0;
};

/// Takes frames out of the ring of a ring_producer and into a byte stream.
class stream_reader {
 public:
  void attach(ring_view view) noexcept;
  [[nodiscard]] std::span<const std::byte> pending() const noexcept;
  void consumed(std::size_t bytes) noexcept;

 private:
  ring_view view_;
  std::uint64_t head_ = 0;
};

/// Puts frames from a byte stream into the ring of a ring_consumer.
class stream_writer {
 public:
  void attach(ring_view view) noexcept;
  [[nodiscard]] std::span<std::byte> room() const noexcept;
  /// Publishes the frames that are complete now. False: a header of the stream is invalid.
  [[nodiscard]] bool produced(std::size_t bytes) noexcept;

 private:
  ring_view view_;
  std::uint64_t tail_ = 0;      ///< published
  std::uint64_t received_ = 0;  ///< published, plus the incomplete frame
};

}  // namespace softverbs
