#include "wire/ring.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace softverbs {

static_assert(std::endian::native == std::endian::little,
              "frames carry little-endian fields as they are");

namespace {

constexpr std::uint64_t ring_mask = ring_bytes - 1;
static_assert((ring_bytes & ring_mask) == 0);

/// True if a peer may have this many bytes in the ring: whole lines, and at most the capacity.
constexpr bool plausible(std::uint64_t used) {
  return used <= ring_bytes && used % frame_align == 0;
}

/// Reads each word once: the peer may change the ring, but not the copy that is checked.
void copy_header(frame_header& to, const std::byte* from) noexcept {
  std::uint64_t words[sizeof(frame_header) / sizeof(std::uint64_t)];
  const auto* source = reinterpret_cast<const std::uint64_t*>(from);
  for (auto& word : words) word = __atomic_load_n(source++, __ATOMIC_RELAXED);
  std::memcpy(&to, words, sizeof to);
}

}  // namespace

// ---- producer

void ring_producer::attach(ring_view view) noexcept {
  if (view_.control != view.control) view_ = view;  // Another thread may read an unchanged view.
  tail_.store(0, std::memory_order_relaxed);
  head_seen_ = 0 - std::uint64_t{view.unusable};
}

ring_answer ring_producer::reserve(std::size_t bytes, std::byte*& to) noexcept {
  const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
  // Under the explorer, each call reads the head: an earlier run must not influence a later one.
  if (runs_share_state || tail - head_seen_ + bytes > ring_bytes) {
    const std::uint64_t head = view_.control->head.load();
    if (!plausible(tail - head)) return ring_answer::broken;
    head_seen_ = head;
    if (tail - head + bytes > ring_bytes) return ring_answer::no;
  }
  to = view_.data + (tail & ring_mask);
  return ring_answer::yes;
}

void ring_producer::publish(std::size_t bytes) noexcept {
  const std::uint64_t tail = tail_.load(std::memory_order_relaxed) + bytes;
  tail_.store(tail, std::memory_order_relaxed);
  // Sequentially consistent with the consumer's doorbell_wanted: one side sees the other's store.
  view_.control->tail.store(tail);
}

const frame_header& ring_producer::hold(std::size_t bytes) noexcept {
  const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
  tail_.store(tail + bytes, std::memory_order_relaxed);
  return *reinterpret_cast<const frame_header*>(view_.data + (tail & ring_mask));
}

bool ring_producer::claim_doorbell() noexcept {
  return view_.control->doorbell_wanted.load() != 0 &&
         view_.control->doorbell_wanted.exchange(0) != 0;
}

bool ring_producer::has_space() const noexcept {
  // An invalid head counts as space: the next reserve() detects it.
  const std::uint64_t used = tail_.load(std::memory_order_relaxed) - view_.control->head.load();
  return used + space_doorbell_bytes <= ring_bytes || !plausible(used);
}

void ring_producer::want_space(bool wanted) noexcept { view_.control->space_wanted.store(wanted); }

// ---- consumer

void ring_consumer::attach(ring_view view) noexcept {
  if (view_.control != view.control) view_ = view;
  head_.store(0, std::memory_order_relaxed);
  tail_seen_ = 0;
  frame_size_ = 0;
}

ring_answer ring_consumer::refresh() noexcept {
  const std::uint64_t head = head_.load(std::memory_order_relaxed);
  const std::uint64_t tail = view_.control->tail.load(std::memory_order_acquire);
  if (!plausible(tail - head)) return ring_answer::broken;
  tail_seen_ = tail;
  return tail == head ? ring_answer::no : ring_answer::yes;
}

ring_answer ring_consumer::peek(frame_header& header, const std::byte*& payload) noexcept {
  if (seen_all()) {
    if (const ring_answer answer = refresh(); answer != ring_answer::yes) return answer;
  }
  const std::uint64_t head = head_.load(std::memory_order_relaxed);
  const std::byte* from = view_.data + (head & ring_mask);
  copy_header(header, from);
  if (header.payload_bytes > segment_bytes_max) return ring_answer::broken;
  frame_size_ = frame_bytes(header.payload_bytes);
  if (tail_seen_ - head < frame_size_) return ring_answer::broken;
  payload = from + sizeof(frame_header);
  return ring_answer::yes;
}

void ring_consumer::pop() noexcept {
  const std::uint64_t head = head_.load(std::memory_order_relaxed) + frame_size_;
  head_.store(head, std::memory_order_relaxed);
  view_.control->head.store(head - view_.unusable, std::memory_order_release);
}

bool ring_consumer::claim_space_doorbell() noexcept {
  const std::uint64_t head = head_.load(std::memory_order_relaxed) - view_.unusable;
  // Sequentially consistent with the producer's space_wanted: one side sees the other's store.
  view_.control->head.store(head);
  if (view_.control->space_wanted.load() == 0) return false;
  const std::uint64_t used = view_.control->tail.load() - head;
  return used + space_doorbell_bytes <= ring_bytes && view_.control->space_wanted.exchange(0) != 0;
}

void ring_consumer::want_doorbell(bool wanted) noexcept {
  view_.control->doorbell_wanted.store(wanted);
}

void ring_consumer::show_next(bool is_lost) noexcept {
  const std::uint64_t shown = view_.control->tail.load();
  auto& header = *reinterpret_cast<frame_header*>(view_.data + (shown & ring_mask));
  if (is_lost) header.kind = frame_kind::lost;
  view_.control->tail.store(shown + frame_bytes(header.payload_bytes));
}

// ---- byte streams

void stream_reader::attach(ring_view view) noexcept {
  view_ = view;
  head_ = 0;
}

std::span<const std::byte> stream_reader::pending() const noexcept {
  return {view_.data + (head_ & ring_mask),
          static_cast<std::size_t>(view_.control->tail.load() - head_)};
}

void stream_reader::consumed(std::size_t bytes) noexcept {
  head_ += bytes;
  view_.control->head.store(head_ / frame_align * frame_align);
}

void stream_writer::attach(ring_view view) noexcept {
  view_ = view;
  tail_ = received_ = 0;
}

std::span<std::byte> stream_writer::room() const noexcept {
  const std::uint64_t used = received_ - view_.control->head.load();
  return {view_.data + (received_ & ring_mask), static_cast<std::size_t>(ring_bytes - used)};
}

bool stream_writer::produced(std::size_t bytes) noexcept {
  received_ += bytes;
  frame_header header;
  while (received_ - tail_ >= sizeof header) {
    copy_header(header, view_.data + (tail_ & ring_mask));
    if (header.payload_bytes > segment_bytes_max) return false;
    const std::size_t size = frame_bytes(header.payload_bytes);
    if (received_ - tail_ < size) break;
    tail_ += size;
  }
  view_.control->tail.store(tail_);
  return true;
}

}  // namespace softverbs
